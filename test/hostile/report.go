package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/test/rig"
)

// row is what came of one attack.
type row struct {
	Name    string         `json:"name"`
	Tried   int            `json:"tried"`
	Refused int            `json:"refused"`
	With    map[string]int `json:"with,omitempty"`   // how often by kind of refusal
	Effect  string         `json:"effect,omitempty"` // on others
	Fault   string         `json:"fault,omitempty"`  // "": held off
	Skipped string         `json:"skipped,omitempty"`
}

// line is the evidence of an attack.
func (r row) line() string {
	switch {
	case r.Skipped != "":
		return fmt.Sprintf("SKIPPED %s: %s", r.Name, r.Skipped)
	case r.Fault != "":
		return fmt.Sprintf("FAILED  %s: tried %d, refused %d%s; %s", r.Name, r.Tried, r.Refused, r.with(), r.Fault)
	}
	return fmt.Sprintf("ok      %s: tried %d, refused %d%s; others: %s", r.Name, r.Tried, r.Refused, r.with(), r.Effect)
}

// with lists the kinds of refusals, the most frequent first.
func (r row) with() string {
	if len(r.With) == 0 {
		return ""
	}
	kinds := slices.SortedFunc(maps.Keys(r.With), func(a, b string) int {
		if r.With[a] != r.With[b] {
			return r.With[b] - r.With[a]
		}
		return strings.Compare(a, b)
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s x %d", kind, r.With[kind])
	}
	return " (" + strings.Join(kinds, ", ") + ")"
}

// report is what a run found.
type report struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Rows    []row   `json:"rows"`
	Mixed   *mixed  `json:"mixed,omitempty"`
	Seconds float64 `json:"seconds"`

	out io.Writer
}

// add prints and counts a row.
func (r *report) add(one row) {
	r.Rows = append(r.Rows, one)
	switch {
	case one.Skipped != "":
		r.Skipped++
	case one.Fault != "":
		r.Failed++
	default:
		r.Passed++
	}
	fmt.Fprintln(r.out, one.line())
}

// close prints the last line, which is for programs.
func (r *report) close() {
	fmt.Fprintf(r.out, "%d attacks in %.0f s\n", len(r.Rows), r.Seconds)
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

// well reports whether every attack was tried and held off.
func (r *report) well() bool { return r.Passed > 0 && r.Failed == 0 && r.Skipped == 0 }

func (r *report) write(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}

// outcome collects what is answered to the tries of an attack. It may be used from many goroutines.
type outcome struct {
	mu      sync.Mutex // guards the fields below
	tried   int
	refused map[string]int
	taken   map[string]int // answers that are no refusals
	effects []string
	faults  []error
}

// refuse counts a try that was refused with something.
func (o *outcome) refuse(with string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused == nil {
		o.refused = map[string]int{}
	}
	o.tried++
	o.refused[with]++
}

// take counts a try that was answered as it wanted.
func (o *outcome) take(with string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken == nil {
		o.taken = map[string]int{}
	}
	o.tried++
	o.taken[with]++
}

// note counts an answer: a refusal from 400 on, or with status FAIL. It returns the code.
func (o *outcome) note(a answer, err error) int {
	switch {
	case err != nil:
		o.fault("no answer: %v", err)
	case a.code >= 400 || a.envelope().Status == "FAIL":
		o.refuse(fmt.Sprint(a.code))
	default:
		o.take(fmt.Sprint(a.code))
	}
	return a.code
}

// want counts an answer and reports a fault for any code but those given.
func (o *outcome) want(what string, a answer, err error, codes ...int) {
	if code := o.note(a, err); err == nil && !slices.Contains(codes, code) {
		o.fault("%s is answered %d %.200s", what, code, a.body)
	}
}

// fault records why the attack counts as not repelled.
func (o *outcome) fault(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, fmt.Errorf(format, args...))
}

// check finds fault when err is not nil.
func (o *outcome) check(err error) {
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.faults = append(o.faults, err)
	}
}

// effect records a figure of what the attack cost others.
func (o *outcome) effect(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.effects = append(o.effects, fmt.Sprintf(format, args...))
}

// count returns how many tries were refused with something, and how many were taken.
func (o *outcome) count(with string) (refused, taken int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.taken {
		taken += n
	}
	return o.refused[with], taken
}

// mostFaults bounds the faults of one attack that are printed.
const mostFaults = 5

// row returns what came of the attack.
func (o *outcome) row(name string) row {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := row{Name: name, Tried: o.tried, With: o.refused, Effect: strings.Join(o.effects, ", ")}
	for _, n := range o.refused {
		r.Refused += n
	}
	err := errors.Join(o.faults[:min(len(o.faults), mostFaults)]...)
	switch {
	case errors.Is(errors.Join(o.faults...), rig.ErrSkip):
		r.Skipped = err.Error()
	case err != nil:
		r.Fault = strings.ReplaceAll(err.Error(), "\n", "; ")
	case o.tried == 0:
		r.Fault = "nothing was tried"
	case r.Effect == "":
		r.Fault = "no effect on others was measured"
	}
	return r
}
