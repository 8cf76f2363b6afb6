package hostscan

import (
	"os"
	"path/filepath"
	"testing"
)

// ReadToken is for the scripts.
var ReadToken = readToken

// TestTokenForChangesIsMade: with require-token the first start creates a token that its group can
// read, and the next one keeps it.
func TestTokenForChangesIsMade(t *testing.T) {
	p := defaultPaths{State: filepath.Join(t.TempDir(), "state")}
	s := settings{ListenAddr: "127.0.0.1:8081", RequireToken: requireForChanges}
	first, err := s.accessRules(p)
	if err != nil || len(first.Token) < 40 || !first.ReadWithoutToken {
		t.Fatalf("%+v, %v", first, err)
	}
	for path, want := range map[string]os.FileMode{p.State: 0o710, filepath.Join(p.State, tokenFileName): 0o640} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v; %v", path, info.Mode(), want, err)
		}
	}
	if again, err := s.accessRules(p); err != nil || again.Token != first.Token {
		t.Errorf("the next start has another token, or %v", err)
	}
	if err := os.Chmod(filepath.Join(p.State, tokenFileName), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.accessRules(p); err == nil {
		t.Error("a token that everybody can read is taken")
	}
	if off, err := (settings{ListenAddr: "127.0.0.1:8081"}).accessRules(p); err != nil || off.Token != "" ||
		off.ReadWithoutToken {
		t.Errorf("without the setting: %+v, %v", off, err)
	}
	if err := (settings{
		LogLevel: "info", ListenAddr: "127.0.0.1:1", DBUpdateInterval: "24h", MinSeverity: "low",
		PushInterval: "1m", RequireToken: "always",
	}).check(); err == nil {
		t.Error("another value is taken")
	}
}
