package hostcheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// outputDir is the environment variable with the directory of the outputs of the fake programs.
const outputDir = "FAKE_OUTPUTS"

// TestMain puts programs that stand for those of macOS first in PATH.
func TestMain(m *testing.M) {
	programs := map[string]func(){}
	for _, name := range []string{"defaults", "security", "pmset", "sw_vers"} {
		programs[name] = func() { printOutput(name) }
	}
	testscript.Main(m, programs)
}

// printOutput prints the file of a program and its last argument. A missing file is a failure.
func printOutput(program string) {
	text, err := os.ReadFile(filepath.Join(os.Getenv(outputDir), program+" "+os.Args[len(os.Args)-1]))
	if err != nil {
		fmt.Println("The domain/default pair does not exist")
		os.Exit(1)
	}
	fmt.Print(string(text))
	os.Exit(0)
}

// outputs makes the fake programs print files of testdata; the keys are programs and their last arguments.
func outputs(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(outputDir, dir)
	for name, file := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(output(t, file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// output returns a file of testdata, or the text itself if it is not the name of one.
func output(t *testing.T, file string) string {
	t.Helper()
	if !strings.HasSuffix(file, ".txt") {
		return file
	}
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRunOnMac(t *testing.T) {
	o := Options{OS: "darwin", User: "admin", Dir: filepath.Join(t.TempDir(), "not", "yet", "created")}
	outputs(t, map[string]string{
		"defaults autoLoginUser": "autologin-set.txt", "security login.keychain": "keychain-open.txt",
		"pmset -g": "pmset-awake.txt", "defaults bootpd": "lease-600.txt", "sw_vers -productVersion": "15.6.1\n",
		"defaults AllowedEthernetLocalNetworkAddresses": "network-allowed.txt",
	})
	for _, r := range Run(t.Context(), o) {
		if r.Outcome != OK || r.Remedy != "" || r.Detail == "" {
			t.Errorf("%+v", r)
		}
	}
	outputs(t, map[string]string{
		"defaults autoLoginUser": "other\n", "security login.keychain": "keychain-timeout.txt",
		"pmset -g": "pmset-sleeps.txt", "defaults bootpd": "lease-day.txt", "sw_vers -productVersion": "26.5\n",
	})
	o.User, o.Reserve = "root", bytesize.DiskReserve{Bytes: 1 << 60}
	results := Run(t.Context(), o)
	for _, r := range results {
		if r.Name != "softnet" && (r.Outcome != Problem || r.Remedy == "" || r.Detail == "") {
			t.Errorf("%+v", r)
		}
	}
	if len(results) != len(checks) {
		t.Errorf("%d results of %d checks", len(results), len(checks))
	}
}

// TestNoPrograms: without the programs of macOS nothing is reported as ok.
func TestNoPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, r := range Run(t.Context(), Options{OS: "darwin", User: "admin", Dir: t.TempDir()}) {
		if ok := r.Name == "softnet" || r.Name == "disk space"; ok != (r.Outcome == OK) || !ok && r.Outcome != Unknown {
			t.Errorf("%+v", r)
		}
	}
}

func TestRunHere(t *testing.T) {
	var names []string
	for _, r := range Run(t.Context(), Options{OS: "linux", Dir: t.TempDir()}) {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"disk space"}) {
		t.Errorf("checks of Linux: %q", names)
	}
}

func TestEvaluate(t *testing.T) {
	at := func(user string) func(commandResult) finding {
		return func(r commandResult) finding { return evaluateAutoLogin(r, user) }
	}
	network := func(release, user string) func(commandResult) finding {
		return func(r commandResult) finding {
			return evaluateLocalNetwork(commandResult{output: release}, r, user)
		}
	}
	for _, c := range []struct {
		evaluate func(commandResult) finding
		file     string
		code     int
		want     Outcome
		detail   string // part of it
	}{
		{at("admin"), "autologin-set.txt", 0, OK, "user admin"},
		{at("ci"), "autologin-set.txt", 0, Problem, `user "admin" is logged in at each start, but the agent runs as ci`},
		{at("admin"), "autologin-missing.txt", 1, Problem, "no user"},
		{at(""), "\n", 0, Unknown, "unexpected output"},
		{evaluateKeychain, "keychain-open.txt", 0, OK, "unlocked"},
		{evaluateKeychain, "keychain-timeout.txt", 0, Problem, "after 300 s"},
		{evaluateKeychain, "keychain-sleep.txt", 0, Problem, "when the Mac sleeps"},
		{evaluateKeychain, "keychain-locked.txt", 36, Problem, "is locked"},
		{evaluateKeychain, "keychain-missing.txt", 50, Problem, "no login keychain"},
		{evaluateKeychain, "keychain-open.txt", 1, Unknown, "unexpected output"},
		{evaluateKeychain, "", 0, Unknown, "unexpected output"},
		{evaluateSleep, "pmset-awake.txt", 0, OK, "does not sleep"},
		{evaluateSleep, "pmset-sleeps.txt", 0, Problem, "after 10 minutes"},
		{evaluateSleep, "disksleep 0\n", 0, Unknown, "unexpected output"},
		{evaluateLeaseTime, "lease-600.txt", 0, OK, "600 s"},
		{evaluateLeaseTime, "lease-day.txt", 0, Problem, "86400 s"},
		{evaluateLeaseTime, "{\n}\n", 0, Problem, "a day"},
		{evaluateLeaseTime, "lease-missing.txt", 1, Problem, "a day"},
		{evaluateLeaseTime, "no such command", 1, Unknown, "unexpected output"},
		{network("14.7", "admin"), "", 1, OK, "macOS 14"},
		{network("15.0", "admin"), "network-allowed.txt", 0, OK, "private addresses"},
		{network("26.5", "admin"), "does not exist", 1, Unknown, "setting of root"},
		{network("26.5", "root"), "does not exist", 1, Problem, "no exception"},
		{network("x", "root"), "network-allowed.txt", 0, Unknown, "sw_vers"},
	} {
		got := c.evaluate(commandResult{c.code, output(t, c.file)})
		if got.outcome != c.want || !strings.Contains(got.detail, c.detail) {
			t.Errorf("%s with code %d: %+v, want %s with %q", c.file, c.code, got, c.want, c.detail)
		}
	}
}

func TestEvaluateSoftnet(t *testing.T) {
	for _, c := range []struct {
		owner uint32
		mode  fs.FileMode
		want  Outcome
	}{{0, fs.ModeSetuid | 0o755, OK}, {501, fs.ModeSetuid | 0o755, Problem}, {0, 0o755, Problem}} {
		got := evaluateSoftnet("/opt/it's/softnet", c.owner, c.mode)
		if got.outcome != c.want || (c.want == Problem) != strings.Contains(got.remedy, `u+s '/opt/it'\''s/softnet'`) {
			t.Errorf("owner %d, mode %v: %+v", c.owner, c.mode, got)
		}
	}
}

// TestSoftnetBehindLink: the file counts, not the link to it.
func TestSoftnetBehindLink(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	target := filepath.Join(dir, "cellar")
	if err := os.WriteFile(target, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "softnet")); err != nil {
		t.Fatal(err)
	}
	target, err := filepath.EvalSymlinks(target)
	if err != nil {
		t.Fatal(err)
	}
	if got := findSoftnet(t.Context(), Options{OS: runtime.GOOS}); !strings.Contains(got.remedy, target) {
		t.Errorf("got %+v", got)
	}
}

// FuzzEvaluate: any output is evaluated, and only the expected one as ok.
func FuzzEvaluate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), 0)
		f.Add(string(text), 1)
	}
	f.Fuzz(func(t *testing.T, text string, code int) {
		got := commandResult{code, text}
		for name, found := range map[string]finding{
			"login": evaluateAutoLogin(got, "admin"), "keychain": evaluateKeychain(got), "sleep": evaluateSleep(got),
			"lease": evaluateLeaseTime(got), "network": evaluateLocalNetwork(commandResult{output: "26"}, got, "admin"),
		} {
			if found.outcome == OK && (code != 0 || text == "") || found.detail == "" || len(found.detail) > 1000 {
				t.Errorf("%s of %q with code %d: %+v", name, text, code, found)
			}
		}
	})
}
