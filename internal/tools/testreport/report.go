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
)

const (
	maxFlaky   = 3         // flaky tests that a run may have
	slowListed = 20        // slow tests that are listed
	maxOutput  = 256 << 10 // bytes that are kept of one test's output: the end of it
)

// event is one line of go test -json (see go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// id names a test; Test is "" for the package itself.
type id struct{ pkg, test string }

func (i id) String() string { return strings.TrimSuffix(i.pkg+" "+i.test, " ") }

// run is the last result of a test, and its first failure.
type run struct {
	last    string  // the last event: "run", "pass", "fail" or "skip"
	elapsed float64 // seconds, of the longest run
	output  string  // since the test began
	failure string  // the output of the first failure, with the seed of the order of tests
}

// report sums up the events of a run. Create it with newReport.
type report struct {
	out  io.Writer
	runs map[id]*run
	seed map[string]string // by package

	passed                 int
	failed, flaky, skipped []id
}

func newReport(out io.Writer) *report {
	return &report{out: out, runs: map[id]*run{}, seed: map[string]string{}}
}

// read reads events until the end; other lines are ignored, as gotestsum has printed them.
func (r *report) read(in io.Reader) error {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Package != "" {
			r.take(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the events: %w", err)
		}
	}
}

func (r *report) of(i id) *run {
	if r.runs[i] == nil {
		r.runs[i] = &run{}
	}
	return r.runs[i]
}

func (r *report) take(e event) {
	t := r.of(id{e.Package, e.Test})
	switch e.Action {
	case "start", "run":
		t.last, t.output = "run", ""
	case "output":
		if seed, ok := strings.CutPrefix(e.Output, "-test.shuffle "); ok {
			r.seed[e.Package] = strings.TrimSpace(seed)
		}
		if t.output += e.Output; len(t.output) > 2*maxOutput {
			t.output = t.output[len(t.output)-maxOutput:]
		}
	case "pass", "skip", "fail":
		t.last, t.elapsed = e.Action, max(t.elapsed, e.Elapsed)
		if e.Action == "fail" && t.failure == "" {
			t.failure = fmt.Sprintf("-shuffle=%s\n%s", cmp.Or(r.seed[e.Package], "off"), t.output)
		}
		if e.Action == "pass" {
			t.output = ""
		}
	}
}

// finish prints the end of the report and reports whether the run is good; ran is gotestsum's result.
func (r *report) finish(ran bool) bool {
	r.sort()
	r.list("skipped", r.skipped, func(i id) string { return ": " + reason(r.runs[i].output) })
	r.list("flaky", r.flaky, func(i id) string { return "\n" + indent(r.runs[i].failure) })
	r.list("failed", r.failed, r.unseen)
	failed := len(r.failed)
	if len(r.flaky) > 0 {
		fmt.Fprintf(r.out, "\n%d flaky; more than %d fail the run\n", len(r.flaky), maxFlaky)
	}
	switch {
	case len(r.flaky) > maxFlaky:
		failed++
	case failed > 0:
	case r.passed == 0:
		fmt.Fprintln(r.out, "\nNo test passed.")
		failed++
	case !ran:
		fmt.Fprintln(r.out, "\nThe run ended with an error; see above.")
		failed++
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.passed, failed, len(r.skipped))
	return failed == 0
}

// unseen returns the output that gotestsum does not show: that of a package whose tests did not
// complete, and of the test that was running then.
func (r *report) unseen(i id) string {
	if i.test == "" {
		return "\n" + indent(r.runs[i].output)
	}
	if r.runs[i].last != "run" {
		return ""
	}
	return "\n" + indent(r.runs[i].output+r.of(id{pkg: i.pkg}).output)
}

// sort assigns every test to its result. A package that failed although none of its tests did
// counts as a test: it did not build, or its TestMain failed.
func (r *report) sort() {
	failedIn := map[id]bool{} // tests with a subtest that failed at least once
	for i, t := range r.runs {
		if i.test != "" && (t.failure != "" || t.last == "run") {
			for _, outer := range outers(i) {
				failedIn[outer] = true
			}
		}
	}
	for i, t := range r.runs {
		switch {
		case i.test == "":
			if t.failure != "" && !failedIn[i] {
				r.failed = append(r.failed, i)
			}
		case t.last == "fail" || t.last == "run":
			r.failed = append(r.failed, i)
		case t.last == "skip":
			r.skipped = append(r.skipped, i)
		default:
			r.passed++
			if t.failure != "" && !failedIn[i] {
				r.flaky = append(r.flaky, i)
			}
		}
	}
}

// outers returns the tests that a test is part of, and its package.
func outers(i id) []id {
	all := []id{{pkg: i.pkg}}
	for at, c := range i.test {
		if c == '/' {
			all = append(all, id{i.pkg, i.test[:at]})
		}
	}
	return all
}

func (r *report) printSlow() {
	var all []id
	for i := range r.runs {
		if i.test != "" && !strings.Contains(i.test, "/") {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b id) int { return cmp.Compare(r.runs[b].elapsed, r.runs[a].elapsed) })
	fmt.Fprintln(r.out, "\nslowest tests:")
	for _, i := range all[:min(len(all), slowListed)] {
		fmt.Fprintf(r.out, "  %6.2f s %s\n", r.runs[i].elapsed, i)
	}
}

func (r *report) list(title string, all []id, more func(id) string) {
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b id) int { return strings.Compare(a.String(), b.String()) })
	fmt.Fprintf(r.out, "\n%s:\n", title)
	for _, i := range all {
		fmt.Fprintf(r.out, "  %s\n", strings.TrimRight(i.String()+more(i), "\n"))
	}
}

// reason returns the reason in the output of a skipped test.
func reason(output string) string {
	said := strings.Join(strings.Fields(indent(output)), " ")
	return cmp.Or(said, "no reason given")
}

// indent returns the output of a test without the markers of the test runner.
func indent(output string) string {
	var kept []string
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			kept = append(kept, "    "+strings.TrimRight(line, "\n"))
		}
	}
	return strings.TrimRight(strings.Join(kept, "\n"), " \n")
}
