// Package doctor runs checks of a service, a node or a machine, and names the remedy of each problem.
//
// It is the frame of checks and those that several programs have: addresses, clocks, certificates, disks and
// versions. It changes nothing but a temporary file, whose write it measures. The checks of a host that runs VMs
// are in internal/agent/hostcheck.
//
// Invariant: a check that cannot be carried out is a warning or a failure, never ok.
package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Outcome is the result of a check.
type Outcome string

// The outcomes, from best to worst.
const (
	OK      Outcome = "ok"
	Warning Outcome = "warning" // works now, or could not be checked
	Failed  Outcome = "failed"
)

// severity orders the outcomes.
var severity = map[Outcome]int{OK: 0, Warning: 1, Failed: 2}

// Finding is what a check found.
type Finding struct {
	Outcome Outcome
	Detail  string
	Remedy  string // what to do; not used when the outcome is OK
}

// Check is one check.
type Check struct {
	Name string
	Find func(context.Context) Finding
}

// Result is the result of one check. Its JSON form is the output of the commands doctor.
type Result struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"`
}

// Timeout bounds one check.
const Timeout = 20 * time.Second

// maxConcurrent bounds the checks that run at a time.
const maxConcurrent = 4

// Run carries out checks, several at a time, and returns their results in the order of the checks.
func Run(ctx context.Context, checks []Check) []Result {
	results := make([]Result, len(checks))
	turns := make(chan struct{}, maxConcurrent)
	var wg sync.WaitGroup
	for i, c := range checks {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			results[i] = c.run(ctx)
		})
	}
	wg.Wait()
	return results
}

// run carries out a check. One that does not end in time continues without a reader.
func (c Check) run(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	done := make(chan Finding, 1)
	go func() { done <- c.Find(ctx) }()

	var f Finding
	select {
	case f = <-done:
	case <-ctx.Done():
		f = Finding{Warning, fmt.Sprintf("the check did not end within %s", Timeout), "repeat it"}
	}
	r := Result{Name: c.Name, Outcome: f.Outcome, Detail: f.Detail}
	if f.Outcome != OK {
		r.Remedy = f.Remedy
	}
	return r
}

// Worst returns the worst outcome; OK without results.
func Worst(results []Result) Outcome {
	worst := OK
	for _, r := range results {
		if severity[r.Outcome] > severity[worst] {
			worst = r.Outcome
		}
	}
	return worst
}

// Count returns the number of results with an outcome.
func Count(results []Result, o Outcome) int {
	n := 0
	for _, r := range results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}
