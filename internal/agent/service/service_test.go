package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/testscript"
	"howett.net/plist"

	"github.com/buildyard/buildyard/internal/agent/service/servicetest"
)

// TestMain puts programs that behave like launchctl and systemctl first in PATH.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"launchctl": servicetest.Launchctl, "systemctl": servicetest.Systemctl,
	})
}

var definition = Definition{
	Program: "/usr/local/bin/buildnode",
	Args:    []string{"run", "--data-dir", "/srv/build data/100%", "--metrics-listen=127.0.0.1:2113"},
	Env:     []string{"HTTPS_PROXY=http://proxy.example:3128", `NOTE=a "b" <c> & $d`},
}

// changed is another definition of the same service.
func changed() Definition {
	d := definition
	d.Args = []string{"run", "--driver=sim"}
	return d
}

// stateDir returns the directory with the state of the fakes.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(servicetest.StateVariable, dir)
	return dir
}

// put creates a file of the fakes' state.
func put(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// changingCalls returns the calls of the fakes since the last time, except those that only read.
func changingCalls(t *testing.T, dir string) []string {
	t.Helper()
	file := filepath.Join(dir, "calls")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	calls := strings.Split(strings.TrimSpace(string(text)), "\n")
	return slices.DeleteFunc(calls, func(call string) bool {
		return strings.HasPrefix(call, "launchctl print ") || strings.HasPrefix(call, "systemctl show ")
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func expectLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestRender(t *testing.T) {
	for name, render := range map[string]func(Definition) ([]byte, error){
		"buildnode.service": NewSystemd("").Render,
		"buildnode.plist":   NewLaunchd("", "/Users/admin", 501).Render,
	} {
		got, err := render(definition)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(readFile(t, filepath.Join("testdata", name)), string(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestInstallPage: the page has the unit that the command on it writes.
func TestInstallPage(t *testing.T) {
	unit, err := NewSystemd("").Render(Definition{
		Program: "/usr/local/bin/buildnode",
		Args:    []string{"run", "--data-dir", "/var/lib/buildyard/node", "--metrics-listen=:2113"},
	})
	if err != nil {
		t.Fatal(err)
	}
	page := readFile(t, filepath.Join("..", "..", "..", "docs", "install.md"))
	if !strings.Contains(page, "```ini\n"+string(unit)+"```\n") {
		t.Errorf("docs/install.md does not have:\n%s", unit)
	}
}

func TestRefusedDefinitions(t *testing.T) {
	for name, d := range map[string]Definition{
		"relative program":  {Program: "bin/buildnode"},
		"line break":        {Program: "/bin/a", Args: []string{"a\nExecStartPre=/bin/b"}},
		"not UTF-8":         {Program: "/bin/a", Args: []string{"\xff"}},
		"long word":         {Program: "/bin/a", Args: []string{strings.Repeat("a", maxWordBytes+1)}},
		"variable no value": {Program: "/bin/a", Env: []string{"PATH"}},
		"variable name":     {Program: "/bin/a", Env: []string{"A B=c"}},
		"variable digit":    {Program: "/bin/a", Env: []string{"1A=c"}},
		"variable no name":  {Program: "/bin/a", Env: []string{"=c"}},
	} {
		if text, err := NewSystemd("").Render(d); err == nil {
			t.Errorf("%s: a unit was made:\n%s", name, text)
		}
		if text, err := NewLaunchd("", "/", 1).Render(d); err == nil {
			t.Errorf("%s: a property list was made:\n%s", name, text)
		}
	}
}

// FuzzRender: both files have exactly the words that they were made of.
func FuzzRender(f *testing.F) {
	special := []string{"", ";", "#", `\`, `'"`, "%n $A ${B}", "]]>"}
	for _, word := range slices.Concat(definition.Args, definition.Env, special) {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		d := Definition{Program: "/bin/a b", Args: []string{word, "last"}, Env: []string{"A=" + word}}
		unit, err := NewSystemd("").Render(d)
		list, listErr := NewLaunchd("", "/", 1).Render(d)
		if (err == nil) != (listErr == nil) {
			t.Fatalf("unit: %v, property list: %v", err, listErr)
		}
		if err != nil {
			return
		}
		for key, want := range map[string][]string{
			"ExecStart": {"/bin/a b", word, "last"}, "Environment": {"A=" + word},
		} {
			if got := unitWords(t, string(unit), key); !slices.Equal(got, want) {
				t.Errorf("%s has %q, want %q in:\n%s", key, got, want, unit)
			}
		}
		var job struct {
			Args []string          `plist:"ProgramArguments"`
			Env  map[string]string `plist:"EnvironmentVariables"`
		}
		if _, err := plist.Unmarshal(list, &job); err != nil {
			t.Fatalf("%v in:\n%s", err, list)
		}
		if !slices.Equal(job.Args, []string{"/bin/a b", word, "last"}) || job.Env["A"] != word {
			t.Errorf("the property list has %q and %q, want %q in:\n%s", job.Args, job.Env, word, list)
		}
	})
}

// unitWords returns the words of the only line with a key, as systemd.syntax(7) and systemd.service(5) define them.
func unitWords(t *testing.T, unit, key string) (words []string) {
	t.Helper()
	var line string
	for l := range strings.Lines(unit) {
		if value, found := strings.CutPrefix(l, key+"="); found {
			if line != "" {
				t.Fatalf("two lines %s in:\n%s", key, unit)
			}
			line = strings.TrimSuffix(value, "\n")
		}
	}
	word, quoted, inWord := "", false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			i++
			word += line[i : i+1]
		case c == '"':
			quoted, inWord = !quoted, true
		case c == ' ' && !quoted:
			words, word, inWord = append(words, word), "", false
		case (c == '%' || c == '$' && key == "ExecStart") && i+1 < len(line) && line[i+1] == c:
			i++
			fallthrough
		default:
			word, inWord = word+string([]byte{c}), true
		}
	}
	if inWord {
		words = append(words, word)
	}
	return words
}
