package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// flakyModule has a test that fails the first time, and tests that must not count as flaky.
var flakyModule = map[string]string{
	"go.mod": "module example.test/m\n\ngo 1.26\n",
	"flaky/flaky_test.go": `package flaky

import (
	"os"
	"testing"
)

func TestOuter(t *testing.T) {
	t.Run("inner", func(t *testing.T) {
		if _, err := os.Stat("ran"); err != nil {
			os.WriteFile("ran", nil, 0o600)
			t.Fatal("the first time")
		}
	})
	t.Run("other", func(*testing.T) {})
}

func TestSkip(t *testing.T) { t.Skip("no such thing") }
`,
	"main/main_test.go": `package main

import (
	"os"
	"testing"
)

func TestGood(*testing.T) {}

func TestMain(m *testing.M) {
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if len(os.Args) > 1 {
		os.Exit(3)
	}
}
`,
	"bad/bad_test.go": `package bad

import "testing"

func TestBad(t *testing.T) { t.Error("every time") }
`,
}

// brokenModule has failures that are not those of a test.
var brokenModule = map[string]string{
	"go.mod": "module example.test/m\n\ngo 1.26\n",
	"build/build_test.go": `package build

import "testing"

var x int = "no number"

func TestNever(*testing.T) {}
`,
	"panics/panics_test.go": `package panics

import "testing"

func TestGood(*testing.T) {}

func TestPanics(t *testing.T) { panic("oops") }
`,
	"hangs/hangs_test.go": `package hangs

import "testing"

func TestHangs(t *testing.T) { select {} }

func TestNever(*testing.T) {}
`,
}

func TestRealRuns(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		args  []string
		want  string // of the end, as a regular expression
		has   []string
	}{
		{"flaky", flakyModule, []string{"-shuffle=on"}, `
skipped:
  example.test/m/flaky TestSkip: flaky_test.go:\d+: no such thing

flaky:
  example.test/m/flaky TestOuter/inner
    -shuffle=\d+
        flaky_test.go:\d+: the first time

failed:
  example.test/m/bad TestBad
  example.test/m/main
(    .*
)+
1 flaky; more than 3 fail the run

4 passed, 2 failed, 1 skipped
`, []string{"every time"}},
		{"broken", brokenModule, []string{"-timeout", "2s"}, `
failed:
  example.test/m/build
(    .*
)*  example.test/m/hangs TestHangs
(    .*
)+  example.test/m/panics TestPanics
(    .*
)*
1 passed, 3 failed, 0 skipped
`, []string{"cannot use", "panic: oops", "test timed out after 2s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := runTests(t, c.files, c.args...)
			if !regexp.MustCompile(`\n` + strings.TrimPrefix(c.want, "\n") + `$`).MatchString(out) {
				t.Errorf("the end is another one:\n%s", out)
			}
			for _, want := range c.has {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing:\n%s", want, out)
				}
			}
		})
	}
}

// runTests runs scripts/test.sh on a module, which must fail, and returns the output.
func runTests(t *testing.T, files map[string]string, args ...string) string {
	t.Helper()
	script, err := filepath.Abs("../../../scripts/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), script, append([]string{"./..."}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath", "CGO_ENABLED=0", "SLOW=", "EVIDENCE=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		t.Error("the run is good")
	}
	return stderr.String() + string(out)
}

// events returns the output of go test -json for tests of package p, specified as "test action".
func events(all ...string) string {
	var b strings.Builder
	for _, e := range all {
		test, action, _ := strings.Cut(e, " ")
		fmt.Fprintf(&b, `{"Action":%q,"Package":"p","Test":%q,"Output":"    said\n","Elapsed":1.5}`+"\n", action, test)
	}
	return b.String()
}

func TestReport(t *testing.T) {
	flaky := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("T%d fail", i), " fail", fmt.Sprintf("T%d pass", i), " pass")
		}
		return all
	}
	for _, c := range []struct {
		name   string
		events string
		ran    bool // gotestsum's result
		good   bool
		last   string
	}{
		{"passed", events("A run", "A pass"), true, true, "1 passed, 0 failed, 0 skipped"},
		{"nothing ran", "", true, false, "0 passed, 1 failed, 0 skipped"},
		{"all skipped", events("A skip"), true, false, "0 passed, 1 failed, 1 skipped"},
		{"broke off", events("A pass", "B run"), true, false, "1 passed, 1 failed, 0 skipped"},
		{"gotestsum failed", events("A pass"), false, false, "1 passed, 1 failed, 0 skipped"},
		{"failed again", events("A fail", " fail", "A fail", " fail"), false, false, "0 passed, 1 failed, 0 skipped"},
		{"hung when run again", events("A fail", " fail", "A run",
			" fail"), false, false, "0 passed, 1 failed, 0 skipped"},
		{"3 flaky", events(flaky(3)...), true, true, "3 passed, 0 failed, 0 skipped"},
		{"4 flaky", events(flaky(4)...), true, false, "4 passed, 1 failed, 0 skipped"},
		{"strange lines", "not json\n{\"a\":1}\n" + events("A pass"), true, true, "1 passed, 0 failed, 0 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(c.events)); err != nil {
				t.Fatal(err)
			}
			if good := r.finish(c.ran); good != c.good {
				t.Errorf("good is %t", good)
			}
			if !strings.HasSuffix(out.String(), "\n"+c.last+"\n") {
				t.Errorf("the last line is not %q:\n%s", c.last, out.String())
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	r := newReport(&strings.Builder{})
	for range 10 {
		r.take(event{Action: "output", Package: "p", Test: "T", Output: strings.Repeat("x", maxOutput)})
	}
	if n := len(r.runs[id{"p", "T"}].output); n > 3*maxOutput || n < maxOutput {
		t.Errorf("%d bytes are kept", n)
	}
}

func TestSlowest(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	for i := range 30 {
		r.take(event{Action: "pass", Package: "p", Test: fmt.Sprintf("T%d", i), Elapsed: float64(i)})
		r.take(event{Action: "pass", Package: "p", Test: fmt.Sprintf("T%d/inner", i), Elapsed: float64(i)})
	}
	r.printSlow()
	const first = "tests:\n   29.00 s p T29\n   28.00 s p T28\n"
	if got := out.String(); strings.Count(got, "\n") != slowListed+2 || !strings.Contains(got, first) {
		t.Errorf("printed:\n%s", got)
	}
}
