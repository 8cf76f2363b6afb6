package registry

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// The crash test runs the same operations in child processes. Each child kills itself with SIGKILL before the
// n-th step that changes the disk; then the store is opened and judged, and the operations are carried to their end.

const (
	crashBase = "REGISTRY_CRASH_BASE"
	crashStep = "REGISTRY_CRASH_STEP"
)

func TestMain(m *testing.M) {
	if base := os.Getenv(crashBase); base != "" {
		crashChild(base)
		return
	}
	warm()
	os.Exit(m.Run())
}

// warm makes the shared decoder before a test with a clock of its own does: its channels would be bound to that.
func warm() {
	c := makeContent("disk", api.FileDisk, "warm")
	if _, err := blob.Unpack(c.index.Frame(0), c.stored, nil); err != nil {
		panic(err)
	}
}

// operations change template idA; want is its state after each. They are repeatable.
var operations = []struct {
	name string
	want string
	do   func(*Registry) error
}{
	{"push of a new template", "amd64: v1", func(r *Registry) error {
		return crashPush(r, "v1", nil, makeContent("disk", api.FileDisk, "one"), makeContent("memory", api.FileState, "state"))
	}},
	{"push of the next tag", "amd64: v1 v2", func(r *Registry) error {
		return crashPush(r, "v2", nil, makeContent("disk", api.FileDisk, "two"))
	}},
	{"set arch", "arm64: v1 v2", func(r *Registry) error { return r.SetArch(context.Background(), idA, "arm64") }},
	{"push with revert", "arm64: v1 v3", func(r *Registry) error {
		return crashPush(r, "v3", &api.PushRevert{Tag: "v2"}, makeContent("disk", api.FileDisk, "three"))
	}},
	{"revert", "arm64: ", func(r *Registry) error { return r.Revert(context.Background(), Ref{ID: idA, Tag: "v1"}) }},
	{"push of known content", "arm64: v4", func(r *Registry) error {
		return crashPush(r, "v4", nil, makeContent("disk", api.FileDisk, "one"))
	}},
	{"delete", "none", func(r *Registry) error { return r.Delete(context.Background(), idA) }},
	{"push after the delete", "amd64: v1", func(r *Registry) error {
		return crashPush(r, "v1", nil, makeContent("disk", api.FileDisk, "one"))
	}},
}

func crashPush(r *Registry, tag string, revert *api.PushRevert, files ...content) error {
	req := request(idA, tag, files...)
	req.ResumeKey, req.Revert, req.NVRAM = "crash "+tag, revert, []byte("nv")
	if tag == "v1" {
		req.Arch = "amd64"
	}
	_, err := push(r, req, files...)
	return err
}

func crashState(r *Registry) string {
	d, err := r.Detail(idA)
	if err != nil {
		return "none"
	}
	return d.Arch + ": " + tags(r, idA)
}

// crashChild runs all operations and says after each that it is done.
func crashChild(base string) {
	left, _ := strconv.Atoi(os.Getenv(crashStep))
	hook := func(step string) {
		if left--; left == 0 {
			fmt.Println("killed before", step)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	r, err := Open(context.Background(), Options{Base: base, Hook: hook})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for i, op := range operations {
		if err := op.do(r); err != nil {
			fmt.Println("error", op.name, err)
			os.Exit(1)
		}
		fmt.Println("done", i)
	}
	fmt.Println("end")
	os.Exit(0)
}

func TestKilledAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for every step")
	}
	steps := map[string]bool{}
	for n := 1; ; n++ {
		base := t.TempDir()
		step, done := runChild(t, base, n)
		if step == "" {
			t.Logf("%d steps, of these kinds: %d", n-1, len(steps))
			if n < 50 {
				t.Fatal("the hook is not called where it should be")
			}
			return
		}
		steps[step] = true
		if err := judge(base, done); err != nil {
			t.Fatalf("killed before step %d (%s), after %d operations: %v", n, step, done, err)
		}
	}
}

