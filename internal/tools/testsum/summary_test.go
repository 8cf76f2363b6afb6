package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run feeds lines to a summary and gives what it printed.
func run(t *testing.T, lines ...string) (string, bool) {
	t.Helper()
	var out strings.Builder
	s := newSummary(&out)
	if err := s.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	good := s.finish()
	return out.String(), good
}

func TestSummary(t *testing.T) {
	pass := `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}`
	for _, c := range []struct {
		name  string
		lines []string
		good  bool
		last  string
		has   []string
	}{
		{"passed", []string{`{"Action":"run","Package":"p","Test":"TestA"}`, pass, `{"Action":"pass","Package":"p","Elapsed":0.5}`}, true, "1 passed, 0 failed, 0 skipped", []string{"ok       0.50s  p"}},
		{"nothing ran", nil, false, "0 passed, 0 failed, 0 skipped", []string{"No test ran."}},
		{"all skipped", []string{
			`{"Action":"output","Package":"p","Test":"TestS","Output":"=== RUN   TestS\n"}`,
			`{"Action":"output","Package":"p","Test":"TestS","Output":"    a_test.go:7: no KVM here\n"}`,
			`{"Action":"output","Package":"p","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestS"}`,
		}, false, "0 passed, 0 failed, 1 skipped", []string{"p TestS: a_test.go:7: no KVM here"}},
		{"failed", []string{
			pass, `{"Action":"output","Package":"p","Test":"TestB","Output":"a_test.go:9: got 1\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestB"}`, `{"Action":"fail","Package":"p","Elapsed":1}`,
		}, false, "1 passed, 1 failed, 0 skipped", []string{"--- FAIL: p TestB", "    a_test.go:9: got 1"}},
		{"does not build", []string{
			pass, `{"ImportPath":"p [p.test]","Action":"build-output","Output":"./a.go:3:1: syntax error\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"fail","Package":"q","Elapsed":0,"FailedBuild":"p [p.test]"}`,
		}, false, "1 passed, 1 failed, 0 skipped", []string{"    ./a.go:3:1: syntax error", "FAIL     0.00s  q"}},
		{"panicked in the middle", []string{
			pass, `{"Action":"run","Package":"p","Test":"TestP"}`,
			`{"Action":"output","Package":"p","Test":"TestP","Output":"panic: oops\n"}`, `{"Action":"fail","Package":"p","Elapsed":1}`,
		}, false, "1 passed, 1 failed, 0 skipped", []string{"--- FAIL: p TestP", "    panic: oops"}},
		{"broke off", []string{pass, `{"Action":"run","Package":"p","Test":"TestP"}`}, false, "1 passed, 1 failed, 0 skipped", []string{"p TestP"}},
		{"slow and strange", []string{"not json", `{"a":1}`, pass, `{"Action":"pass","Package":"p","Elapsed":61}`}, true, "1 passed, 0 failed, 0 skipped", []string{"not json", `{"a":1}`, "  61.0s p"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, good := run(t, c.lines...)
			if good != c.good {
				t.Errorf("good is %t", good)
			}
			if !strings.HasSuffix(out, "\n"+c.last+"\n") {
				t.Errorf("the last line is not %q:\n%s", c.last, out)
			}
			for _, want := range c.has {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing:\n%s", want, out)
				}
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	s := newSummary(&strings.Builder{})
	for range 10 {
		s.take(event{Action: "output", Package: "p", Test: "T", Output: strings.Repeat("x", keptOutput)})
	}
	if n := len(s.output[unit{"p", "T"}]); n > 3*keptOutput || n < keptOutput {
		t.Errorf("%d bytes are kept", n)
	}
}

// TestRealRun reads what the installed go command really prints.
func TestRealRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.test/m\ngo 1.26\n",
		"a/a_test.go":       "package a\nimport \"testing\"\nfunc TestOK(*testing.T) {}\nfunc TestBad(t *testing.T) { t.Error(\"bad luck\") }\nfunc TestSkip(t *testing.T) { t.Skip(\"no such thing\") }\n",
		"b/b.go":            "package b\n\nvar x int = \"y\"\n",
		"b/b_test.go":       "package b\nimport \"testing\"\nfunc TestNever(*testing.T) {}\n",
		"none/nothing.go":   "package none\n",
		"exit/exit_test.go": "package exit\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { os.Exit(3) }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	lines, err := cmd.Output()
	if err == nil {
		t.Fatal("go test passed")
	}
	out, good := run(t, string(lines))
	if good || !strings.HasSuffix(out, "\n1 passed, 3 failed, 1 skipped\n") {
		t.Errorf("good %t:\n%s", good, out)
	}
	for _, want := range []string{"bad luck", "TestSkip: a_test.go:5: no such thing", "cannot use", "example.test/m/exit"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
}

// TestEvidence: what passed is shown, and a skip is no success.
func TestEvidence(t *testing.T) {
	for action, want := range map[string]bool{"pass": true, "skip": false} {
		var out strings.Builder
		s := newSummary(&out)
		s.evidence = true
		events := `{"Action":"output","Package":"p","Test":"T","Output":"    t_test.go:1: 7 of 7\n"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"` + action + `","Package":"p","Test":"T"}`
		if err := s.read(strings.NewReader(events)); err != nil {
			t.Fatal(err)
		}
		if got := s.finish(); got != want || !strings.Contains(out.String(), "7 of 7") {
			t.Errorf("%s: %v\n%s", action, got, out.String())
		}
	}
}
