package crash

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Report is what a walk found.
type Report struct {
	Points   []*Point `json:"points"`
	Work     []*Work  `json:"operations"`
	Flips    []Flip   `json:"flips"`
	Problems []string `json:"problems"`
	NoDisk   string   `json:"no_small_disk,omitempty"` // why no disk could be filled
}

// Point is one step and what came of it, over all operations that come to it.
type Point struct {
	Name       string   `json:"name"`
	Operations []string `json:"operations"`
	Reason     string   `json:"reason,omitempty"` // why no operation comes to it
	Kills      Outcome  `json:"kills"`
	Full       Outcome  `json:"full"`
}

// Work is an operation and what came of cutting it.
type Work struct {
	Name  string  `json:"name"`
	Kills Outcome `json:"kills"`
	Full  Outcome `json:"full"`
}

// Outcome sums up trials.
type Outcome struct {
	Planned      int `json:"planned"`
	Tried        int `json:"tried"`
	Acknowledged int `json:"acknowledged"` // versions that had to be there behind each
	Before       int `json:"before"`       // the operation had not happened
	After        int `json:"after"`        // it had happened, also where that changed no version
	Lost         int `json:"lost"`         // acknowledged versions that are not there or cannot be pulled
	Missing      int `json:"missing"`      // losses that a check found
	Orphans      int `json:"orphans"`      // layer files that no version names in the end
	Wrong        int `json:"wrong"`        // whatever else is not as it must be
}

func (o *Outcome) add(p Outcome) {
	o.Planned += p.Planned
	o.Tried += p.Tried
	o.Acknowledged += p.Acknowledged
	o.Before += p.Before
	o.After += p.After
	o.Lost += p.Lost
	o.Missing += p.Missing
	o.Orphans += p.Orphans
	o.Wrong += p.Wrong
}

// Flip is one way to damage a bit.
type Flip struct {
	Name    string `json:"name"`
	Tried   int    `json:"tried"`
	Refused int    `json:"refused"` // an error, and nothing was taken
	Healed  int    `json:"healed"`  // what was sent again was whole
	Taken   int    `json:"taken"`   // the damage went through
}

// Kills sums up all kills, Full all full disks.
func (r *Report) Kills() Outcome { return r.sum(func(p *Point) Outcome { return p.Kills }) }

// Full sums up the trials with a full disk.
func (r *Report) Full() Outcome { return r.sum(func(p *Point) Outcome { return p.Full }) }

func (r *Report) sum(of func(*Point) Outcome) (all Outcome) {
	for _, p := range r.Points {
		all.add(of(p))
	}
	return all
}

// Unmet returns the steps that no operation came to without a reason, and those that have one and were met.
func (r *Report) Unmet() (names []string) {
	for _, p := range r.Points {
		if (len(p.Operations) == 0) != (p.Reason != "") {
			names = append(names, p.Name)
		}
	}
	return names
}

// point returns the row of a step, a new one for a step that the sources do not have.
func (r *Report) point(name string) *Point {
	for _, p := range r.Points {
		if p.Name == name {
			return p
		}
	}
	p := &Point{Name: name}
	r.Points = append(r.Points, p)
	return p
}

// count adds a trial to its point and its operation.
func (r *Report) count(t *trial) {
	for len(r.Work) < len(operations) {
		r.Work = append(r.Work, &Work{Name: operations[len(r.Work)].name})
	}
	p, w := r.point(t.step), r.Work[t.meeting.op]
	if t.full {
		p.Full.add(t.out)
		w.Full.add(t.out)
	} else {
		p.Kills.add(t.out)
		w.Kills.add(t.out)
	}
	r.Problems = append(r.Problems, t.problems...)
}

const columns = "kills\tbefore\tafter\tacknowledged\tlost\tmissing\torphans\twrong\tfull " +
	"disk\tbefore\tafter\tlost\tmissing\torphans\twrong\t"

func (o Outcome) cells() string {
	return fmt.Sprintf("%d\t%d\t%d", o.Tried, o.Before, o.After)
}

func (o Outcome) faults() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t", o.Lost, o.Missing, o.Orphans, o.Wrong)
}

// Print writes the points and operations with their outcomes as tables, and the flipped bits behind them.
func (r *Report) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, operations any, k, f Outcome) {
		fmt.Fprintf(w, "%s\t%v\t%s\t%d\t%s%s\t%s\n", name, operations, k.cells(), k.Acknowledged, k.faults(), f.cells(),
			f.faults())
	}
	fmt.Fprintln(w, "point\toperations\t"+columns)
	for _, p := range r.Points {
		row(p.Name, len(p.Operations), p.Kills, p.Full)
	}
	row("all", len(r.Work), r.Kills(), r.Full())
	_ = w.Flush()
	fmt.Fprintln(w, "operation\tpoints\t"+columns)
	for _, op := range r.Work {
		row(op.Name, r.pointsOf(op.Name), op.Kills, op.Full)
	}
	_ = w.Flush()
	fmt.Fprintln(w, "flipped bit\ttried\trefused\thealed\ttaken\t")
	for _, f := range r.Flips {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", f.Name, f.Tried, f.Refused, f.Healed, f.Taken)
	}
	_ = w.Flush()
	for _, p := range r.Points {
		if p.Reason != "" {
			fmt.Fprintf(out, "%s: not met: %s\n", p.Name, p.Reason)
		}
	}
}

// pointsOf counts the points that an operation comes to.
func (r *Report) pointsOf(operation string) (n int) {
	for _, p := range r.Points {
		if slices.Contains(p.Operations, operation) {
			n++
		}
	}
	return n
}

// problem records what is wrong with a trial.
func (r *Report) problem(where, format string, args ...any) {
	r.Problems = append(r.Problems, where+": "+fmt.Sprintf(format, args...))
}
