package row

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Report is the common report of all benchmarks. A program embeds it and adds its own fields.
type Report struct {
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Cores   int       `json:"cores"`
	Load    string    `json:"load"` // averages before the run
	Rows    []*Figure `json:"rows"`
	Passed  int       `json:"passed"`
	Failed  int       `json:"failed"`
	Skipped int       `json:"skipped"`
}

// NewReport begins the report of a run that measures the rows of only.
func NewReport(rows []Row, only map[string]bool) *Report {
	r := &Report{Began: time.Now().UTC(), Cores: runtime.NumCPU(), Load: load()}
	for _, x := range rows {
		r.Rows = append(r.Rows, newFigure(x, !only[x.Name]))
	}
	return r
}

// load returns the load averages of this machine.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(raw))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// Only reads a list of rows, such as resume,idle; an empty text means every one.
func Only(rows []Row, text string) (map[string]bool, error) {
	only := map[string]bool{}
	for _, r := range rows {
		only[r.Name] = text == ""
	}
	if text == "" {
		return only, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name }) {
			return nil, fmt.Errorf("unknown row %q", name)
		}
		only[name] = true
	}
	return only, nil
}

// Figure returns the figure of a row.
func (r *Report) Figure(name string) *Figure {
	for _, f := range r.Rows {
		if f.Name == name {
			return f
		}
	}
	panic("no row " + name) // the names are constants of the programs
}

// Wants reports whether one of the rows is requested and has not failed.
func (r *Report) Wants(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		f := r.Figure(name)
		return !f.Skipped && f.Unmeasured == ""
	})
}

// Add adds a sample.
func (r *Report) Add(name string, value float64) {
	f := r.Figure(name)
	f.Samples = append(f.Samples, value)
}

// Note adds a remark to the value of a row.
func (r *Report) Note(name, format string, args ...any) {
	r.Figure(name).Note = fmt.Sprintf(format, args...)
}

// Spoil records why rows cannot be measured; the first reason is kept.
func (r *Report) Spoil(err error, names ...string) {
	for _, name := range names {
		if f := r.Figure(name); f.Unmeasured == "" {
			f.Unmeasured = err.Error()
		}
	}
}

// SpoilMissing is Spoil for those of the rows that have not all their samples.
func (r *Report) SpoilMissing(err error, names ...string) {
	for _, name := range names {
		if f := r.Figure(name); !f.Skipped && len(f.Samples) < f.row.Need {
			r.Spoil(err, name)
		}
	}
}

// Names returns the names of rows.
func Names(rows []Row) (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

// Evaluate computes values from the samples and counts the rows.
func (r *Report) Evaluate() {
	r.Seconds = time.Since(r.Began).Seconds()
	for _, f := range r.Rows {
		f.evaluate()
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

// measured reports whether every requested row has a value.
func (r *Report) measured() bool {
	for _, f := range r.Rows {
		if !f.Skipped && f.Unmeasured != "" {
			return false
		}
	}
	return r.Passed+r.Failed > 0
}

// Check is whether missed targets count too.
type Check bool

// OK reports whether the run ends well: every row measured and, when targets are checked,
// none missed.
func (r *Report) OK(check Check) bool { return r.measured() && (!bool(check) || r.Failed == 0) }

// Print writes the report below a line of the program's own; its last line is the
// count of the rows.
func (r *Report) Print(w io.Writer, head string) {
	width := 9
	for _, f := range r.Rows {
		width = max(width, len(f.Name))
	}
	fmt.Fprintln(w, "\nhow each row is measured:")
	for _, f := range r.Rows {
		fmt.Fprintf(w, "  %-*s %s\n", width, f.Name, f.How)
	}
	fmt.Fprintf(w, "\n%s; %d cores, load %s before the run; %.0f s\n", head, r.Cores, r.Load, r.Seconds)
	for _, f := range r.Rows {
		fmt.Fprintln(w, f.line(width))
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

// Write keeps a report, which has a Report in it, as JSON.
func Write(path string, report any) error {
	raw, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
