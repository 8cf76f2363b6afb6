package buildnode_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/release"
	"github.com/buildyard/buildyard/internal/transfer"
)

// A copy of this test's binary is another version of the program when a trailer follows its end:
// marker, version, commit and its misbehavior, one word each.
const (
	marker     = "\nbuildnode-version "
	maxTrailer = 200
	ends       = "ends" // run ends immediately
	works      = "works"
)

// beVersion makes this process the version in the trailer of its file.
func beVersion() {
	file, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	raw := make([]byte, maxTrailer)
	st, err := f.Stat()
	if err != nil {
		return
	}
	n, _ := f.ReadAt(raw, st.Size()-maxTrailer)
	at := bytes.LastIndex(raw[:n], []byte(marker))
	if at < 0 {
		return
	}
	words := strings.Fields(string(raw[at+len(marker) : n]))
	obs.Version, obs.Commit = words[0], words[1]
	if words[2] == ends && len(os.Args) > 1 && os.Args[1] == "run" {
		os.Exit(1)
	}
}

// updated is a cloud with one real node, whose VMs are simulated.
type updated struct {
	t      *testing.T
	dir    string
	base   string // program
	url    string
	node   *exec.Cmd
	ended  chan error
	secret string // file
	log    *os.File
}

// TestAgentIsUpdated: a node installs the version in the controller's directory while an instance
// runs, keeps it after a kill, and is not harmed by a version that does not work.
func TestAgentIsUpdated(t *testing.T) {
	if testing.Short() {
		t.Skip("packs this binary several times")
	}
	t.Parallel()
	u := newUpdated(t)
	u.run()
	vm := u.start()
	pid := u.node.Process.Pid

	u.publish("0.2.0", "new", works)
	u.await("the new version", func() bool { return u.look().AgentVersion == "0.2.0-new" })
	u.await("that it is Active", func() bool { n := u.look(); return n.State == "Active" && n.Update == nil })
	if u.node.Process.Pid != pid || u.node.Process.Signal(nilSignal) != nil {
		t.Error("it is another process")
	}
	if i := u.instance(vm); i.InstanceState != "Started" || i.VMInfo == nil || i.VMInfo.Status != "running" {
		t.Errorf("the instance is %q: %+v", i.InstanceState, i.VMInfo)
	}

	u.kill()
	u.run() // the base, which is replaced by the version that works
	u.await("the version after a kill",
		func() bool { n := u.look(); return n.AgentVersion == "0.2.0-new" && n.State == "Active" })

	u.publish("0.3.0", "bad", ends)
	for range 3 { // as a supervisor restarts it
		select {
		case <-u.ended:
		case <-time.After(time.Minute):
			t.Fatalf("the bad version did not begin: %+v", u.look().Update)
		}
		u.run()
	}
	u.await("that it is known to be bad",
		func() bool { n := u.look(); return n.Update != nil && n.Update.Failure != "" })
	n := u.look()
	if n.AgentVersion != "0.2.0-new" || !strings.Contains(n.StateReason, "begun 3 times") || n.Update.Tries != 1 {
		t.Errorf("%s, %s, %+v", n.AgentVersion, n.StateReason, n.Update)
	}
	if i := u.instance(vm); i.InstanceState != "Started" {
		t.Errorf("the instance is %q: %s", i.InstanceState, i.Message)
	}
}

func newUpdated(t *testing.T) *updated {
	t.Helper()
	dir := t.TempDir()
	u := &updated{t: t, dir: dir, base: filepath.Join(dir, "base", "buildnode"), secret: filepath.Join(dir,
		"packages.key")}
	var err error
	if u.log, err = os.Create(filepath.Join(dir, "node.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = u.log.Close()
		if t.Failed() {
			raw, _ := os.ReadFile(u.log.Name())
			t.Logf("the node's log:\n%s", raw)
		}
	})
	u.copyBinary(u.base, "")
	if err := os.Mkdir(filepath.Join(dir, "pkg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := license.GenerateKeys(u.secret, filepath.Join(dir, "pkg", release.KeysFile)); err != nil {
		t.Fatal(err)
	}
	token := u.controller()
	join := exec.CommandContext(t.Context(), u.base, "join", u.url, "--token", token, "--data-dir",
		filepath.Join(dir, "node"), "--name", "one", "--reserve-space", "1GB")
	if out, err := join.CombinedOutput(); err != nil {
		t.Fatalf("join: %v\n%s", err, out)
	}
	return u
}

// controller starts the services and returns the join token.
func (u *updated) controller() (token string) {
	u.t.Helper()
	settings := map[string]string{
		"SVC_LISTEN_ADDR": "127.0.0.1:0", "SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:0", "SVC_LOG_LEVEL": "error",
		"SVC_DATA_DIR": filepath.Join(u.dir, "controller"), "SVC_REGISTRY_BASE_PATH": filepath.Join(u.dir, "registry"),
		"SVC_PACKAGES_DIR": filepath.Join(u.dir, "pkg"),
	}
	s := &buildyard.ControllerService{Stderr: io.Discard, WithRegistry: true}
	err := s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := settings[key]
		return v, ok
	}})
	if err != nil {
		u.t.Fatal(err)
	}
	if err := s.Open(u.t.Context()); err != nil {
		u.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	u.t.Cleanup(func() {
		cancel()
		<-done
		_ = s.Close()
	})
	u.url = s.URL()
	pushTemplate(u.t, s.RegistryURL(), u.dir)
	return s.JoinToken()
}

