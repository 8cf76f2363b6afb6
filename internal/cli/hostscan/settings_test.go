package hostscan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/match"
)

// usualOf returns default paths below a directory.
func usualOf(t *testing.T) defaultPaths {
	t.Helper()
	dir := t.TempDir()
	return defaultPaths{Config: filepath.Join(dir, "hostscan.yml"), State: filepath.Join(dir,
		"state"), Log: filepath.Join(dir, "log"), Database: filepath.Join(dir, "vuln.db")}
}

// TestDefaults: the defaults are those of the specification.
func TestDefaults(t *testing.T) {
	p := usualOf(t)
	s, err := readSettings(t.Context(), "", p)
	if err != nil {
		t.Fatal(err)
	}
	if s.LogLevel != "info" || !s.LogToFile || s.LogFile != p.Log || s.VulnDBPath != p.Database ||
		s.DisableAutoUpdate || len(s.IgnorePackages) != 1 ||
		s.IgnorePackages[0] != "cpe:/a:apple:icloud:1.0" || s.IgnoreCVEs == nil || len(s.IgnoreCVEs) != 0 ||
		s.MinScore != 0 || s.MinSeverity != "low" ||
		s.ListenAddr != "127.0.0.1:8081" || s.DBBackendPath != filepath.Join(p.State, "catalogue.db") ||
		s.DBUpdateInterval != "24h" {
		t.Errorf("%+v", s)
	}
	if d, err := s.databaseOptions(); err != nil || d.UpdateInterval != 24*time.Hour || d.Manual || d.Listing != "" {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestUsualFile: it is read when no other is named, and an empty value is ignored.
func TestUsualFile(t *testing.T) {
	p := usualOf(t)
	text := "ignore-packages: [\"\"]\nmin-severity: high\nmin-score: 7.5\nlisten-addr: \"\"\ndisable-auto-update: " +
		"true\ndb-update-interval: 90m\nlog-to-file: false\n"
	if err := os.WriteFile(p.Config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := readSettings(t.Context(), "", p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.matchRules()
	if err != nil || len(r.IgnoredPackages) != 1 || r.IgnoredPackages[0] != "" || r.MinSeverity != "high" ||
		r.MinScore != 7.5 ||
		s.ListenAddr != "127.0.0.1:8081" || s.LogToFile {
		t.Errorf("%+v, %+v, %v", s, r, err)
	}
	if d, err := s.databaseOptions(); err != nil || !d.Manual || d.UpdateInterval != 90*time.Minute {
		t.Errorf("%+v, %v", d, err)
	}
	if err := os.WriteFile(p.Config, []byte("# nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = readSettings(t.Context(), "", p); err != nil || s.IgnorePackages[0] != match.DefaultIgnoredPackage {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestNoHome: a user without a home directory has to name the files.
func TestNoHome(t *testing.T) {
	if _, err := readSettings(t.Context(), "", defaultPaths{}); err == nil ||
		!strings.Contains(err.Error(), "db-backend-path") {
		t.Errorf("error %v", err)
	}
}

func TestPlaces(t *testing.T) {
	env := func(name string) string { return map[string]string{"XDG_STATE_HOME": "/s"}[name] }
	none := func(string) string { return "" }
	for name, c := range map[string]struct {
		got  defaultPaths
		want defaultPaths
	}{
		"linux root": {pathsFor("linux", true, "", none), defaultPaths{
			"/etc/buildyard/hostscan.yml",
			"/var/lib/buildyard/hostscan", "/var/log/buildyard/hostscan.log", "/var/lib/buildyard/vuln.db",
		}},
		"linux user": {pathsFor("linux", false, "/h",
			none), defaultPaths{
			"/h/.config/buildyard/hostscan.yml", "/h/.local/state/buildyard/hostscan",
			"/h/.local/state/buildyard/hostscan/hostscan.log", "/h/.cache/buildyard/vuln.db",
		}},
		"XDG": {pathsFor("linux", false, "/h", env), defaultPaths{
			"/h/.config/buildyard/hostscan.yml",
			"/s/buildyard/hostscan", "/s/buildyard/hostscan/hostscan.log", "/h/.cache/buildyard/vuln.db",
		}},
		"mac root": {pathsFor("darwin", true, "/var/root",
			none), defaultPaths{
			"/Library/Application Support/buildyard/hostscan.yml",
			"/Library/Application Support/buildyard/hostscan", "/Library/Logs/buildyard/hostscan.log",
			"/Library/Application Support/buildyard/vuln.db",
		}},
		"mac user": {pathsFor("darwin", false, "/Users/x",
			none), defaultPaths{
			"/Users/x/Library/Application Support/buildyard/hostscan.yml",
			"/Users/x/Library/Application Support/buildyard/hostscan", "/Users/x/Library/Logs/buildyard/hostscan.log",
			"/Users/x/Library/Caches/buildyard/vuln.db",
		}},
		"nobody": {pathsFor("linux", false, "", none), defaultPaths{}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

// TestTokens: a token exists where other users can connect, and does not change.
func TestTokens(t *testing.T) {
	p := usualOf(t)
	s := defaultSettings(p)
	if a, err := s.accessRules(p); err != nil || a.Token != "" {
		t.Errorf("on loopback: %+v, %v", a, err)
	}
	s.ListenAddr = "0.0.0.0:8081"
	a, err := s.accessRules(p)
	if err != nil || len(a.Token) < 40 {
		t.Fatalf("made: %q, %v", a.Token, err)
	}
	if again, err := s.accessRules(p); err != nil || again.Token != a.Token {
		t.Errorf("read: %+v, %v", again, err)
	}
	file := filepath.Join(p.State, tokenFileName)
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	for text, says := range map[string]string{
		"": "is empty", " \n": "is empty", "a b\n": "must contain a single token",
		"a\x1b": "must contain a single token",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.accessRules(p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s.Token, s.ListenAddr = "of the configuration", "192.0.2.1:1"
	if a, err := s.accessRules(defaultPaths{}); err != nil || a.Token != s.Token {
		t.Errorf("%+v, %v", a, err)
	}
	if s.Token = ""; s.ListenAddr != "" {
		if _, err := s.accessRules(defaultPaths{}); err == nil {
			t.Error("no place for a token, and none")
		}
	}
}

func TestLater(t *testing.T) {
	a, b := defaultSettings(usualOf(t)), defaultSettings(usualOf(t))
	b.MinScore, b.Token, b.AllowedHosts = 7, "x", []string{"y"}
	b.LogFile, b.VulnDBPath, b.DBBackendPath = a.LogFile, a.VulnDBPath, a.DBBackendPath
	if got := restartKeys(a, b); len(got) != 0 {
		t.Errorf("%q", got)
	}
	b.Webhook, b.ListenAddr = "http://x", "127.0.0.1:1"
	if got := strings.Join(restartKeys(a, b), " "); got != "listen-addr webhook" {
		t.Errorf("%q", got)
	}
}

// FuzzSettings: any file is refused with an error message or can be used.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		"", "log-level: info", "ignore-packages:\n  - cpe:/a:apple:icloud:1.0\n", "ignore-packages: null",
		"min-score: .nan", "min-score: 1e300", "- a", "a: &a [*a]",
		"listen-addr: ':0'", "db-update-interval: 24h", "exclude-paths: [/]", "\x00", "? [a]\n: b",
		"min-severity: HIGH",
	} {
		f.Add(text)
	}
	p := defaultPaths{State: "/s", Log: "/l", Database: "/d"}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readSettings(t.Context(), path, p)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
			return
		}
		if r, err := s.matchRules(); err != nil || !(r.MinScore >= 0 && r.MinScore <= 10) { // a NaN is neither
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestRefusedSettings: invalid settings are reported before anything begins.
func TestRefusedSettings(t *testing.T) {
	p := usualOf(t)
	for text, says := range map[string]string{
		"webhook: ftp://x\n":                  "webhook: must be a URL",
		"min-score: 1\n---\nmin-score: 2\n":   "want a single YAML document",
		"log-level: info\n--- a\n":            "want a single YAML document",
		"push-interval: 1s\npush-url: node\n": "at least 10s",
	} {
		if err := os.WriteFile(p.Config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSettings(t.Context(), "", p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
