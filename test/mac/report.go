package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// The outcomes of a case.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// row is the result of one case.
type row struct {
	Name     string             `json:"name"`
	Outcome  string             `json:"outcome"`
	Evidence []string           `json:"evidence"` // what was seen
	Faults   []string           `json:"faults,omitempty"`
	Figures  map[string]float64 `json:"figures,omitempty"`
	Seconds  float64            `json:"seconds"`
}

// note adds evidence.
func (r *row) note(format string, args ...any) {
	r.Evidence = append(r.Evidence, fmt.Sprintf(format, args...))
}

// check adds evidence of what holds, otherwise a fault.
func (r *row) check(holds bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if holds {
		r.Evidence = append(r.Evidence, text)
		return
	}
	r.Faults = append(r.Faults, "not so: "+text)
}

// fail records an error as a fault.
func (r *row) fail(err error) {
	if err != nil {
		r.Faults = append(r.Faults, err.Error())
	}
}

// figure records a number for the JSON.
func (r *row) figure(name string, value float64) {
	if r.Figures == nil {
		r.Figures = map[string]float64{}
	}
	r.Figures[name] = value
}

// conclude decides the outcome: a case without evidence has shown nothing.
func (r *row) conclude(took time.Duration) {
	r.Seconds = took.Seconds()
	r.Outcome = passed
	if len(r.Evidence) == 0 && len(r.Faults) == 0 {
		r.Faults = []string{"nothing was seen"}
	}
	if len(r.Faults) > 0 {
		r.Outcome = failed
	}
}

// report is the report of a run.
type report struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
	Rows    []row   `json:"rows"`

	began    time.Time
	required []string // names of cases that have to pass

	mu  sync.Mutex // guards Rows, the counts and out
	out io.Writer
}

func newReport(out io.Writer, required []string) *report {
	return &report{out: out, required: required, began: time.Now()}
}

// add prints and counts a row.
func (r *report) add(one row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rows = append(r.Rows, one)
	switch one.Outcome {
	case passed:
		r.Passed++
	case skipped:
		r.Skipped++
	default:
		r.Failed++
	}
	fmt.Fprintf(r.out, "%-7s %-34s %5.1f s  %s\n", one.Outcome, one.Name, one.Seconds, strings.Join(one.Evidence, "; "))
	for _, fault := range one.Faults {
		fmt.Fprintf(r.out, "    %s\n", strings.ReplaceAll(fault, "\n", "\n    "))
	}
}

// close counts required cases without a row as failed, and prints the last line, which is for programs.
func (r *report) close() {
	for _, name := range r.required {
		if !slices.ContainsFunc(r.Rows, func(one row) bool { return one.Name == name }) {
			r.add(row{Name: name, Outcome: failed, Faults: []string{"the case was not run"}})
		}
	}
	r.Seconds = time.Since(r.began).Seconds()
	fmt.Fprintf(r.out, "%d cases in %.0f s\n%d passed, %d failed, %d skipped\n", len(r.Rows), r.Seconds, r.Passed,
		r.Failed, r.Skipped)
}

// ok reports whether every required case passed.
func (r *report) ok() bool { return r.Passed > 0 && r.Failed == 0 && r.Skipped == 0 }

func (r *report) write(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}
