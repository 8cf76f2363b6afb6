package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// keptOutput bounds what is kept of one test's output, in bytes: the end of it.
	keptOutput = 256 << 10
	// slowPackage is from when on a package is listed as slow.
	slowPackage = 20 * time.Second
	// slowListed is how many slow packages are listed at most.
	slowListed = 10
)

// event is one line of go test -json (see go doc test2json). ImportPath is set
// where Package is not: in the output of a build.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// unit is a test, or a package where test is "".
type unit struct{ pkg, test string }

func (u unit) String() string {
	if u.test == "" {
		return u.pkg
	}
	return u.pkg + " " + u.test
}

// skip is a test that did not run, and why.
type skip struct {
	unit
	reason string
}

// timed is a package and how long its tests took.
type timed struct {
	pkg  string
	took time.Duration
}

// summary adds up the events of a run. Use newSummary.
type summary struct {
	out     io.Writer
	output  map[unit][]byte // of what runs, and of builds by import path
	running map[unit]bool   // tests that began and have no result
	passed  int
	failed  []unit
	skipped []skip
	slow    []timed

	evidence bool // what passed is shown, too, and nothing may be skipped
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[unit][]byte{}, running: map[unit]bool{}}
}

// read takes events until the end. A line that is no event is printed as it is.
func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			var e event
			if json.Unmarshal([]byte(text), &e) != nil || e.Action == "" {
				fmt.Fprintln(s.out, text)
			} else {
				s.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the test events: %w", err)
		}
	}
}

func (s *summary) take(e event) {
	u := unit{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		s.keep(unit{pkg: e.ImportPath}, e.Output)
	case "output":
		s.keep(u, e.Output)
	case "run":
		s.running[u] = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(u, e.Action)
		}
	}
}

func (s *summary) keep(u unit, text string) {
	b := append(s.output[u], text...)
	if len(b) > 2*keptOutput {
		b = slices.Clone(b[len(b)-keptOutput:])
	}
	s.output[u] = b
}

func (s *summary) endTest(u unit, action string) {
	delete(s.running, u)
	switch action {
	case "pass":
		s.passed++
		if s.evidence {
			s.print(u)
		}
	case "skip":
		s.skipped = append(s.skipped, skip{u, reason(s.output[u])})
	case "fail":
		s.fail(u)
	}
	delete(s.output, u)
}

// endPackage closes a package. One that fails although none of its tests did
// (it does not build, it panicked, it ran out of time) counts as a failure itself.
func (s *summary) endPackage(e event) {
	took := time.Duration(e.Elapsed * float64(time.Second))
	if took >= slowPackage {
		s.slow = append(s.slow, timed{e.Package, took})
	}
	u := unit{pkg: e.Package}
	fmt.Fprintf(s.out, "%-4s  %7.2fs  %s\n", word(e), e.Elapsed, e.Package)
	if e.Action == "fail" {
		s.endFailed(u, e.FailedBuild)
	}
	delete(s.output, u)
}

func word(e event) string {
	switch e.Action {
	case "pass":
		return "ok"
	case "skip":
		return "none"
	}
	return "FAIL"
}

func (s *summary) endFailed(u unit, failedBuild string) {
	if failedBuild != "" {
		s.print(unit{pkg: failedBuild})
	}
	cut := false
	for test := range s.running {
		if test.pkg == u.pkg {
			cut = true
			delete(s.running, test)
			s.fail(test)
		}
	}
	if !cut && !slices.ContainsFunc(s.failed, func(f unit) bool { return f.pkg == u.pkg }) {
		s.failed = append(s.failed, u)
	}
	s.print(u)
}

func (s *summary) fail(u unit) {
	s.failed = append(s.failed, u)
	fmt.Fprintf(s.out, "--- FAIL: %s\n", u)
	s.print(u)
}

// print shows what a unit put out.
func (s *summary) print(u unit) {
	for line := range strings.Lines(string(s.output[u])) {
		if strings.HasPrefix(line, "=== ") { // began, paused, went on
			continue
		}
		fmt.Fprintf(s.out, "    %s\n", strings.TrimRight(line, "\n"))
	}
}

// reason finds in the output of a skipped test what it gave as a reason.
func reason(output []byte) string {
	var said []string
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// finish prints the end of the report and says whether the run is good.
func (s *summary) finish() bool {
	for u := range s.running { // the stream broke off
		s.failed = append(s.failed, u)
	}
	s.list("Skipped", len(s.skipped), func(i int) string {
		return fmt.Sprintf("%s: %s", s.skipped[i].unit, s.skipped[i].reason)
	})
	slices.SortFunc(s.slow, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	s.list("Slow packages", min(len(s.slow), slowListed), func(i int) string {
		return fmt.Sprintf("%6.1fs %s", s.slow[i].took.Seconds(), s.slow[i].pkg)
	})
	slices.SortFunc(s.failed, func(a, b unit) int { return strings.Compare(a.String(), b.String()) })
	s.list("Failed", len(s.failed), func(i int) string { return s.failed[i].String() })
	if s.passed == 0 && len(s.failed) == 0 {
		fmt.Fprintln(s.out, "\nNo test ran.")
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), len(s.skipped))
	return len(s.failed) == 0 && s.passed > 0 && !(s.evidence && len(s.skipped) > 0)
}

func (s *summary) list(title string, n int, line func(int) string) {
	if n == 0 {
		return
	}
	fmt.Fprintf(s.out, "\n%s:\n", title)
	for i := range n {
		fmt.Fprintf(s.out, "  %s\n", line(i))
	}
}
