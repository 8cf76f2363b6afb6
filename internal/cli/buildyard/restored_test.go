package buildyard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
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

// program is a controller with its registry in a separate process, which can be killed.
type program struct {
	t        *testing.T
	dir      string
	url, reg string
	cmd      *exec.Cmd
	stderr   bytes.Buffer // of the last run; read after its end
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (p *program) start() {
	p.t.Helper()
	p.stderr.Reset()
	p.cmd = exec.CommandContext(context.Background(), "buildyard", "up", "--listen-addr",
		strings.TrimPrefix(p.url, "http://"),
		"--registry-listen-address", strings.TrimPrefix(p.reg, "http://"), "--data-dir", filepath.Join(p.dir, "c"),
		"--registry-base-path", filepath.Join(p.dir, "r"), "--log-level", "warn")
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.await("the controller to be ready", func() bool {
		resp, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	_ = p.cmd.Wait() // it was killed
}

func (p *program) await(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if so() {
			return
		}
	}
	p.kill()
	p.t.Fatalf("waited too long for %s; instances: %v\n%s", what, p.states(), p.stderr.String())
}

// run runs a command of the program to its end.
func (p *program) run(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "buildyard", args...)
	cmd.Env = append(os.Environ(), "SVC_CONTROLLER="+p.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (p *program) call(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	envelope := api.Envelope[json.RawMessage]{}
	if err := json.NewDecoder(resp.Body).Decode(&envelope); err != nil {
		return err
	}
	if envelope.Status != api.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, envelope.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(envelope.Body, out)
}

// states returns the states of the listed instances; nil when the call fails.
func (p *program) states() map[string]string {
	var list []api.InstanceItem
	if err := p.call(http.MethodGet, "/api/v1/vm", nil, &list); err != nil {
		return nil
	}
	states := map[string]string{}
	for _, item := range list {
		states[item.InstanceID] = item.VM.InstanceState
	}
	return states
}

// launch starts instances and waits until they run.
func (p *program) launch(template string, count int) (ids []string) {
	p.t.Helper()
	err := p.call(http.MethodPost, "/api/v1/vm", map[string]any{"vmid": template, "count": count}, &ids)
	if err != nil || len(ids) != count {
		p.t.Fatalf("started %v: %v", ids, err)
	}
	p.awaitStates("Started", ids)
	return ids
}

func (p *program) awaitStates(state string, ids []string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%d instances to be %q", len(ids), state), func() bool {
		states := p.states()
		return states != nil && !slices.ContainsFunc(ids, func(id string) bool { return states[id] != state })
	})
}

func (p *program) terminate(ids []string) {
	p.t.Helper()
	for _, id := range ids {
		if err := p.call(http.MethodDelete, "/api/v1/vm", map[string]any{"id": id}, nil); err != nil {
			p.t.Error(err)
		}
	}
}

// template pushes one that simulated nodes can start.
func (p *program) template() string {
	p.t.Helper()
	client, err := transfer.New(transfer.Options{BaseURL: p.reg})
	if err != nil {
		p.t.Fatal(err)
	}
	disk := filepath.Join(p.t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(disk, []byte("a disk"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	config, err := json.Marshal(api.TemplateConfig{
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1},
		HardDrives: []api.ConfigDrive{{File: "disk.qcow2", Format: "qcow2"}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	id := uuid.NewString()
	_, err = client.Push(p.t.Context(), transfer.PushOptions{
		Request: api.PushRequest{ID: id, Name: "small", Tag: "v1", Arch: "amd64", Config: config},
		Files:   []transfer.PushFile{{Name: "disk.qcow2", Path: disk, Kind: api.FileDisk, Format: "qcow2"}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// TestRestoreOfARunningCloud: instances run, a backup is taken, more are started and some
// terminated, the controller is killed and the backup restored. Instances in the backup that still
// run continue, those that ended since end, and those started since are not removed all together.
func TestRestoreOfARunningCloud(t *testing.T) {
	p := &program{t: t, dir: t.TempDir(), url: "http://" + freePort(t), reg: "http://" + freePort(t)}
	p.start()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	token, err := os.ReadFile(filepath.Join(p.dir, "c", "join-token"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	nodes := fleet.Options{
		NodeCount: 2, ControllerURL: p.url, JoinToken: strings.TrimSpace(string(token)), Capacity: 10,
		Logger: slog.New(slog.DiscardHandler),
	}
	go func() { ended <- fleet.Run(ctx, nodes) }()
	defer func() { cancel(); <-ended }()
	template := p.template()
	known := p.launch(template, 5)
	file := filepath.Join(t.TempDir(), "cloud.backup")
	p.run("backup", file)
	unknown := p.launch(template, 3)
	gone := known[:2]
	p.terminate(gone)
	p.awaitStates("Terminated", gone)

	p.kill()
	p.run("restore", file, "--force", "--data-dir", filepath.Join(p.dir, "c"))
	p.start()
	p.awaitStates("Started", known[2:])
	p.await("what was terminated since the backup to be found missing", func() bool {
		states := p.states()
		return states != nil && !slices.ContainsFunc(gone, func(id string) bool { return states[id] == "Started" })
	})
	for _, id := range unknown {
		if state, there := p.states()[id]; there {
			t.Errorf("an instance of after the backup is %q", state)
		}
	}
	// The nodes kept the orphaned VMs: 20 slots less those and what runs are left.
	p.launch(template, 20-len(unknown)-len(known[2:]))
	p.terminate(known[2:])
	p.await("the terminations", func() bool {
		states := p.states()
		return states != nil && !slices.ContainsFunc(known[2:], func(id string) bool { return states[id] == "Started" })
	})
	p.kill()
}
