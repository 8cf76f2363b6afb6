package cloud

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// writeContexts writes the client.yaml of a new user and returns its path.
func writeContexts(t *testing.T, text string) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	path, err := contextsPath()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestContextKeys: the keys of a context are named like the flags; former names are accepted.
func TestContextKeys(t *testing.T) {
	for name, text := range map[string]string{
		"today":  "contexts: {ci: {controller: http://a, api-key-id: ci, api-key-file: ci.key}}",
		"former": "contexts: {ci: {controller: http://a, key-id: ci, key-file: ci.key}}",
		"mixed":  "contexts: {ci: {controller: http://a, key-id: ci, api-key-file: ci.key}}",
	} {
		writeContexts(t, text)
		c, err := readContexts()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := c.Contexts["ci"].settings()
		if got[config.ClientKeyID] != "ci" || got[config.ClientKeyString+"_FILE"] != "ci.key" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestContextErrors: errors name the key, what is wrong with it, and no Go type.
func TestContextErrors(t *testing.T) {
	for text, want := range map[string]string{
		"contexts: {a: {kontroller: x}}":                      "line 1: unknown key kontroller",
		"contexts: {a: {root-token: [x]}}":                    "line 1: want a text, not a list",
		"contexts: {a: {skip-tls-verification: secret}}":      "line 1: want true or false, not a text",
		"contexts: {a: secret}":                               "line 1: want a map of keys and values, not a text",
		"contexts: [a]":                                       "line 1: want a map of keys and values, not a list",
		"- a":                                                 "line 1: want a map of keys and values, not a list",
		"current: {}\ncontexts: 7":                            "line 1: want a text, not a map; line 2: want a map",
		"contexts: {a: {key-id: x, api-key-id: x}}":           `context "a": key-id is the former name of api-key-id`,
		"contexts: {a: {api-key-file: x, key-file: secret}}":  "remove key-file",
		"contexts: {a: {controller: x}, a: {controller: x}}":  "already defined at line 1",
		"contexts: {a: {controller: x, controller: secret}}}": "did not find",
	} {
		path := writeContexts(t, text)
		_, err := readContexts()
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
			continue
		}
		for _, wrong := range []string{"cloud.", "map[", "secret", "\n"} {
			if strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: %q is in %v", text, wrong, err)
			}
		}
	}
}

// TestContextUseKeepsKeys: the current context changes alone. Former keys stay, for a rollback.
func TestContextUseKeepsKeys(t *testing.T) {
	path := writeContexts(t, "# mine\ncontexts:\n  ci:\n    controller: http://a\n    key-id: key-id # own\n"+
		"    key-file: ci.key\n  key-id:\n    controller: http://b\n")
	var out bytes.Buffer
	cmd := contextUse(cli.Streams{Out: &out})
	cmd.SetArgs([]string{"ci"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := "current: ci\n# mine\ncontexts:\n  ci:\n    controller: http://a\n    key-id: key-id # own\n" +
		"    key-file: ci.key\n  key-id:\n    controller: http://b\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
