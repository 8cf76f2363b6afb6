package buildyard

import (
	"bytes"
	"encoding/base64"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// logText collects what a service logs.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestExposedServicesWarn: a service that other machines can use without authentication logs one
// warning at its start; others log none.
func TestExposedServicesWarn(t *testing.T) {
	const says = "authentication is off and other machines can connect"
	auth := map[string]string{"enable-auth": "true", "root-token": rootToken}
	everywhere := map[string]string{"listen-addr": "0.0.0.0:0", "registry-listen-address": "0.0.0.0:0"}
	for name, tc := range map[string]struct {
		settings []map[string]string
		exposed  int
	}{
		"loopback":      {nil, 0},
		"everywhere":    {[]map[string]string{everywhere}, 2},
		"registry only": {[]map[string]string{{"registry-listen-address": "0.0.0.0:0"}}, 1},
		"with auth":     {[]map[string]string{everywhere, auth}, 0},
	} {
		settings := map[string]string{"log-level": "warn"}
		for _, more := range tc.settings {
			maps.Copy(settings, more)
		}
		var log logText
		s, stop := runController(t, &ControllerService{Stderr: &log, WithRegistry: true}, t.TempDir(), settings)
		addresses := s.ExposedAddresses()
		a := asks{t: t}
		a.code("GET", s.URL()+"/livez")                        // its handlers are served, and its start was logged
		_, status := a.body("GET", s.URL()+"//api/v1/status/") // as some clients write paths
		_, page := a.body("GET", s.URL()+"/nodes")
		evil := a.code("POST", s.URL()+"/api/v1/vm", "Origin", "https://evil.test")
		stop()
		if alarm := strings.Contains(status, `"`+api.AlarmNoAuth+`"`); alarm != (tc.exposed > 0) {
			t.Errorf("%s: the status is %s", name, status)
		}
		if banner := strings.Contains(page, "Authentication is off"); banner != (tc.exposed > 0) {
			t.Errorf("%s: the portal's page has a banner: %t", name, banner)
		}
		if name != "with auth" && evil != http.StatusForbidden {
			t.Errorf("%s: a page of another site is answered %d", name, evil)
		}
		want := min(1, tc.exposed)
		if len(addresses) != tc.exposed || strings.Count(log.String(), says) != want {
			t.Errorf("%s: exposed at %v, logged %s", name, addresses, log.String())
		}
		for _, a := range addresses {
			if !strings.Contains(log.String(), a) {
				t.Errorf("%s: the warning does not name %s: %s", name, a, log.String())
			}
		}
	}
}

// TestAloneRegistryWarns is the same for a registry that runs alone.
func TestAloneRegistryWarns(t *testing.T) {
	for addr, want := range map[string]int{"127.0.0.1:0": 0, "0.0.0.0:0": 1} {
		fs := pflag.NewFlagSet("registry", pflag.ContinueOnError)
		cli.AddFlags(fs, config.RegistryTable)
		for flag, value := range map[string]string{
			"listen-addr": addr, "base-path": t.TempDir(), "local-listen-addr": "none",
		} {
			if err := fs.Set(flag, value); err != nil {
				t.Fatal(err)
			}
		}
		var log logText
		s := &RegistryService{Stderr: &log}
		if err := s.ParseFlags(config.Sources{Flags: fs}); err != nil {
			t.Fatal(err)
		}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := startBackground(t.Context(), s.Run)
		asks{t: t}.code("GET", s.URL()+"/livez")
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "authentication is off and other machines can connect"); got != want {
			t.Errorf("%s: %d warnings: %s", addr, got, log.String())
		}
	}
}

// TestControllerAsksItsRegistryWithoutAPort: with authentication, and no port for programs of this
// machine, what the controller passes on to the registry of its process still gets there, on behalf
// of its caller.
func TestControllerAsksItsRegistryWithoutAPort(t *testing.T) {
	s, stop := startController(t, t.TempDir(), true, withAccess(map[string]string{"local-listen-addr": "none"}))
	defer stop()
	if s.registry.localListener != nil {
		t.Error("the registry listens for programs of this machine")
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+rootToken))
	for name, tc := range map[string]struct {
		header []string
		code   int
		body   string
	}{
		"nobody": {nil, http.StatusUnauthorized, "Authentication Required"},
		"root":   {[]string{"Authorization", basic}, http.StatusOK, `"OK"`},
	} {
		if code, got := (asks{t: t}).body("GET", s.URL()+"/api/v1/log/services", tc.header...); code != tc.code ||
			!strings.Contains(got, tc.body) {
			t.Errorf("%s: %d %s", name, code, got)
		}
	}
}
