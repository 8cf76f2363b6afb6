package buildyard

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// TestEventsReachFileAndEndpoint has a cloud whose endpoint fails at first, and which is restarted
// concurrently: the file and the endpoint get each event.
func TestEventsReachFileAndEndpoint(t *testing.T) {
	var mu sync.Mutex
	var got []string
	away := true
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if user, password, _ := r.BasicAuth(); user != "me" || password != "sesame" {
			t.Errorf("posted as %s %s", user, password)
		}
		got = append(got, string(raw))
	}))
	defer endpoint.Close()
	dir := t.TempDir()
	settings := map[string]string{"enable-event-logging": "true", "event-log-url": strings.Replace(endpoint.URL,
		"http://", "http://me:sesame@", 1)}
	s, stop := startController(t, dir, true, settings)
	removeANode(t, s)
	file := filepath.Join(dir, "r", "files", "central-logs", "event", "event.log")
	waitForLines(t, file, 1)
	stop()
	s, stop = startController(t, dir, true, settings)
	defer stop()
	removeANode(t, s)
	lines := waitForLines(t, file, 2)
	mu.Lock()
	away = false
	mu.Unlock()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		all := slices.Sorted(slices.Values(got)) // events of different nodes come in any order
		mu.Unlock()
		if len(all) >= len(lines) {
			if slices.Sort(lines); !slices.Equal(all, lines) {
				t.Errorf("the endpoint got\n%s\nthe file has\n%s", all, lines)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the endpoint got %q", all)
		}
	}
}

// TestEventsReachARegistry has the registry in a separate process.
func TestEventsReachARegistry(t *testing.T) {
	dir := t.TempDir()
	up, stopUp := startController(t, dir, true, nil)
	defer stopUp()
	s, stop := startController(t, t.TempDir(), false,
		map[string]string{"enable-event-logging": "true", "registry": up.RegistryURL()})
	defer stop()
	removeANode(t, s)
	waitForLines(t, filepath.Join(dir, "r", "files", "central-logs", "event", "event.log"), 1)
}

// removeANode makes an event.
func removeANode(t *testing.T, s *ControllerService) {
	t.Helper()
	answer, err := s.controller.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: s.JoinToken(), Name: "n", Host: "h", Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.controller.Nodes.Delete(t.Context(), answer.NodeID); err != nil {
		t.Fatal(err)
	}
}

// waitForLines waits for so many events in a file, and returns them.
func waitForLines(t *testing.T, file string, n int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		raw, err := os.ReadFile(file)
		lines := strings.Split(string(bytes.TrimSpace(raw)), "\n")
		if err == nil && len(lines) == n+1 {
			if !strings.HasPrefix(lines[0], "Log file created at: ") {
				t.Errorf("the file begins with %s", lines[0])
			}
			for _, line := range lines[1:] {
				var event struct{ Name, MachineName string }
				if err := json.Unmarshal([]byte(line), &event); err != nil || event.Name != "DeleteNode" ||
					event.MachineName == "" {
					t.Errorf("line %s: %v", line, err)
				}
			}
			return lines[1:]
		}
		if time.Now().After(end) {
			t.Fatalf("the file has %q, %v", raw, err)
		}
	}
}
