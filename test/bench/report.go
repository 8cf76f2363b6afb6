package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// row is one promise: a figure that must not be above its target.
type row struct {
	name   string
	what   string
	how    string // it is measured
	unit   string
	target float64
	digits int  // after the point, as printed
	paired bool // one sample a pair; else a single one
}

// The rows, by what they promise.
const (
	rowOverhead = "overhead"
	rowResume   = "resume"
	rowPause    = "pause"
	rowIdle     = "idle"
)

// minPairs is how many pairs a figure needs to count.
const minPairs = 5

var rows = []row{
	{
		name: rowOverhead, what: "own part of a cold start, p50", unit: "ms", target: 150, paired: true,
		how: "(POST sent until Started seen) - (QEMU's process started until the guest's agent opened its port); the first by this client, " +
			"polling every 5 ms, QEMU's start by the start_date that the API gives, the agent's port by the time in QEMU's event; the template is cached",
	},
	{
		name: rowResume, what: "start of a suspended version / cold start, median of the pairs", unit: "x", target: 0.25, digits: 2, paired: true,
		how: "both from POST sent until Started seen, one after the other, the order changes with each pair; v2 is v1 saved while it ran",
	},
	{
		name: rowPause, what: "guest stands still for a save, median", unit: "ms", target: 400, paired: true,
		how: "the longer of what the driver measured and of the time between QEMU's own STOP and RESUME events; before each save the guest writes 32 MiB of noise to memory and 32 MiB to its disk",
	},
	{
		name: rowIdle, what: fmt.Sprintf("CPU of %d idle guests, of one core", idleGuests), unit: "%", target: 10, digits: 1,
		how: fmt.Sprintf("user and system time of their QEMU processes over %s, %s after the last one was Started; resumed from v2, 256 MB each",
			idleTime, settleTime),
	},
}

// figure is what a run found out about a row.
type figure struct {
	Name       string    `json:"name"`
	What       string    `json:"what"`
	How        string    `json:"how"`
	Unit       string    `json:"unit"`
	Target     float64   `json:"target"` // at most
	Value      float64   `json:"value"`  // median of the samples; 0 when unmeasured
	Samples    []float64 `json:"samples"`
	OK         bool      `json:"ok"`
	Unmeasured string    `json:"unmeasured,omitempty"` // why there is no value
	Skipped    bool      `json:"skipped,omitempty"`    // it was not asked for
	row        row
}

// report is everything that a run says.
type report struct {
	Began      time.Time  `json:"began"`
	Seconds    float64    `json:"seconds"`
	Pairs      int        `json:"pairs"`
	Cores      int        `json:"cores"`
	Load       string     `json:"load"` // averages before the run
	Hypervisor hypervisor `json:"hypervisor"`
	Rows       []*figure  `json:"rows"`
	Starts     []interval `json:"starts"` // of the pairs, in their order
	Passed     int        `json:"passed"`
	Failed     int        `json:"failed"`
	Skipped    int        `json:"skipped"`
}

// hypervisor is what the node says of the one that it drives.
type hypervisor struct {
	Product     string `json:"product"`
	Version     string `json:"version"`
	Accelerator string `json:"accelerator"`
}

func (h hypervisor) String() string {
	if h.Product == "" {
		return "no hypervisor was seen"
	}
	return fmt.Sprintf("%s %s, accelerator %s", h.Product, h.Version, h.Accelerator)
}

// interval is how the time of one start was spent, in milliseconds.
type interval struct {
	Pair   int     `json:"pair"`
	Tag    string  `json:"tag"`
	Whole  float64 `json:"whole_ms"`       // from POST sent until Started seen
	Before float64 `json:"before_qemu_ms"` // until QEMU was started
	Boot   float64 `json:"boot_ms"`        // until the guest's agent had opened its port
	After  float64 `json:"after_ready_ms"` // until Started was seen
}