// pushTemplate pushes the template findTemplate with a disk that is made in a directory.
func pushTemplate(t *testing.T, url, dir string) {
	t.Helper()
	registry, err := transfer.New(transfer.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	disk := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = registry.Push(t.Context(), transfer.PushOptions{
		Request: api.PushRequest{
			ID: findTemplate, Name: "base", Tag: "v1", Arch: "amd64",
			Config: json.RawMessage(
				`{"ram":"1G","cpu":{"cores":1},"hard_drives":[{"file":"disk.img","format":"raw"}]}`),
		},
		Files: []transfer.PushFile{
			{Name: "disk.img", Disk: &diskfile.Disk{Path: disk, Format: "raw"}, Kind: api.FileDisk},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// here is the platform of this test; nilSignal checks whether a process exists.
var (
	here      = release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	nilSignal = syscall.Signal(0)
)

const findTemplate = "11111111-2222-4333-8444-555555555555"

// copyBinary copies this test's program and appends a trailer.
func (u *updated) copyBinary(to, trailer string) {
	u.t.Helper()
	self, err := os.Executable()
	if err != nil {
		u.t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		u.t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755),
		os.WriteFile(to, append(raw, trailer...), 0o755)); err != nil {
		u.t.Fatal(err)
	}
}

// publish packs and signs a version for this platform.
func (u *updated) publish(version, commit, does string) {
	u.t.Helper()
	program := filepath.Join(u.dir, "next", "buildnode")
	u.copyBinary(program, marker+version+" "+commit+" "+does+"\n")
	raw, err := os.ReadFile(program)
	if err != nil {
		u.t.Fatal(err)
	}
	var packed bytes.Buffer
	zipped, _ := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	w := tar.NewWriter(zipped)
	err = w.WriteHeader(&tar.Header{Name: "buildnode", Mode: 0o755, Size: int64(len(raw)), Typeflag: tar.TypeReg})
	_, werr := w.Write(raw)
	if err := errors.Join(err, werr, w.Close(), zipped.Close()); err != nil {
		u.t.Fatal(err)
	}
	dir := filepath.Join(u.dir, "pkg")
	if err := os.WriteFile(filepath.Join(dir, here.PackageFile()), packed.Bytes(), 0o644); err != nil {
		u.t.Fatal(err)
	}
	key, err := license.ReadSecret(u.secret)
	if err != nil {
		u.t.Fatal(err)
	}
	if _, err := release.SignDir(key, dir, version+"-"+commit, ""); err != nil {
		u.t.Fatal(err)
	}
}

// run starts the node's agent: the base program.
func (u *updated) run() {
	u.t.Helper()
	u.node = exec.CommandContext(context.WithoutCancel(u.t.Context()), u.base, "run", "--driver", "sim", "--data-dir",
		filepath.Join(u.dir, "node"))
	u.node.Stdout, u.node.Stderr = u.log, u.log
	if err := u.node.Start(); err != nil {
		u.t.Fatal(err)
	}
	node, ended := u.node, make(chan error, 1)
	go func() { ended <- node.Wait() }()
	u.ended = ended
	u.t.Cleanup(func() {
		_ = node.Process.Kill()
	})
}

// kill kills the agent.
func (u *updated) kill() {
	u.t.Helper()
	if err := u.node.Process.Kill(); err != nil {
		u.t.Fatal(err)
	}
	<-u.ended
}

func (u *updated) await(what string, so func() bool) {
	u.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if so() {
			return
		}
	}
	u.t.Fatalf("waited too long for %s: %+v", what, u.look())
}

// call calls the controller.
func (u *updated) call(method, path, body string, out any) {
	u.t.Helper()
	req, err := http.NewRequestWithContext(u.t.Context(), method, u.url+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var e struct {
		Status  string          `json:"status"`
		Message string          `json:"message"`
		Body    json.RawMessage `json:"body"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Status != "OK" {
		u.t.Fatalf("%s %s: %v %s", method, path, err, e.Message)
	}
	if err := json.Unmarshal(e.Body, out); err != nil {
		u.t.Fatal(err)
	}
}

func (u *updated) look() api.Node {
	u.t.Helper()
	var list []api.Node
	u.call("GET", "/api/v1/node", "", &list)
	if len(list) != 1 {
		u.t.Fatalf("%d nodes", len(list))
	}
	return list[0]
}

func (u *updated) instance(id string) (i api.Instance) {
	u.t.Helper()
	u.call("GET", "/api/v1/vm?id="+id, "", &i)
	return i
}

// start starts an instance and waits until it runs.
func (u *updated) start() string {
	u.t.Helper()
	var ids []string
	u.call("POST", "/api/v1/vm", fmt.Sprintf(`{"vmid":%q}`, findTemplate), &ids)
	u.await("the instance", func() bool { return u.instance(ids[0]).InstanceState == "Started" })
	return ids[0]
}
