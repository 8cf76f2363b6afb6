package fault

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/buildyard/buildyard/test/fault/crash"
)

// result is what one target measured.
type result struct {
	Target       string        `json:"target"`
	Kills        int           `json:"kills"`
	Planned      int           `json:"kills_planned"`
	Others       int           `json:"other_kills"` // of programs that are not the target
	Acknowledged int           `json:"acknowledged"`
	Needed       int           `json:"needed"` // acknowledged calls, at least
	Errors       int           `json:"errors"` // instances that ended in Error, where a kill may do that
	Lost         int           `json:"lost"`
	Orphans      int           `json:"orphans"`
	Stuck        int           `json:"stuck"`
	Wrong        int           `json:"wrong"`
	Saves        *saveSum      `json:"saves,omitempty"` // of targets that save
	Storm        *stormSum     `json:"storm,omitempty"` // of the target with a load by the clock
	Crash        *crash.Report `json:"crash,omitempty"` // of the target with points
	// Faults counts what was done in a target with several faults; each of mustMeet has to be among them.
	Faults     map[string]int `json:"faults,omitempty"`
	mustMeet   []string
	Problems   []string `json:"problems"`
	Seconds    float64  `json:"seconds"`
	Unmeasured string   `json:"unmeasured,omitempty"` // why the figures are not whole
	Skipped    string   `json:"skipped,omitempty"`    // why the target could not run here
}

// count adds findings.
func (r *result) count(all ...findings) {
	for _, f := range all {
		r.Lost += f.Lost
		r.Orphans += f.Orphans
		r.Stuck += f.Stuck
		r.Wrong += f.Wrong
		r.Problems = append(r.Problems, f.Problems...)
	}
}

// verdict is the outcome of one required case.
type verdict struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // passed, failed or skipped
	Detail  string `json:"detail"`
}

// report is the report of a run.
type report struct {
	Seed    uint64    `json:"seed"`
	N       int       `json:"n"`
	Began   time.Time `json:"began"`
	Results []result  `json:"targets"`
	Cases   []verdict `json:"cases"`
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Skipped int       `json:"skipped"`
}

// evaluate derives the required cases from the figures. A target that could not run is skipped; one
// that was not measured to its end fails.
func (r *report) evaluate() {
	for _, res := range r.Results {
		r.evaluateTarget(res)
	}
}

// figure is one required case of a target.
type figure struct {
	name    string
	good    bool
	measure string
}

// What a storm has to reach: the share of its creates that were offered by the clock,
// and of those offered while the controller was up the share that was acknowledged.
// leastCrowd is the share of a node's slots that were surely taken at some moment: with fewer
// nothing was tried that could have put too many on it.
const (
	leastOffered = 0.95
	leastServed  = 0.9
	leastCrowd   = 0.8
)

func (r *report) evaluateTarget(res result) {
	figures := []figure{
		{"kills", res.Kills >= res.Planned && res.Planned > 0, fmt.Sprintf("%d of %d", res.Kills, res.Planned)},
		{"acknowledged", res.Acknowledged >= res.Needed &&
			res.Needed > 0, fmt.Sprintf("%d of %d", res.Acknowledged, res.Needed)},
		{"lost", res.Lost == 0, fmt.Sprint(res.Lost)},
		{"orphans", res.Orphans == 0, fmt.Sprint(res.Orphans)},
		{"stuck", res.Stuck == 0, fmt.Sprint(res.Stuck)},
		{"wrong", res.Wrong == 0, fmt.Sprint(res.Wrong)},
	}
	if s := res.Storm; s != nil {
		figures = append(figures,
			figure{"offered", s.PerS >= leastOffered*s.Need, fmt.Sprintf("%.0f creates/s of %.0f", s.PerS, s.Need)},
			figure{"served", s.Share >= leastServed &&
				s.WhileUp > 0, fmt.Sprintf("%d of %d creates offered while it was up", s.Served, s.WhileUp)},
			figure{"streams", s.Streams > 0, fmt.Sprint(s.Streams)},
			figure{
				"crowded", s.Slots > 0 && float64(s.Fullest) >= leastCrowd*float64(s.Slots),
				fmt.Sprintf("at most %d of %d slots of a node", s.Fullest, s.Slots),
			},
		)
	}
	if c := res.Crash; c != nil {
		figures = append(figures, crashFigures(c)...)
	}
	for _, fault := range res.mustMeet {
		figures = append(figures, figure{fault, res.Faults[fault] > 0, fmt.Sprint(res.Faults[fault])})
	}
	for _, f := range figures {
		name := res.Target + ": " + f.name
		switch {
		case res.Skipped != "":
			r.add(name, "skipped", res.Skipped)
		case res.Unmeasured != "":
			r.add(name, "failed", "not measured: "+res.Unmeasured)
		default:
			r.decide(name, f.good, f.measure)
		}
	}
}

func (r *report) decide(name string, good bool, detail string) {
	outcome := "failed"
	if good {
		outcome = "passed"
	}
	r.add(name, outcome, detail)
}

func (r *report) add(name, outcome, detail string) {
	r.Cases = append(r.Cases, verdict{name, outcome, detail})
	switch outcome {
	case "passed":
		r.Passed++
	case "failed":
		r.Failed++
	default:
		r.Skipped++
	}
}

// ok reports whether the run proves what it is for: every case is there and passed.
func (r *report) ok() bool { return r.Failed == 0 && r.Skipped == 0 && r.Passed > 0 }

// mostProblems bounds the sentences that are printed of a target; the file has all.
const mostProblems = 20

// print writes the report; its last line is the count of the cases.
func (r *report) print(w io.Writer) {
	for _, res := range r.Results {
		for i, p := range res.Problems {
			if i == mostProblems {
				fmt.Fprintf(w, "%-10s ... and %d more\n", res.Target, len(res.Problems)-i)
				break
			}
			fmt.Fprintf(w, "%-10s %s\n", res.Target, p)
		}
	}
	for _, res := range r.Results {
		fmt.Fprintf(w,
			"%-10s kills %d, other kills %d, acknowledged %d, errors %d, lost %d, orphans %d, stuck %d, wrong %d "+
				"(%.0f s)\n",
			res.Target, res.Kills, res.Others, res.Acknowledged, res.Errors, res.Lost, res.Orphans, res.Stuck,
			res.Wrong, res.Seconds)
		if res.Storm != nil {
			fmt.Fprintf(w, "%-10s %s\n", res.Target, res.Storm)
		}
		if res.Saves != nil {
			fmt.Fprintf(w, "%-10s %s\n", res.Target, res.Saves)
		}
		if res.Crash != nil {
			res.Crash.Print(w)
		}
		if res.Faults != nil {
			fmt.Fprintf(w, "%-10s %v\n", res.Target, res.Faults)
		}
	}
	for _, c := range r.Cases {
		if c.Outcome != "passed" {
			fmt.Fprintf(w, "%s: %s (%s)\n", c.Outcome, c.Name, c.Detail)
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

// write keeps the report as JSON.
func (r *report) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
