package buildyard

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/transfer"
)

const rootToken = "a root token: +/%\""

// withAccess are settings of a cloud that knows its callers.
func withAccess(more map[string]string) map[string]string {
	all := map[string]string{"enable-auth": "true", "root-token": rootToken, "enable-api-keys": "true"}
	maps.Copy(all, more)
	return all
}

func TestSettingsOfAccess(t *testing.T) {
	const on = "--enable-auth --root-token 0123456789 "
	for args, want := range map[string]string{
		"up --enable-auth":                        "is on without a credential: set SVC_ROOT_TOKEN",
		"up --enable-auth --root-token 012345678": "has 9 characters: want at least 10",
		"up --enable-api-keys":                    "SVC_ENABLE_API_KEYS requires SVC_ENABLE_AUTH=true",
		"up --enable-controller-authorization": "SVC_ENABLE_CONTROLLER_AUTHORIZATION requires " +
			"SVC_ENABLE_AUTH=true",
		"up --enable-registry-authorization": "SVC_ENABLE_REGISTRY_AUTHORIZATION requires " +
			"SVC_ENABLE_AUTH=true",
		"registry --enable-authorization": "SVC_ENABLE_AUTHORIZATION requires SVC_ENABLE_AUTH=true",
		"up --ca-cert x":                  "SVC_CA_CERT requires SVC_ENABLE_AUTH=true",
		"up " + on + "--ca-cert x":        "SVC_CA_CERT requires SVC_USE_HTTPS=true",
		"up " + on + "--crl x":            "SVC_CRL requires SVC_CA_CERT",
		"up " + on +
			"--enable-resource-management": "requires authorization: SVC_ENABLE_CONTROLLER_AUTHORIZATION=true",
		"registry " + on + "--enable-resource-management": "requires authorization: SVC_ENABLE_AUTHORIZATION=true",
		"up " + on +
			"--oidc-provider-url https://idp.test": "SVC_OIDC_PROVIDER_URL and SVC_OIDC_CLIENT_ID must be set together",
		"up --enable-auth --oidc-provider-url https://idp.test --oidc-client-id " +
			"x --enable-api-keys": "SVC_ENABLE_API_KEYS requires SVC_ROOT_TOKEN",
		"up --local-listen-addr :x": "SVC_LOCAL_LISTEN_ADDR",
		"up --local-listen-addr 192.0.2.1:8085": "a loopback address " +
			"such as",
		"up --use-https --listen-addr 127.0.0.1:0": "SVC_USE_HTTPS requires " +
			"SVC_SERVER_CERT and SVC_SERVER_KEY",
		"up --use-https --server-cert /none --server-key /none --listen-addr 127.0.0.1:0": "/none",
		"up --server-cert x --server-key x": "SVC_SERVER_CERT " +
			"requires SVC_USE_HTTPS=true",
		"registry --server-key x": "SVC_SERVER_KEY " +
			"requires SVC_USE_HTTPS=true",
		"registry --min-tls-version 1.1": "SVC_MIN_TLS_VERSION",
		"up --use-queue-tls": "SVC_USE_QUEUE_TLS " +
			"requires SVC_QUEUE_ADDR",
		"up --queue-addr 127.0.0.1:0 --queue-ca-cert x": "SVC_QUEUE_CA_CERT " +
			"requires SVC_USE_QUEUE_TLS=true",
		"up --queue-addr 127.0.0.1:0 --queue-server-cert x": "SVC_QUEUE_SERVER_CERT " +
			"requires SVC_USE_QUEUE_TLS=true",
		"up --queue-addr 127.0.0.1:0 --queue-server-key x": "SVC_QUEUE_SERVER_KEY " +
			"requires SVC_USE_QUEUE_TLS=true",
		"up --queue-addr 127.0.0.1:0 --use-queue-tls --queue-crl x": "SVC_QUEUE_CRL requires " +
			"SVC_QUEUE_CA_CERT",
		"controller --registry http://127.0.0.1:1 --listen-addr 127.0.0.1:0 --api-key-id ci": "SVC_API_KEY_ID and " +
			"SVC_API_KEY_STRING must be set together",
	} {
		var out, errs bytes.Buffer
		args := strings.Fields(args + " --data-dir " + t.TempDir())
		if args[0] == "registry" {
			args = append(args[:len(args)-2], "--base-path", t.TempDir())
		}
		code := Main(t.Context(), args, Streams{Out: &out, Err: &errs})
		if text := errs.String(); code == 0 || !strings.Contains(text, want) ||
			strings.Count(strings.TrimSpace(text), "\n") > 1 || strings.Contains(text, "012345678") {
			t.Errorf("%q: exit %d, %q; want %q", args, code, text, want)
		}
	}
}