func newReport(o options) *report {
	r := &report{Began: time.Now().UTC(), Pairs: o.pairs, Starts: []interval{}}
	for _, x := range rows {
		r.Rows = append(r.Rows, &figure{
			Name: x.name, What: x.what, How: x.how, Unit: x.unit, Target: x.target,
			Samples: []float64{}, Skipped: !o.only[x.name], row: x,
		})
	}
	return r
}

// figure gives the figure of a row.
func (r *report) figure(name string) *figure {
	for _, f := range r.Rows {
		if f.Name == name {
			return f
		}
	}
	panic("no row " + name) // the names are constants of this program
}

// wants says whether one of the rows is asked for and has not failed.
func (r *report) wants(names ...string) bool {
	for _, name := range names {
		if f := r.figure(name); !f.Skipped && f.Unmeasured == "" {
			return true
		}
	}
	return false
}

// add takes a sample.
func (r *report) add(name string, value float64) {
	f := r.figure(name)
	f.Samples = append(f.Samples, value)
}

// note keeps how the time of a start was spent.
func (r *report) note(pair int, tag string, s start) {
	r.Starts = append(r.Starts, interval{pair, tag, ms(s.whole), ms(s.before), ms(s.boot), ms(s.after)})
}

// spoil says why rows cannot be measured; the first reason counts.
func (r *report) spoil(err error, names ...string) {
	for _, name := range names {
		if f := r.figure(name); f.Unmeasured == "" {
			f.Unmeasured = err.Error()
		}
	}
}

// judge makes the samples values and counts the rows. Rows without enough samples are
// not measured.
func (r *report) judge() {
	r.Seconds = time.Since(r.Began).Seconds()
	for _, f := range r.Rows {
		f.judge()
		switch {
		case f.Skipped:
			r.Skipped++
		case f.OK:
			r.Passed++
		default:
			r.Failed++
		}
	}
}

func (f *figure) judge() {
	need := 1
	if f.row.paired {
		need = minPairs
	}
	if f.Skipped {
		return
	}
	if f.Unmeasured == "" && len(f.Samples) < need {
		f.Unmeasured = fmt.Sprintf("%d samples, it needs %d", len(f.Samples), need)
	}
	if f.Unmeasured == "" {
		f.Value = median(f.Samples)
		f.OK = f.Value <= f.Target
	}
}

// measured says whether every row that was asked for has a value.
func (r *report) measured() bool {
	for _, f := range r.Rows {
		if !f.Skipped && f.Unmeasured != "" {
			return false
		}
	}
	return r.Passed+r.Failed > 0
}

// ok says whether the run ends well: every row measured and, when targets are checked,
// none missed.
func (r *report) ok(check bool) bool { return r.measured() && (!check || r.Failed == 0) }

// print writes the report; its last line is the count of the rows.
func (r *report) print(w io.Writer) {
	fmt.Fprintln(w, "\nhow each row is measured:")
	for _, f := range r.Rows {
		fmt.Fprintf(w, "  %-9s %s\n", f.Name, f.How)
	}
	fmt.Fprintf(w, "\n%s; %d cores, load %s before the run; %d pairs, %.0f s\n", r.Hypervisor, r.Cores, r.Load, r.Pairs, r.Seconds)
	for _, f := range r.Rows {
		fmt.Fprintln(w, f)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

// String is the row with value, target and verdict.
func (f *figure) String() string {
	verdict := "ok"
	switch {
	case f.Skipped:
		return fmt.Sprintf("%-9s skipped: %s", f.Name, f.What)
	case f.Unmeasured != "":
		return fmt.Sprintf("%-9s not measured: %s", f.Name, f.Unmeasured)
	case !f.OK:
		verdict = "MISSED"
	}
	number := func(v float64) string { return fmt.Sprintf("%.*f", f.row.digits, v) }
	samples := make([]string, len(f.Samples))
	for i, s := range f.Samples {
		samples[i] = number(s)
	}
	return fmt.Sprintf("%-9s %8s %-2s  target <= %s %-2s  %-6s  %s (%s)", f.Name, number(f.Value), f.Unit,
		number(f.Target), f.Unit, verdict, f.What, strings.Join(samples, " "))
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
