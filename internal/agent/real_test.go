package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// realNode is an agent with real VMs, a real cache and a real registry; only its controller is that
// of these tests.
type realNode struct {
	*world
	driver *qemu.Driver
	cache  *cache.Cache
	stop   func()
}

// bootReal starts the agent of a node whose files are in dir.
func bootReal(
	t *testing.T, name, dir, registryURL string, edit ...func(*realNode, *cache.Options),
) *realNode {
	t.Helper()
	at, err := datadir.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := &realNode{world: &world{t: t, dir: dir, control: newController()}}
	if n.driver, err = qemu.Open(t.Context(),
		qemu.Options{Dir: at.TemplatesDir(), StopTimeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	source := cache.NewRegistry(transfer.Options{}, nil)
	o := cache.Options{Dir: at.TemplateDir(), Source: source}
	for _, f := range edit {
		f(n, &o)
	}
	if n.cache, err = cache.Open(o); err != nil {
		t.Fatal(err)
	}
	book, err := journal.Open(at.JournalDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Identity:   datadir.Identity{NodeID: name, Host: "127.0.0.1", RegistryAddress: registryURL},
		Controller: gatedLink{n.control, newGate(-1)},
		Driver:     n.driver, Templates: n.cache, Journal: book,
		Machine: NewMachine(at.TemplateDir(), at.TemplatesDir()),
		Logger:  slog.New(slog.DiscardHandler), Version: "test", Registries: source, SaveDir: at.SaveDir(),
	}
	if o.Lazy != nil {
		options.LazyTemplates = n.cache
	}
	a := New(options)
	n.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent %s: %v", name, err)
		}
		for _, vm := range must(n.driver.List(context.Background())) {
			_ = n.driver.Delete(context.Background(), vm.ID)
		}
		_ = n.driver.Close()
		_ = n.cache.Close()
		_ = source.Close()
		_ = book.Close()
	}
	t.Cleanup(n.stop)
	return n
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// orderStart orders a start of a version.
func (n *realNode) orderStart(claim, templateID, tag, content string, edit func(*api.StartOrder)) {
	o := startOrder(func(o *api.StartOrder) {
		o.TemplateID, o.Tag, o.ContentID, o.StartTimeout = templateID, tag, content, 300
		o.PortOverride = true // no rules: other tests on this host look for free ports, too
		if edit != nil {
			edit(o)
		}
	})
	o.Claim = claim
	n.control.order(o)
}

// start starts a version and waits until its VM runs.
func (n *realNode) start(claim, templateID, tag, content string) {
	n.t.Helper()
	n.orderStart(claim, templateID, tag, content, nil)
	n.reaches(claim, api.PhaseRunning)
}

// save saves the VM of a claim as a tag of the template debian. Only the first save is tested with
// another VM.
func (n *realNode) save(claim, task, tag, templateID string) api.PushResult {
	n.t.Helper()
	o := saveOrder(task, func(o *api.SaveOrder) {
		o.TemplateID, o.Tag, o.SanityTest, o.Script, o.MustSucceed = templateID, tag, tag == "v2",
			[]byte("A=1\nexport A\nsh -c 'echo said $A'\n"), true
	})
	o.Claim = claim
	begun := time.Now()
	n.control.order(o)
	got := n.untilTask(task)
	n.t.Logf("save of %s took %s, stages %v", tag, time.Since(begun).Round(time.Millisecond), n.control.stages(task))
	if got.Stage != api.TaskDone || got.Script == nil || got.Script.Stdout != "said 1\n" {
		n.t.Fatalf("save of %s: %+v", tag, got)
	}
	return *got.Version
}

// reaches waits until the VM of a claim is in a phase.
func (n *realNode) reaches(claim string, phase api.Phase) {
	n.t.Helper()
	begun := time.Now()
	for n.control.status(idA).Claim != claim || n.control.phase(idA) != phase {
		if s := n.control.status(idA); s.Claim == claim && s.Phase == api.PhaseFailed ||
			time.Since(begun) > 5*time.Minute {
			n.t.Fatalf("it does not come to %s: %s %s", phase, s.Phase, s.Message)
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.t.Logf("%s after %s", phase, time.Since(begun).Round(time.Millisecond))
}

func (n *realNode) terminate(claim string) {
	n.t.Helper()
	n.control.order(terminate(claim))
	n.until(api.PhaseTerminated)
}

// run runs a script in the guest.
func (n *realNode) run(script string) string {
	n.t.Helper()
	r, err := n.driver.Exec(n.t.Context(), idA, hv.ScriptCommand([]byte(script), time.Minute))
	if err != nil || r.Code != 0 {
		n.t.Fatalf("%q: %+v, %v", script, r, err)
	}
	return string(r.Stdout)
}

// publishGuest runs a registry and pushes the demo guest to it.
func publishGuest(t *testing.T, disk string) (url string, v1 api.PushResult) {
	t.Helper()
	core, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { server.Close(); _ = core.Close() })
	client, err := transfer.New(transfer.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	v1, err = client.Push(t.Context(), transfer.PushOptions{
		Request: api.PushRequest{Name: "debian", Tag: "v1", Config: json.RawMessage(
			`{"ram":"256M","cpu":{"cores":1},"hard_drives":[{"file":"disk.qcow2","format":"raw"}],"kept":{"by":"nobody"},` +
				`"network_cards":[{"port_forwarding_rules":[{"rule_name":"ssh","guest_port":22}]}]}`)},
		Files: []transfer.PushFile{
			{Name: "disk.qcow2", Disk: &diskfile.Disk{Path: disk, Format: "qcow2"}, Kind: api.FileDisk},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, v1
}

// TestRealSaves saves a real guest on one node, resumes it on another through a real registry,
// saves that one, and resumes it on the first: disk and memory are preserved, and each node pulls
// only what it does not have.
func TestRealSaves(t *testing.T) {
	t.Parallel() // with TestRealMachine: both wait for guests most of the time
	disk := guesttest.Disk(t)
	guesttest.Turn(t, 1)
	url, v1 := publishGuest(t, disk)
	a := bootReal(t, "a", t.TempDir(), url)
	a.start("1", v1.ID, "v1", v1.ContentID)
	a.run(
		"echo on disk >/var/kept; sync; mkdir -p /run/x; echo in memory >/run/x/kept; sleep 100000 >/dev/null 2>&1 " +
			"</dev/null & echo $! >/run/x/pid")
	v2 := a.save("1", "s1", "v2", v1.ID)
	if got := a.run("cat /var/kept /run/x/kept"); got != "on disk\nin memory\n" {
		t.Errorf("the source has %q", got)
	}
	if vms := must(a.driver.List(t.Context())); len(vms) != 1 {
		t.Errorf("left are %+v", vms)
	}
	a.terminate("1")

	t.Run("scripts", func(t *testing.T) { testScripts(t, a, v2) })

	b := bootReal(t, "b", t.TempDir(), url)
	b.orderStart("2", v1.ID, "v2", v2.ContentID, func(o *api.StartOrder) {
		o.Script = &api.Script{
			Text:       []byte("NAME=value\nOTHER=\"two words\"\necho $NAME $OTHER; cat"),
			Monitoring: true,
		}
	})
	b.reaches("2", api.PhaseScriptOK)
	if s := b.control.status(idA).Script; s == nil || s.Code != 0 || s.Stdout != "value two words\n" {
		t.Errorf("the startup script: %+v", s)
	}
	if got := b.run(
		"cat /var/kept /run/x/kept; kill -0 $(cat /run/x/pid) && echo alive"); got != "on disk\nin memory\nalive\n" {
		t.Errorf("on the second node: %q", got)
	}
	b.run("echo more >>/var/kept; echo more >>/run/x/kept; rm -f /etc/motd; sync")
	v3 := b.save("2", "s2", "v3", v1.ID)
	b.terminate("2")

	a.start("3", v1.ID, "v3", v3.ContentID)
	if got := a.run(
		"cat /var/kept /run/x/kept; kill -0 $(cat /run/x/pid) && echo alive; ls /etc/motd 2>/dev/null; true"); got !=
		"on disk\nmore\nin memory\nmore\nalive\n" {
		t.Errorf("back on the first node: %q", got)
	}
	checkShared(t, a, v1.ContentID, v2.ContentID, v3.ContentID)
	a.terminate("3")
	for _, n := range []*realNode{a, b} {
		if left, _ := os.ReadDir(filepath.Join(n.dir, "saves")); len(left) != 0 {
			t.Errorf("left of the saves are %v", left)
		}
	}
}

// testScripts runs startup scripts in real guests, which are resumed from a version. TestRealSaves
// runs one more.
func testScripts(t *testing.T, n *realNode, v api.PushResult) {
	fulltest.Only(t) // TestScripts runs them with simulated VMs
	type test struct {
		name    string
		script  api.Script
		phase   api.Phase
		vm      string
		code    int
		stdout  string
		message string
	}
	for i, tt := range []test{
		{
			"at boot",
			api.Script{Text: []byte("echo done"), Monitoring: true, AtBoot: true},
			api.PhaseScriptOK, "running",
			0, "done\n", "",
		},
		{
			"stop",
			api.Script{Text: []byte("exit 3"), Monitoring: true, OnFailure: 0},
			api.PhaseScriptEnded, "stopped",
			3, "", "startup script exit code 3",
		},
		{
			"keep",
			api.Script{Text: []byte("exit 3"), Monitoring: true, OnFailure: 1},
			api.PhaseScriptEnded, "running",
			3, "", "startup script exit code 3",
		},
		{
			"delete",
			api.Script{Text: []byte("exit 3"), Monitoring: true, OnFailure: 2},
			api.PhaseScriptEnded, "deleted",
			3, "", "startup script exit code 3",
		},
		{
			"time-out",
			api.Script{Text: []byte("echo before; sleep 1000"), Monitoring: true, Timeout: 3, OnFailure: 1},
			api.PhaseScriptEnded, "running", -1, "before\n", "startup script exit code -1",
		},
		{"not monitored", api.Script{Text: []byte("echo x >&2; exit 9")}, api.PhaseScriptOK, "running", 9, "", ""},
		{
			"no text of a shell",
			api.Script{Text: []byte{0xff, 0, 0x80, '\n'}, OnFailure: 1, Monitoring: true},
			api.PhaseScriptEnded, "running", 127, "", "startup script exit code 127",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim := fmt.Sprint("script ", i)
			n.orderStart(claim, v.ID, v.Tag, v.ContentID, func(o *api.StartOrder) { o.Script = &tt.script })
			n.reaches(claim, tt.phase)
			time.Sleep(300 * time.Millisecond) // a change of the VM would be reported now
			s := n.control.status(idA)
			if s.Message != tt.message || s.Script == nil || s.Script.Code != tt.code || s.Script.Stdout != tt.stdout ||
				s.VM.Status != tt.vm ||
				s.Script.TimedOut != (tt.code == -1) {
				t.Errorf("got %q, script %+v, VM %+v", s.Message, s.Script, s.VM)
			}
			n.terminate(claim)
		})
	}
}

// checkShared checks what a node's cache has of a chain of versions.
func checkShared(t *testing.T, n *realNode, v1, v2, v3 string) {
	t.Helper()
	config, v, err := n.cache.Config(v3)
	if err != nil || len(config.HardDrives) != 1 || config.HardDrives[0].Format != "raw" ||
		config.StateFile != "state.2" || config.StatePin == nil {
		t.Errorf("configuration %+v, %v", config, err)
	}
	at := func(version string) string { return filepath.Join(n.dir, "templates", version, "disk.qcow2") }
	if d := v.Disks["disk.qcow2"]; d.Path != at(v1) || !slices.Equal(d.Overlays, []string{at(v2), at(v3)}) {
		t.Errorf("the third version is read from %+v", d)
	}
	if !strings.Contains(string(v.Config), `"kept":{"by":"nobody"}`) {
		t.Errorf("configuration %s, %v", v.Config, err)
	}
}