// runChild gives the step at which the child killed itself, "" when it came to its end, and the number of
// operations that it said were done.
func runChild(t *testing.T, base string, step int) (killed string, done int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashBase+"="+base, crashStep+"="+strconv.Itoa(step))
	out, err := cmd.Output()
	ended := false
	for line := range bytes.Lines(out) {
		text := strings.TrimSpace(string(line))
		switch {
		case strings.HasPrefix(text, "killed before "):
			killed = strings.TrimPrefix(text, "killed before ")
		case strings.HasPrefix(text, "done "):
			done++
		case text == "end":
			ended = true
		}
	}
	var exit *exec.ExitError
	if ended != (err == nil) || !ended && (killed == "" || !errors.As(err, &exit) || exit.ExitCode() != -1) {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return killed, done
}

// judge opens the store after a kill: what was acknowledged is there, the operation that was cut happened as a
// whole or not at all, and everything can be carried on.
func judge(base string, done int) error {
	clock := newClock()
	r, err := Open(context.Background(), Options{Base: base, Now: clock.Now})
	if err != nil {
		return err
	}
	defer r.Close()
	before, after := "none", "none"
	if done > 0 {
		before = operations[done-1].want
	}
	if done < len(operations) {
		after = operations[done].want
	}
	state := crashState(r)
	if state != before && state != after {
		return fmt.Errorf("state %q, expected %q or %q", state, before, after)
	}
	if err := verifyAll(r); err != nil {
		return err
	}
	if done < len(operations) && state == before {
		if err := operations[done].do(r); err != nil {
			return fmt.Errorf("repeat %s: %w", operations[done].name, err)
		}
	}
	for i := done + 1; i < len(operations); i++ {
		if err := operations[i].do(r); err != nil {
			return fmt.Errorf("go on with %s: %w", operations[i].name, err)
		}
	}
	if got := crashState(r); got != operations[len(operations)-1].want {
		return fmt.Errorf("end state %q", got)
	}
	if err := verifyAll(r); err != nil {
		return err
	}
	return judgeLeftovers(base, r, clock)
}

// judgeLeftovers collects for some days: afterwards the store holds what the template needs and nothing else.
func judgeLeftovers(base string, r *Registry, clock *clock) error {
	for range 5 {
		clock.add(26 * time.Hour)
		if err := r.Collect(context.Background()); err != nil {
			return err
		}
	}
	var left []string
	for _, dir := range []string{"images_dir", "state_file_dir", "upload_dir", "trash_dir", "vm_dir/" + idA, "vm_dir/" + idA + "/0"} {
		entries, err := os.ReadDir(base + "/" + dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			left = append(left, dir+"/"+e.Name())
		}
	}
	want := []string{
		"images_dir/" + makeContent("disk", api.FileDisk, "one").root() + ".ank",
		"vm_dir/" + idA + "/0", "vm_dir/" + idA + "/pulls.log", "vm_dir/" + idA + "/template.json",
		"vm_dir/" + idA + "/0/" + idA + ".yaml", "vm_dir/" + idA + "/0/content_id", "vm_dir/" + idA + "/0/images",
		"vm_dir/" + idA + "/0/nvram", "vm_dir/" + idA + "/0/state_files",
	}
	if strings.Join(left, "\n") != strings.Join(want, "\n") {
		return fmt.Errorf("left on disk:\n%s\nexpected:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// TestCrashLosesUnsyncedParts: parts whose bytes a power cut took are found out at the commit and sent again.
func TestCrashLosesUnsyncedParts(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	a := makeContent("disk", api.FileDisk, "a")
	req := request(idA, "v1", a)
	req.ResumeKey = "key"
	s, err := r.Negotiate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := send(r, s, []content{a})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	part := base + "/upload_dir/" + s.Session + "/0.part"
	if err := os.WriteFile(part, make([]byte, len(a.stored)), 0o644); err != nil {
		t.Fatal(err)
	}
	// The map was cut in the middle of an entry, too.
	m, err := os.OpenFile(base+"/upload_dir/"+s.Session+"/0.map", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(m)
	_, _ = w.WriteString("\x00\x00\x00\x00\x00\x00\x00\x00BYPART1")
	if err := errors.Join(w.Flush(), m.Close()); err != nil {
		t.Fatal(err)
	}
	r = open(t, base, newClock())
	if _, err := r.Commit(t.Context(), s.Session, api.PushCommit{Roots: roots}); farm.CodeOf(err) != farm.CodeConflict {
		t.Fatalf("commit of lost bytes: %v", err)
	}
	mustPush(t, r, req, a)
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
	if len(r.allSessions()) != 1 {
		t.Fatal("the push did not go on in its session")
	}
}