// asks sends requests with the given credentials.
type asks struct {
	t    *testing.T
	http *http.Client
}

func (a asks) code(method, url string, header ...string) int {
	a.t.Helper()
	code, _ := a.body(method, url, header...)
	return code
}

func (a asks) body(method, url string, header ...string) (int, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, url, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if a.http == nil {
		a.http = http.DefaultClient
	}
	resp, err := a.http.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// bearing returns the header of a session of a key that is made for it.
func bearing(t *testing.T, c *client.Controller, id string, groups ...string) string {
	t.Helper()
	private, err := c.CreateKey(t.Context(), api.NewKey{ID: id, TTL: 3600, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	key, err := client.ParseAPIKey(id, private.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	as, err := client.NewController(c.Address(), client.Options{Credentials: key})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", c.Address()+"/", nil)
	if err := as.Authorize(r); err != nil {
		t.Fatal(err)
	}
	return r.Header.Get("Authorization")
}

func asRoot(t *testing.T, address string) *client.Controller {
	t.Helper()
	c, err := client.NewController(address, client.Options{Credentials: client.RootToken(rootToken)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAccess: one cloud in one process, with a separate node interface, is called with every kind
// of credential.
func TestAccess(t *testing.T) {
	s, stop := startController(t, t.TempDir(), true, withAccess(map[string]string{
		"enable-controller-authorization": "true", "enable-registry-authorization": "true", "queue-addr": "127.0.0.1:0",
		"allow-cors": "true",
	}))
	defer stop()
	root := asRoot(t, s.URL())
	key := bearing(t, root, "ci", "dev")
	if err := root.SetPermissionGroup(t.Context(),
		api.PermissionGroup{Name: "dev", Permissions: []string{"list_vms", "view_logs"}}); err != nil {
		t.Fatal(err)
	}
	basic := "Basic cm9vdDphIHJvb3QgdG9rZW46ICsvJSI="
	ctl, reg, local, nodes := s.URL(), s.registry.URL(), s.registry.localURL(), s.nodePort.listener.url()
	a := asks{t: t}
	for _, c := range []struct {
		url  string
		as   string
		want int
	}{
		{ctl + "/livez", "", 200},
		{ctl + "/config/v1/auth", "", 200},
		{ctl + "/api/v1/vm", "", 401},
		{ctl + "/api/v1/vm", basic, 200},
		{ctl + "/api/v1/vm", key, 200},
		{ctl + "/api/v1/node", key, 403},
		{ctl + "/api/v1/apikey", key, 403},
		{reg + "/livez", "", 200},
		{reg + "/registry/v2/vm", "", 401},
		{reg + "/registry/v2/vm", basic, 200},
		{reg + "/registry/v2/vm", key, 403},
		{reg + "/v1/apikey", basic, 200},
		{local + "/registry/v2/vm", "", 200},
		{local + "/v1/apikey", "", 403},
		{nodes + "/livez", "", 200},
		{nodes + "/api/v1/vm", "", 401},
		{nodes + "/api/v1/vm", basic, 404},
		{nodes + "/config/v1/auth", basic, 404},
		{nodes + "/login", basic, 404},
		{nodes + "/tap/v1/hand", "", 401}, // GET; the handshake itself is for machines that join with a key
	} {
		var header []string
		if c.as != "" {
			header = []string{"Authorization", c.as}
		}
		if got, body := a.body("GET", c.url, header...); got != c.want {
			t.Errorf("%s as %.8s: %d %s", c.url, c.as, got, body)
		}
	}
	if code, body := a.body("GET", ctl+"/api/v1/vm"); code != 401 ||
		body != `{"status":"FAIL","message":"Authentication Required"}`+"\n" {
		t.Errorf("%d %q", code, body)
	}
	// What the controller asks the registry for a user, the user must be allowed there.
	logs := ctl + "/api/v1/log/services"
	if code, body := a.body("GET", logs, "Authorization", key); code != 403 || !strings.Contains(body, "stream_log") {
		t.Errorf("%d %s", code, body)
	}
	shelf, err := client.NewRegistry(reg, client.Options{Credentials: client.RootToken(rootToken)})
	if err != nil {
		t.Fatal(err)
	}
	if err := shelf.SetPermissionGroup(t.Context(),
		api.PermissionGroup{Name: "dev", Permissions: []string{"stream_log"}}); err != nil {
		t.Fatal(err)
	}
	if code, body := a.body("GET", logs, "Authorization", key); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if code := a.code("GET", local+"/registry/v2/vm", rest.UserHeader, "ci"); code != 403 {
		t.Errorf("for a user without permission: %d", code)
	}
	if code := a.code("OPTIONS", ctl+"/api/v1/vm", "Origin", "https://ci.test", "Access-Control-Request-Method",
		"GET"); code != 204 {
		t.Errorf("a preflight is answered %d", code)
	}
	if code := starRequest(t, strings.TrimPrefix(ctl, "http://")); code != "401" {
		t.Errorf("OPTIONS * answers %s", code)
	}
	// Guesses of the root token count together, wherever they are made.
	wrong, last := "Basic "+base64.StdEncoding.EncodeToString([]byte("root:a guess")), 0
	for range 100 {
		if last = a.code("GET", ctl+"/api/v1/vm", "Authorization", wrong); last == 429 {
			break
		}
	}
	if code := a.code("GET", nodes+"/livez"); last != 429 || code != 200 {
		t.Errorf("guesses are answered %d, and nodes' livez %d", last, code)
	}
	if code := a.code("GET", nodes+"/api/v1/vm", "Authorization", wrong); code != 429 {
		t.Errorf("one more guess at the node interface is answered %d", code)
	}
}

// starRequest sends OPTIONS *, which net/http would answer automatically.
func starRequest(t *testing.T, address string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	raw, err := io.ReadAll(conn)
	if err != nil || len(raw) < 12 {
		t.Fatalf("%q %v", raw, err)
	}
	return string(raw[9:12])
}

// startRegistry runs a registry alone.
func startRegistry(t testing.TB, dir string, more map[string]string) (s *RegistryService, stop func()) {
	t.Helper()
	fs := pflag.NewFlagSet("registry", pflag.ContinueOnError)
	cli.AddFlags(fs, config.RegistryTable)
	settings := map[string]string{
		"listen-addr": "127.0.0.1:0", "local-listen-addr": "127.0.0.1:0", "base-path": dir, "log-level": "error",
	}
	maps.Copy(settings, more)
	for flag, value := range settings {
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	s = &RegistryService{Stderr: io.Discard}
	if err := s.ParseFlags(config.Sources{Flags: fs}); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// TestRegistryElsewhere: controller and registry in two programs, each with authentication or
// without, and a node that pulls.
func TestRegistryElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		registry, controller map[string]string
		key                  bool // the controller is known by a key
		reached              bool
		starts               bool // a node can pull
	}{
		"both, one token": {withAccess(nil), withAccess(nil), false, true, false},
		"both, a key":     {withAccess(nil), withAccess(nil), true, true, false},
		"both, other tokens": {
			withAccess(nil), withAccess(map[string]string{"root-token": "another root token"}),
			false, false, false,
		},
		"registry only":   {withAccess(nil), map[string]string{"root-token": rootToken}, false, true, false},
		"controller only": {nil, withAccess(nil), false, true, false},
		"permissions": {
			withAccess(map[string]string{"enable-authorization": "true"}), withAccess(nil), false,
			true, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, stopRegistry := startRegistry(t, filepath.Join(dir, "r"), c.registry)
			defer stopRegistry()
			settings := map[string]string{"registry": r.URL(), "node-active-timeout": "30s"}
			maps.Copy(settings, c.controller)
			if c.key {
				shelf, err := client.NewRegistry(r.URL(), client.Options{Credentials: client.RootToken(rootToken)})
				if err != nil {
					t.Fatal(err)
				}
				private, err := shelf.CreateKey(t.Context(),
					api.NewKey{ID: "controller", TTL: 3600, Groups: []string{}})
				if err != nil {
					t.Fatal(err)
				}
				settings["api-key-id"], settings["api-key-string"] = "controller", private.Reveal()
			}
			s, stop := startController(t, dir, false, settings)
			defer stop()
			token := settings["root-token"]
			root, err := client.NewController(s.URL(), client.Options{Credentials: client.RootToken(token)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := root.Templates(t.Context(), client.ListOptions{}); (err == nil) != c.reached {
				t.Fatalf("templates: %v", err)
			} else if err != nil &&
				!strings.Contains(err.Error(), "rejected the controller's credentials: set the same SVC_ROOT_TOKEN") {
				t.Error(err)
			} else if err != nil {
				basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+token))
				if code, body := (asks{t: t}).body("GET", s.URL()+"/api/v1/log/services", "Authorization",
					basic); code != 503 || !strings.Contains(body, "rejected the controller's credentials") {
					t.Errorf("logs: %d %s", code, body)
				}
			}
			if c.starts {
				startsWithAccess(t, s, root, r)
			}
		})
	}
}

// startsWithAccess runs an instance on a simulated node that pulls from the registry.
func startsWithAccess(t *testing.T, s *ControllerService, root *client.Controller, r *RegistryService) {
	t.Helper()
	push, err := transfer.New(transfer.Options{BaseURL: r.localURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer push.Close()
	y := &yard{t: t, registry: push}
	template := y.push("", "v1", y.disk(1, 1)).ID
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- fleet.Run(ctx, fleet.Options{
			NodeCount: 1, ControllerURL: s.URL(), JoinToken: s.JoinToken(), NamePrefix: "n", Capacity: 2,
			RealPulls: true,
			DataDir:   t.TempDir(),
			Logger:    slog.New(slog.DiscardHandler), Version: "test",
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	ids, err := root.Start(t.Context(), client.StartRequest{TemplateID: template})
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		inst, err := root.Instance(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		if last = fmt.Sprint(inst.InstanceState, " ", inst.Message); inst.InstanceState == "Started" {
			return
		}
	}
	t.Errorf("the instance is %s", last)
}

// TestTLS: both services by https, callers by certificate, and the controller at its registry.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := certstest.New(t, "CA")
	authority := filepath.Join(dir, "ca.pem")
	certstest.Write(t, authority, ca.CertPEM())
	cert, key := ca.Server(t, "127.0.0.1").Files(t, t.TempDir())
	secure := withAccess(map[string]string{
		"use-https": "true", "server-cert": cert, "server-key": key, "ca-cert": authority,
	})
	r, stopRegistry := startRegistry(t, filepath.Join(dir, "r"), secure)
	defer stopRegistry()
	settings := maps.Clone(secure)
	maps.Copy(settings, map[string]string{
		"registry": r.URL(), "registry-ca": authority, "queue-addr": "127.0.0.1:0",
		"use-queue-tls": "true", "queue-ca-cert": authority,
	})
	s, stop := startController(t, dir, false, settings)
	defer stop()
	with := func(pairs ...tls.Certificate) asks {
		return asks{t, &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				RootCAs: certstest.Pool(ca), Certificates: pairs,
				MinVersion: tls.VersionTLS12,
			},
		}}}
	}
	user := with(ca.Client(t, "anna", "dev").TLS())
	for _, address := range []string{s.URL() + "/api/v1/vm", s.URL() + "/api/v1/registry/vm", s.URL() +
		"/api/v1/log/services", r.URL() + "/registry/v2/vm", s.nodePort.listener.url() + "/pkg/manifest"} {
		if !strings.HasPrefix(address, "https://") {
			t.Errorf("%s is not secure", address)
		}
		if code, body := user.body("GET", address); code != 200 {
			t.Errorf("%s: %d %s", address, code, body)
		}
		if code := with().code("GET", address); code != 401 {
			t.Errorf("%s without a certificate: %d", address, code)
		}
	}
}
