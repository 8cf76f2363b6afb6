package buildyard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
)

const auditToken = "t0ken/of+root:1234567890"

// guarded are the settings of a service with authentication and a log of events.
func guarded() map[string]string {
	return map[string]string{
		"enable-auth": "true", "root-token": auditToken, "enable-api-keys": "true", "enable-event-logging": "true",
		"local-listen-addr": "127.0.0.1:0",
	}
}

// startOwnRegistry runs a registry alone.
func startOwnRegistry(t *testing.T, dir string, settings map[string]string) (s *RegistryService, stop func()) {
	t.Helper()
	fs := pflag.NewFlagSet("registry", pflag.ContinueOnError)
	cli.AddFlags(fs, config.RegistryTable)
	all := map[string]string{"listen-addr": "127.0.0.1:0", "base-path": dir, "log-level": "error"}
	maps.Copy(all, settings)
	for flag, value := range all {
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

// askAsRoot sends a request as root and returns status, request ID and body of the response.
func askAsRoot(t *testing.T, method, url, body string) (code int, request string, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("root", auditToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("X-Request-Id"), string(raw)
}

// done makes a request as root that must succeed, and returns its id and the body.
func done(t *testing.T, method, url, body string) (request string, answer api.Envelope[any]) {
	t.Helper()
	code, request, text := askAsRoot(t, method, url, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != http.StatusOK || answer.Status != "OK" {
		t.Fatalf("%s %s: %d %s", method, url, code, text)
	}
	return request, answer
}

// auditLine is what these tests look at of an event.
type auditLine struct {
	Name, User, Method, Service, Route, About, Request, Address, Outcome string
}

func auditLines(t *testing.T, lines []string) (list []auditLine) {
	t.Helper()
	for _, line := range lines {
		var l auditLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	return list
}

// awaitEvents waits for so many events in a file, and returns them.
func awaitEvents(t *testing.T, file string, n int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		raw, err := os.ReadFile(file)
		if lines := strings.Split(strings.TrimSpace(string(raw)), "\n"); err == nil && len(lines) == n+1 {
			return lines[1:]
		}
		if time.Now().After(end) {
			t.Fatalf("the log of events has %q, %v", raw, err)
		}
	}
}

// TestAuditReachesTheLogOfEvents: the event log has what was done and by which principal in both
// services of a process, nothing of callers that were rejected, and no secret.
func TestAuditReachesTheLogOfEvents(t *testing.T) {
	dir := t.TempDir()
	s, stop := startController(t, dir, true, guarded())
	stop = sync.OnceFunc(stop)
	defer stop()
	node, err := s.controller.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: s.JoinToken(), Name: "n", Host: "h", Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	made, answer := done(t, "POST", s.URL()+"/api/v1/apikey", `{"id":"ci","ttl":60,"groups":["dev"]}`)
	private, _ := answer.Body.(string)
	removed, _ := done(t, "DELETE", s.URL()+"/api/v1/node", `{"node_id":"`+node.NodeID+`"}`)
	for range 3 {
		if resp, err := http.Post(s.URL()+"/api/v1/vm", "", strings.NewReader("{}")); err != nil ||
			resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%v, %v", resp, err)
		} else {
			_ = resp.Body.Close()
		}
	}
	if code, _, text := askAsRoot(t, "DELETE", s.URL()+"/api/v1/apikey", `{"id":"nobody"}`); !strings.Contains(text,
		"FAIL") {
		t.Errorf("%d %s", code, text)
	}
	gone, _ := done(t, "DELETE", s.RegistryURL()+"/v1/apikey", `{"id":"ci"}`)
	file := filepath.Join(dir, "r", "files", "central-logs", "event", "event.log")
	lines := awaitEvents(t, file, 3)
	stop()
	want := map[string]auditLine{
		made:    {"Audit", "root", "root", "controller", "POST /api/v1/apikey", "ci", made, "127.0.0.1", "done"},
		removed: {Name: "DeleteNode", User: "root", Request: removed, Address: "127.0.0.1"},
		gone:    {"Audit", "root", "root", "registry", "DELETE /v1/apikey", "ci", gone, "127.0.0.1", "done"},
	}
	for _, l := range auditLines(t, lines) {
		if l != want[l.Request] {
			t.Errorf("%+v, want %+v", l, want[l.Request])
		}
	}
	for _, secret := range []string{private, auditToken, s.JoinToken(), node.Credential} {
		if secret == "" || strings.Contains(strings.Join(lines, "\n"), secret) {
			t.Errorf("a secret of %d characters is in the log of events", len(secret))
		}
	}
}

// TestAuditOfARegistryAlone: it writes what is done there into its own log of events.
func TestAuditOfARegistryAlone(t *testing.T) {
	dir := t.TempDir()
	s, stop := startOwnRegistry(t, dir, guarded())
	stop = sync.OnceFunc(stop)
	defer stop()
	made, _ := done(t, "POST", s.URL()+"/v1/apikey", `{"id":"ci","ttl":60,"groups":"dev"}`)
	stop() // writes what is left
	file := filepath.Join(dir, "files", "central-logs", "event", "event.log")
	got := auditLines(t, awaitEvents(t, file, 1))
	if want := (auditLine{
		"Audit", "root", "root", "registry", "POST /v1/apikey", "ci", made, "127.0.0.1",
		"done",
	}); got[0] != want {
		t.Errorf("%+v, want %+v", got[0], want)
	}
}

// TestWithoutEventsNothingIsWritten of the audit, and services work.
func TestWithoutEventsNothingIsWritten(t *testing.T) {
	settings, dir := guarded(), t.TempDir()
	delete(settings, "enable-event-logging")
	s, stop := startController(t, dir, true, settings)
	stop = sync.OnceFunc(stop)
	defer stop()
	done(t, "POST", s.URL()+"/api/v1/apikey", `{"id":"ci","ttl":60,"groups":["dev"]}`)
	if list, err := s.controller.Events.Recent(t.Context(), events.Query{Limit: 1}); err == nil {
		t.Errorf("there are events: %v", list)
	}
	stop()
	if _, err := os.Stat(filepath.Join(dir, "r", "files", "central-logs", "event")); err == nil {
		t.Error("there is a log of events")
	}
}

// TestGeneralOptionsAreChecked: OPTIONS * learns no more than everything else without a
// credential, on every port.
func TestGeneralOptionsAreChecked(t *testing.T) {
	settings := guarded()
	settings["queue-addr"] = "127.0.0.1:0"
	s, stop := startController(t, t.TempDir(), true, settings)
	defer stop()
	for name, url := range map[string]string{
		"controller": s.URL(), "registry": s.RegistryURL(), "nodes": s.nodePort.listener.url(),
	} {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		_ = c.Close()
		if want := `{"status":"FAIL","message":"Authentication Required"}` +
			"\n"; err != nil || resp.StatusCode != http.StatusUnauthorized || string(raw) != want {
			t.Errorf("%s: %d %q, %v", name, resp.StatusCode, raw, err)
		}
		if allow := resp.Header.Get("Allow"); allow != "" {
			t.Errorf("%s: Allow: %s", name, allow)
		}
	}
}

// TestPermissionsFollowTheLicense: a higher tier applies as soon as it is noticed, and what it has
// denied stays denied under a lower one, permanently once that was stored.
func TestPermissionsFollowTheLicense(t *testing.T) {
	failing := errors.New("the disk is full")
	var stored []auth.Grants
	grants := auth.NewGrantTable(auth.Grants{}, func(g auth.Grants) error {
		if failing == nil {
			stored = append(stored, g)
		}
		return failing
	})
	tier := farm.TierEnterprise
	a := &access{
		tier: tier, opts: accessOptions{Tier: func() farm.Tier { return tier }, Logger: slog.New(slog.DiscardHandler)},
	}
	a.authorizer = auth.NewAuthorizer(auth.Policy{Service: farm.ServiceController, Tier: tier, Authorization: true},
		grants)
	anna := auth.Identity{Name: "anna", Method: auth.ByKey}
	step := func(what string, next farm.Tier, fails, allowed bool) {
		t.Helper()
		tier = next
		if err := a.applyTier(t.Context()); (err != nil) != fails {
			t.Errorf("%s: %v", what, err)
		}
		if a.authorizer.Rules().Allows(anna, "list_vms") != allowed {
			t.Errorf("%s: allowed is %t", what, !allowed)
		}
	}
	step("at first", farm.TierEnterprise, false, true)
	step("a better licence", farm.TierEnterprisePlus, true, false)
	step("the store fails still", farm.TierEnterprisePlus, true, false)
	step("the licence has ended before it was stored", farm.TierBasic, true, false)
	failing = nil
	step("the store works", farm.TierBasic, false, false)
	step("nothing new", farm.TierBasic, false, false)
	if len(stored) != 1 || !stored[0].Enforced {
		t.Errorf("stored %+v", stored)
	}
	if err := grants.Change(t.Context(),
		func(auth.Grants) (auth.Grants, error) { return auth.Grants{}, nil }); err != nil {
		t.Fatal(err)
	}
	step("another replica, with other settings, has stored something else", farm.TierBasic, false, false)
	if len(stored) != 2 {
		t.Error("replicas overwrite each other for ever")
	}
	if again := auth.NewAuthorizer(auth.Policy{Service: farm.ServiceController, Tier: tier, Authorization: true},
		auth.NewGrantTable(stored[0], nil)); again.Rules().Allows(anna, "list_vms") {
		t.Error("a restart opens what was denied")
	}
}

// longGone is a key that was not renewed for more than a month.
var longGone = farm.APIKey{
	ID: "gone", Generation: "g", PublicKey: []byte{1}, Expires: time.Now().Add(-32 * 24 * time.Hour),
}

// awaitGone waits for the end of that key.
func awaitGone(t *testing.T, keys auth.KeyStore) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, there := keys.Get(longGone.ID); !there {
			return
		}
		if time.Now().After(end) {
			t.Fatal("nobody has removed a key that expired long ago")
		}
	}
}

// TestKeysAreLookedAfter: the replica that reconciles removes expired keys, and what the license
// means for permissions is stored.
func TestKeysAreLookedAfter(t *testing.T) {
	dir, settings := t.TempDir(), guarded()
	settings["enable-controller-authorization"] = "true"
	s, stop := startController(t, dir, true, settings)
	err := s.access.opts.Stores.Keys.Create(t.Context(), longGone)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	s, stop = startController(t, dir, true, settings)
	defer stop()
	awaitGone(t, s.access.opts.Stores.Keys)
	enforced := func() bool { return s.access.opts.Stores.Grants.Grants().Enforced }
	for end := time.Now().Add(time.Minute); !enforced(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("that permissions count is not stored")
		}
	}
	if s.registry.access.opts.Stores.Grants.Grants().Enforced {
		t.Error("permissions count at the registry, where nobody has switched them on")
	}
}

// TestKeysOfARegistryAreLookedAfter, of one that runs alone.
func TestKeysOfARegistryAreLookedAfter(t *testing.T) {
	dir := t.TempDir()
	s, stop := startOwnRegistry(t, dir, guarded())
	err := s.access.opts.Stores.Keys.Create(t.Context(), longGone)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	s, stop = startOwnRegistry(t, dir, guarded())
	defer stop()
	awaitGone(t, s.access.opts.Stores.Keys)
}

// TestStorageJobFindsTheLocalPort: an operator who manages a storage on its machine needs no
// credentials.
func TestStorageJobFindsTheLocalPort(t *testing.T) {
	dir := t.TempDir()
	s, stop := startOwnRegistry(t, dir, guarded())
	defer stop()
	_, err := registry.CheckStorage(t.Context(), dir, registry.CheckOptions{})
	busy, ok := errors.AsType[*registry.StorageInUseError](err)
	if !ok || busy.Address != s.localURL() || busy.Address == s.URL() {
		t.Errorf("%v, %+v", err, busy)
	}
}
