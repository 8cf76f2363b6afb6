package buildyard

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// watched keeps what is written and calls back once, when a text has been seen.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen func()
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(b)
	if w.seen != nil && strings.Contains(w.text.String(), w.want) {
		w.seen()
		w.seen = nil
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// noVMs fails when the demo's node has a VM left on disk.
func noVMs(t *testing.T, dir string) {
	t.Helper()
	host, err := sim.New(sim.Options{Dir: filepath.Join(dir, "node", "vms")})
	if err != nil {
		t.Fatal(err)
	}
	vms, err := host.List(t.Context())
	if err != nil || len(vms) != 0 {
		t.Errorf("%d VMs are left (%v)", len(vms), err)
	}
}

// TestDemoEndsTheInstancesOfItsUser: Ctrl-C leaves no VM behind, neither of the demo nor of its
// user.
func TestDemoEndsTheInstancesOfItsUser(t *testing.T) {
	dir, invited := t.TempDir(), make(chan struct{})
	out := &watched{want: "Ctrl-C stops", seen: func() { close(invited) }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- DemoOptions{Driver: "sim", DataDir: dir, Out: out, Err: out}.run(ctx) }()
	select {
	case <-invited:
	case err := <-done:
		t.Fatalf("the demo ended with %v:\n%s", err, out)
	}
	startMine(t, out.String(), dir)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	if !strings.Contains(out.String(), "terminating 1 instance\n") {
		t.Errorf("the demo does not say what it ends:\n%s", out)
	}
	noVMs(t, dir)
}

// startMine starts an instance as the invitation describes, and waits until its VM runs.
func startMine(t *testing.T, invitation, dir string) {
	t.Helper()
	call := regexp.MustCompile(`curl -s (http://\S+)/api/v1/vm -d '\{"vmid": "([^"]+)"`).FindStringSubmatch(invitation)
	if call == nil {
		t.Fatalf("no call to try in:\n%s", invitation)
	}
	c, err := client.NewController(call[1], client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := c.Start(t.Context(), client.StartRequest{TemplateID: call[2]})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.WaitStarted(ctx, ids[0], nil); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "node", "vms", "*")); len(files) == 0 {
		t.Fatal("the VM is not where this test looks for it afterwards")
	}
}

// TestDemoOnce: a whole run shows every step, saves the nonce, finds it again, and
// leaves nothing.
func TestDemoOnce(t *testing.T) {
	dir, out := t.TempDir(), new(watched)
	if err := (DemoOptions{Driver: "sim", ExitWhenDone: true, DataDir: dir, Out: out, Err: out}).run(
		t.Context()); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	var steps []string
	nonce := regexp.MustCompile(`(?m)^ok script +nonce (\w+) `).FindStringSubmatch(out.String())
	for line := range strings.Lines(out.String()) {
		if words := strings.Fields(line); words[0] == "ok" {
			steps = append(steps, words[1])
		}
	}
	if got := strings.Join(steps, " "); got != "services node template instance script save resume ended" {
		t.Errorf("the steps are %q:\n%s", got, out)
	}
	resumed := regexp.MustCompile(`(?m)^ok resume .* memory and disk have (\w+);`).FindStringSubmatch(out.String())
	if nonce == nil || resumed == nil || nonce[1] != resumed[1] {
		t.Errorf("the nonce %q came back as %q:\n%s", nonce, resumed, out)
	}
	if !regexp.MustCompile(`(?m)^ok save .* bytes more than v1; guest paused for \S+;`).MatchString(out.String()) {
		t.Errorf("the save does not say how long the guest stood still:\n%s", out)
	}
	noVMs(t, dir)
}

// TestNodeLog: only what is worth a look is passed on.
func TestNodeLog(t *testing.T) {
	var out bytes.Buffer
	l := &nodeLog{w: &out}
	if got := l.savePause(); got != "" {
		t.Errorf("before a save: %q", got)
	}
	for _, line := range []string{
		`{"level":"INFO","msg":"VM started","pause":5}`, `{"level":"DEBUG","msg":"x"}`, `{"level":"WARN","msg":"low"}`,
		`{"level":"INFO","msg":"VM saved","pause":65432100}`, `{"level":"ERROR","msg":"bad"}`, `no JSON`,
	} {
		if n, err := l.Write([]byte(line + "\n")); err != nil || n != len(line)+1 {
			t.Errorf("%s: wrote %d, %v", line, n, err)
		}
	}
	if got := out.String(); got !=
		"{\"level\":\"WARN\",\"msg\":\"low\"}\n{\"level\":\"ERROR\",\"msg\":\"bad\"}\nno JSON\n" {
		t.Errorf("passed on %q", got)
	}
	if got := l.savePause(); got != "; guest paused for 65.4ms" {
		t.Errorf("after a save: %q", got)
	}
}

// TestDemoEndsItsOwnInstance: a demo that breaks off in the middle cleans up too.
func TestDemoEndsItsOwnInstance(t *testing.T) {
	for _, step := range []string{"services", "node", "template", "instance", "script", "save", "resume"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &watched{want: fmt.Sprintf("ok %-9s", step), seen: cancel}
			if err := (DemoOptions{Driver: "sim", DataDir: dir, Out: out, Err: out}).run(ctx); err == nil {
				t.Errorf("a demo that was broken off at %s says that all is well:\n%s", step, out)
			}
			noVMs(t, dir)
		})
	}
}
