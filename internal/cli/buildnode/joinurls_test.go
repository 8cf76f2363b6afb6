package buildnode_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestJoinSeveralURLs: a join uses the first URL that can be reached. One of another cloud is left out, and the node
// stays joined, since its token may be spent.
func TestJoinSeveralURLs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two controllers")
	}
	t.Parallel()
	f := newFollowed(t)
	dead, alive := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	f.controller(alive, nil)
	pushTemplate(t, f.registry, f.dir)
	foreign, end, err := openCloud(filepath.Join(f.dir, "foreign"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()

	out, err := f.joinOutput(dead+","+alive+","+foreign.URL(), "--token", f.token())
	if err == nil || !strings.Contains(out, "URLs were left out") || !strings.Contains(out, dead+" cannot be reached") {
		t.Errorf("join: %v\n%s", err, out)
	}
	id := f.identity()
	if id.ControllerURL != alive || len(id.Cloud.ControllerURLs) != 2 || id.NodeID != f.look().NodeID {
		t.Errorf("joined %s, with the URLs %q", id.ControllerURL, id.Cloud.ControllerURLs)
	}
	f.run()
	f.awaitActive()

	// The node has an instance: disjoin asks.
	f.start()
	disjoin := func(more ...string) (string, error) {
		args := append([]string{"disjoin", "--driver", "sim", "--data-dir", filepath.Join(f.dir, "node")}, more...)
		out, err := exec.CommandContext(t.Context(), f.program, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := disjoin(); err == nil || !strings.Contains(out, "pass --yes") {
		t.Errorf("disjoin: %v\n%s", err, out)
	}
	if f.look().State != "Active" {
		t.Error("the node left without a confirmation")
	}
	if out, err := disjoin("--yes"); err != nil {
		t.Errorf("disjoin --yes: %v\n%s", err, out)
	}
}
