package buildnode_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
)

// followed is a cloud whose controller changes its address, with one node that is a process.
type followed struct {
	t        *testing.T
	dir      string
	tls      map[string]string // settings of a controller with HTTPS
	client   *http.Client
	url      string // of the controller
	registry string // URL
	end      func() // of the controller
	program  string
	log      *os.File
	node     *exec.Cmd
	nodeEnds chan error
}

// TestNodeFollowsController: a node with a running instance follows its controller to HTTPS and to another address, and
// uses another URL when one fails. It keeps its ID and the instance, and refuses a controller of another cloud.
func TestNodeFollowsController(t *testing.T) {
	if testing.Short() {
		t.Skip("starts several controllers")
	}
	t.Parallel()
	f := newFollowed(t)
	port, other := freePort(t), freePort(t)
	plain, secure, moved := "http://127.0.0.1:"+port, "https://127.0.0.1:"+port, "https://127.0.0.1:"+other

	f.controller(plain, nil)
	pushTemplate(t, f.registry, f.dir)
	f.join("--token", f.token(), plain)
	f.run()
	f.awaitActive()
	node, vm := f.look().NodeID, f.start()

	// HTTPS: the address and the authority are announced before the switch.
	announce := map[string]string{"SVC_ADVERTISE_URLS": secure, "SVC_ADVERTISE_CA": filepath.Join(f.dir, "ca.pem")}
	f.controller(plain, announce)
	f.await("the announcement", func() bool { return slices.Contains(f.identity().Cloud.AnnouncedURLs, secure) })
	f.controller(secure, announce)
	f.awaitActive()
	f.wantSame(node, vm)
	if got := f.identity().ControllerURL; got != secure {
		t.Errorf("the node uses %q, want %q", got, secure)
	}

	// Another address that was not announced: join there, without a token.
	f.kill()
	f.controller(moved, nil)
	f.join("", "", moved)
	f.run()
	f.awaitActive()
	f.wantSame(node, vm)

	// Several URLs: the second one is used when the first one fails.
	f.kill()
	f.join("", "", moved+","+secure)
	f.run()
	f.awaitActive()
	f.controller(secure, nil)
	f.awaitActive()
	f.wantSame(node, vm)

	// A restored cloud is the same cloud; another one is refused.
	f.kill()
	foreign := filepath.Join(f.dir, "foreign")
	s, end, err := openCloud(foreign, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, args := range [][]string{{s.URL()}, {s.URL(), "--token", s.JoinToken()}} {
		out, err := f.joinOutput(args...)
		if err == nil || !strings.Contains(out, "does not know this node") ||
			!strings.Contains(out, "buildnode disjoin") {
			t.Errorf("join %v of another cloud: %v, %s", args, err, out)
		}
	}
	if got := f.identity(); got.NodeID != node || got.ControllerURL != secure {
		t.Errorf("after the refusal: %s at %s", got.NodeID, got.ControllerURL)
	}
}

func newFollowed(t *testing.T) *followed {
	t.Helper()
	dir := t.TempDir()
	f := &followed{t: t, dir: dir, program: filepath.Join(dir, "buildnode")}
	ca := certstest.New(t, "the authority of the cloud")
	server := ca.Server(t, "127.0.0.1")
	for name, text := range map[string][]byte{
		"ca.pem": ca.CertPEM(), "server.pem": server.CertPEM(), "server-key.pem": server.KeyPEM(t),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.tls = map[string]string{
		"SVC_USE_HTTPS": "true", "SVC_SERVER_CERT": filepath.Join(dir, "server.pem"),
		"SVC_SERVER_KEY": filepath.Join(dir, "server-key.pem"),
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CertPEM())
	f.client = &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		},
	}
	var err error
	if f.log, err = os.Create(filepath.Join(dir, "node.log")); err != nil {
		t.Fatal(err)
	}
	(&updated{t: t}).copyBinary(f.program, "")
	t.Cleanup(f.close)
	return f
}

func (f *followed) close() {
	if f.node != nil {
		_ = f.node.Process.Kill()
		<-f.nodeEnds
	}
	if f.end != nil {
		f.end()
	}
	_ = f.log.Close()
	if f.t.Failed() {
		raw, _ := os.ReadFile(f.log.Name())
		f.t.Logf("the node's log:\n%s", raw)
	}
}

