package rig

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsAreFound: only in logs, in plain form and as in a header, and they are not printed.
func TestSecretsAreFound(t *testing.T) {
	var s Secrets
	secret := s.Note("root token", "a-long-root-token")
	s.Note("too short to be looked for", "abc")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"up.log":                                "fine\nthe token " + secret + " is wrong\n",
		"registry/files/central-logs/agent/x":   "header " + base64.StdEncoding.EncodeToString([]byte("root:"+secret)),
		"controller/key":                        secret,
		"clean.log":                             "abc and nothing else\n",
		"registry/files/logs/1111/start.script": secret,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, files, err := s.Search(dir)
	if err != nil || files != 4 || len(found) != 3 || s.Len() != 1 {
		t.Fatalf("%v in %d files, %v", found, files, err)
	}
	all := strings.Join(found, "\n")
	if !strings.Contains(all, "up.log:2 holds a secret: root token") ||
		!strings.Contains(all, "agent/x:1 holds a secret: root token in a header") || strings.Contains(all, secret) {
		t.Error(all)
	}
}

// TestStand: a failure ends what was begun, and what was left to the end is done, the last first.
func TestStand(t *testing.T) {
	s, order := NewStand(t.Context()), ""
	s.Cleanup(func() { order += "a" })
	err := s.Do(func() {
		s.Cleanup(func() { order += "b" })
		s.Fatal("no ", 1)
		order += "x"
	})
	s.Close()
	if err == nil || err.Error() != "no 1" || order != "ba" {
		t.Errorf("%v, %q", err, order)
	}
}
