package hostscan

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aNode = "11111111-2222-4333-8444-555555555555"

// TestWhereFindingsGo: findings go to the node that this host is, and nowhere else without a key.
func TestWhereFindingsGo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.json")
	for name, c := range map[string]struct {
		node string // what the file has; "": there is none
		s    settings
		url  string
		err  string
	}{
		"not joined": {"", settings{PushURL: "node"}, "", "not found: join this host to a cloud"},
		"damaged":    {`{"node_id":`, settings{PushURL: "node"}, "", "has no node ID and credential"},
		"the node's own": {
			`{"node_id":"` + aNode + `","credential":"secret","controller":"http://c:8090/"}`,
			settings{PushURL: "node"},
			"http://c:8090/queue/v1/scan", "",
		},
		"an address": {
			`{"node_id":"` + aNode + `","credential":"secret","controller":"http://c:8090"}`,
			settings{PushURL: "https://d"},
			"https://d/queue/v1/scan", "",
		},
		"another node": {
			`{"node_id":"x","credential":"secret"}`,
			settings{PushURL: "https://d", PushNode: aNode},
			"", "push-node is not the ID of the node on this host",
		},
		"no authorities": {`{"node_id":"` + aNode +
			`"}`, settings{PushURL: "https://d", PushCAFile: "/nowhere"}, "", "read CA file"},
		"no key": {
			"",
			settings{PushURL: "https://d", PushNode: aNode, PushKeyID: "k", PushKeyFile: "/nowhere"},
			"", "push-key-file",
		},
	} {
		_ = os.Remove(file)
		if c.node != "" {
			if err := os.WriteFile(file, []byte(c.node), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.s.PushNodeFile = file
		to, err := c.s.pushTarget()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || to.URL != c.url || to.Node != aNode {
			t.Errorf("%s: %+v, %v", name, to, err)
			continue
		}
		r := httptest.NewRequest(to.Method, to.URL, nil)
		if err := to.Authorize(r); err != nil || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Chmod(file, 0o644); err == nil {
		if _, err := (settings{PushURL: "node", PushNodeFile: file}).pushTarget(); err == nil {
			t.Error("a file that everybody may read is taken")
		}
	}
}

// TestPushSettings: invalid settings are refused by name.
func TestPushSettings(t *testing.T) {
	for name, s := range map[string]settings{
		"push-url":      {PushURL: "build.example:8090"},
		"push-node":     {PushURL: "node", PushNode: "mac-03"},
		"push-key-id":   {PushURL: "node", PushKeyID: "k"},
		"push-interval": {PushURL: "node", PushInterval: "1s"},
		"push-ca-file":  {PushCAFile: "ca.pem"},
	} {
		if s.PushInterval == "" {
			s.PushInterval = "1m"
		}
		if err := s.checkPush(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []settings{
		{},
		{PushURL: "node", PushInterval: "10s"},
		{PushURL: "https://build.example", PushInterval: "1m", PushNode: aNode},
	} {
		if err := s.checkPush(); err != nil {
			t.Error(err)
		}
	}
}