// freePort returns a port that no program listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// controller starts the controller at a URL, in place of the present one.
func (f *followed) controller(url string, more map[string]string) {
	f.t.Helper()
	if f.end != nil {
		f.end()
		f.end = nil
	}
	address, secure := strings.CutPrefix(url, "https://")
	settings := map[string]string{"SVC_LISTEN_ADDR": strings.TrimPrefix(address, "http://")}
	if secure {
		maps.Copy(settings, f.tls)
	}
	maps.Copy(settings, more)
	s, end, err := openCloud(f.dir, settings)
	if err != nil {
		f.t.Fatal(err)
	}
	f.url, f.registry, f.end = url, s.RegistryURL(), end
}

// token returns the permanent join token.
func (f *followed) token() string {
	f.t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.dir, ".controller", "join-token"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func (f *followed) joinOutput(args ...string) (string, error) {
	args = append([]string{"join", "--data-dir", filepath.Join(f.dir, "node"), "--reserve-space", "1GB"}, args...)
	out, err := exec.CommandContext(f.t.Context(), f.program, args...).CombinedOutput()
	return string(out), err
}

// join joins with a credential, or without one, at URLs.
func (f *followed) join(option, value, urls string) {
	f.t.Helper()
	args := []string{urls, "--ca-cert", filepath.Join(f.dir, "ca.pem")}
	if strings.HasPrefix(urls, "http://") {
		args = args[:1] // it learns the authority from the announcement
	}
	if option != "" {
		args = append(args, option, value)
	}
	if out, err := f.joinOutput(args...); err != nil || !strings.Contains(out, "joined as") {
		f.t.Fatalf("join: %v\n%s", err, out)
	}
}

// run starts the agent.
func (f *followed) run() {
	f.t.Helper()
	node := exec.CommandContext(context.WithoutCancel(f.t.Context()), f.program, "run", "--driver", "sim", "--data-dir",
		filepath.Join(f.dir, "node"))
	node.Stdout, node.Stderr = f.log, f.log
	if err := node.Start(); err != nil {
		f.t.Fatal(err)
	}
	ends := make(chan error, 1)
	go func() { ends <- node.Wait() }()
	f.node, f.nodeEnds = node, ends
}

func (f *followed) kill() {
	f.t.Helper()
	if err := f.node.Process.Kill(); err != nil {
		f.t.Fatal(err)
	}
	<-f.nodeEnds
	f.node = nil
}

func (f *followed) identity() datadir.Identity {
	f.t.Helper()
	at, err := datadir.At(filepath.Join(f.dir, "node"))
	if err != nil {
		f.t.Fatal(err)
	}
	id, err := at.Identity()
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *followed) await(what string, so func() bool) {
	f.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if so() {
			return
		}
	}
	f.t.Fatalf("waited too long for %s", what)
}

// awaitActive waits until the controller has heard the node since its own start.
func (f *followed) awaitActive() {
	f.t.Helper()
	since := time.Now()
	f.await("the node", func() bool {
		n := f.look()
		return n.State == "Active" && n.LastUpdated.After(since)
	})
}

// call calls the controller.
func (f *followed) call(method, path, body string, out any) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var e api.Envelope[json.RawMessage]
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Status != api.StatusOK {
		f.t.Fatalf("%s %s: %v %s", method, path, err, e.Message)
	}
	if err := json.Unmarshal(e.Body, out); err != nil {
		f.t.Fatal(err)
	}
}

func (f *followed) look() api.Node {
	f.t.Helper()
	var list []api.Node
	f.call("GET", "/api/v1/node", "", &list)
	if len(list) != 1 {
		f.t.Fatalf("%d nodes", len(list))
	}
	return list[0]
}

// start starts an instance and waits until it runs.
func (f *followed) start() (id string) {
	f.t.Helper()
	var ids []string
	f.call("POST", "/api/v1/vm", fmt.Sprintf(`{"vmid":%q}`, findTemplate), &ids)
	f.await("the instance", func() bool { return f.instance(ids[0]).InstanceState == "Started" })
	return ids[0]
}

func (f *followed) instance(id string) (i api.Instance) {
	f.t.Helper()
	f.call("GET", "/api/v1/vm?id="+id, "", &i)
	return i
}

// wantSame checks that the node has kept its ID and the instance.
func (f *followed) wantSame(node, vm string) {
	f.t.Helper()
	if got := f.look().NodeID; got != node {
		f.t.Errorf("the node is %s, want %s", got, node)
	}
	if i := f.instance(vm); i.InstanceState != "Started" || i.VMInfo == nil || i.VMInfo.Status != "running" {
		f.t.Errorf("the instance is %s: %+v", i.InstanceState, i.VMInfo)
	}
}
