package buildyard

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/transfer"
)

// lostCloud is a controller with simulated nodes whose journals and VMs are on disk.
type lostCloud struct {
	t         *testing.T
	dir       string
	api       *apiClient
	stop      func()
	stopNodes func()
}

// open starts a controller with the records of a name, and the nodes that were there
// before.
func (l *lostCloud) open(records string) {
	l.t.Helper()
	s, stop := startController(l.t, l.dir, true, map[string]string{
		"data-dir": filepath.Join(l.dir, records), "node-active-timeout": "5s", "instance-time-out": "1s",
	})
	l.stop, l.api = stop, &apiClient{base: s.URL()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- fleet.Run(ctx, fleet.Options{
			NodeCount: 2, ControllerURL: s.URL(), JoinToken: s.JoinToken(), NamePrefix: "sim", Capacity: 4,
			DataDir: filepath.Join(l.dir, "nodes"),
			Logger:  slog.New(slog.DiscardHandler), Version: "test",
		})
	}()
	l.stopNodes = func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("nodes: %v", err)
		}
	}
}

func (l *lostCloud) close() {
	l.stopNodes()
	l.stop()
}

// push puts a small template into the registry.
func (l *lostCloud) push() string {
	l.t.Helper()
	var status api.ControllerStatus
	if err := l.api.get(l.t.Context(), "/api/v1/status", &status); err != nil {
		l.t.Fatal(err)
	}
	client, err := transfer.New(transfer.Options{BaseURL: status.RegistryAddress})
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	disk := filepath.Join(l.dir, demoDisk)
	if err := os.WriteFile(disk, []byte("nothing"), 0o600); err != nil {
		l.t.Fatal(err)
	}
	id := uuid.NewString()
	_, err = client.Push(l.t.Context(), transfer.PushOptions{
		Request: demoTemplate(id),
		Files:   []transfer.PushFile{{Name: demoDisk, Path: disk, Kind: api.FileDisk, Format: "raw"}},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return id
}

// list returns the instances in a state; "" for all.
func (l *lostCloud) list(state string) (list []api.InstanceItem) {
	l.t.Helper()
	var all []api.InstanceItem
	if err := l.api.get(l.t.Context(), "/api/v1/vm", &all); err != nil {
		l.t.Fatal(err)
	}
	for _, item := range all {
		if state == "" || item.VM.InstanceState == state {
			list = append(list, item)
		}
	}
	return list
}

// unknown returns the orphaned VMs, and of which of them the nodes have reported details.
func (l *lostCloud) unknown() (list []api.OrphanedVM) {
	l.t.Helper()
	var all []api.OrphanedVM
	if err := l.api.get(l.t.Context(), "/api/v1/node/adopt", &all); err != nil {
		l.t.Fatal(err)
	}
	for _, u := range all {
		if u.Template != "" {
			list = append(list, u)
		}
	}
	return list
}

func (l *lostCloud) until(what string, so func() bool) {
	l.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if so() {
			return
		}
	}
	l.t.Fatalf("never saw %s", what)
}

// run runs the program with some arguments and returns its exit code and its output.
func (l *lostCloud) run(args ...string) (code int, out, said string) {
	var stdout, stderr bytes.Buffer
	code = Main(l.t.Context(), append(args, "--controller", l.api.base), Streams{Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// TestLostRecords: a cloud starts with an empty data directory. Its nodes join again,
// nothing is removed, and the operator keeps the VMs of one node and removes those of
// the other.
func TestLostRecords(t *testing.T) {
	l := &lostCloud{t: t, dir: t.TempDir()}
	l.open("before")
	template := l.push()
	start := map[string]any{"vmid": template, "count": 6, "name": "job"}
	if err := l.api.send(t.Context(), "POST", "/api/v1/vm", start, nil); err != nil {
		t.Fatal(err)
	}
	l.until("six instances that run", func() bool { return len(l.list("Started")) == 6 })
	before := map[string]api.Instance{}
	for _, item := range l.list("") {
		before[item.InstanceID] = item.VM
	}
	l.close()

	l.open("lost")
	defer func() { l.close() }()
	l.until("six unknown VMs", func() bool { return len(l.unknown()) == 6 })
	var status api.ControllerStatus
	if err := l.api.get(t.Context(), "/api/v1/status", &status); err != nil || status.UnknownVMs != 6 {
		t.Errorf("status = %+v, %v", status, err)
	}
	// The disk of this machine may raise alarms of its own.
	if n := slices.IndexFunc(status.ActiveAlarms, func(a api.Alarm) bool { return a.Name == api.AlarmOrphans }); n < 0 {
		t.Errorf("alarms = %+v", status.ActiveAlarms)
	}
	nodes := map[string][]api.OrphanedVM{}
	for _, u := range l.unknown() {
		nodes[u.NodeName] = append(nodes[u.NodeName], u)
	}
	if len(nodes) != 2 {
		t.Fatalf("nodes = %+v", nodes)
	}
	if code, out, _ := l.run("node", "adopt"); code != 0 || strings.Count(out, "demo:v1") != 6 ||
		!strings.Contains(out, "undecided") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	var kept, gone string
	for name := range nodes {
		kept, gone = name, kept
	}
	l.keeps(kept, nodes[kept], before)
	l.removes(gone, nodes[gone])
	l.until("no orphaned VM", func() bool { return len(l.unknown()) == 0 })
	for _, item := range l.list("") {
		if err := l.api.send(t.Context(), "DELETE", "/api/v1/vm", map[string]string{"id": item.InstanceID},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	l.until("no VM and no record", func() bool { return len(l.list("")) == 0 && l.vms() == 0 })
}

// vms counts the VMs that the nodes have on their disks.
func (l *lostCloud) vms() int {
	l.t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dir, "nodes", "*", "vms", "*"))
	if err != nil {
		l.t.Fatal(err)
	}
	return len(files)
}

func (l *lostCloud) keeps(node string, vms []api.OrphanedVM, before map[string]api.Instance) {
	t := l.t
	if code, out, _ := l.run("node", "adopt", node, "--keep", "--dry-run"); code != 0 ||
		strings.Count(out, "would be kept") != len(vms) || len(l.list("")) > 0 {
		t.Errorf("dry run: exit %d:\n%s", code, out)
	}
	for range 2 { // the second finds nothing to do
		if code, out, said := l.run("node", "adopt", node, "--keep"); code != 0 {
			t.Fatalf("exit %d: %s%s", code, out, said)
		}
	}
	l.until("the instances", func() bool { return len(l.list("Started")) == len(vms) })
	for _, item := range l.list("") {
		was, is := before[item.InstanceID], item.VM
		if is.VMID != was.VMID || is.Tag != was.Tag || is.NodeID != was.NodeID || is.VMInfo.UUID != was.VMInfo.UUID ||
			is.VMInfo.Name != was.VMInfo.Name || len(is.VMInfo.PortForwarding) != len(was.VMInfo.PortForwarding) ||
			is.Metadata["adopted"] != true {
			t.Errorf("was %+v, is %+v", was, is)
		}
	}
}

func (l *lostCloud) removes(node string, vms []api.OrphanedVM) {
	t := l.t
	if code, _, said := l.run("node", "adopt", node, "--remove", "--yes", "--vm", "nothing"); code != 1 ||
		!strings.Contains(said, "1 of 1 VMs not changed") {
		t.Errorf("exit %d: %s", code, said)
	}
	if code, _, said := l.run("node", "adopt", node, "--remove"); code != 2 ||
		!strings.Contains(said, "pass --yes to confirm; nothing was done") {
		t.Errorf("removal without --yes and a terminal ended with %d: %s", code, said)
	}
	if code, _, said := l.run("node", "adopt", node, "--wait"); code != 2 || !strings.Contains(said, "--wait require") {
		t.Errorf("a wait for nothing ended with %d: %s", code, said)
	}
	code, out, said := l.run("node", "adopt", node, "--remove", "--yes", "--wait", "--timeout", "1m", "-o", "json")
	var done []api.OrphanOutcome
	if err := json.Unmarshal([]byte(out), &done); code != 0 || err != nil || len(done) != len(vms) ||
		done[0].Outcome != "removed" {
		t.Errorf("exit %d, %v: %s%s", code, err, out, said)
	}
	for _, vm := range l.unknown() {
		if vm.NodeName == node {
			t.Errorf("orphaned after the wait: %+v", vm)
		}
	}
}
