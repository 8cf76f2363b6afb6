package row

import (
	"fmt"
	"slices"
	"strings"
)

// Row is one promise: a figure that must not be on the wrong side of its target.
type Row struct {
	Name     string
	What     string
	How      string // it is measured
	Unit     string
	Target   float64
	AtLeast  bool    // the value must not be below the target; else not above it
	Digits   int     // after the point, as printed
	Need     int     // samples that a value needs
	Quantile float64 // of the samples that is the value; 0: their median
}

// Figure is what a run found out about a row.
type Figure struct {
	Name       string    `json:"name"`
	What       string    `json:"what"`
	How        string    `json:"how"`
	Unit       string    `json:"unit"`
	Target     float64   `json:"target"`
	AtLeast    bool      `json:"at_least,omitempty"` // the target is the least value, not the greatest
	Value      float64   `json:"value"`              // 0 when unmeasured
	Samples    []float64 `json:"samples"`
	OK         bool      `json:"ok"`
	Note       string    `json:"note,omitempty"`       // a remark about the value
	Unmeasured string    `json:"unmeasured,omitempty"` // why the value is missing
	Skipped    bool      `json:"skipped,omitempty"`    // it was not requested
	row        Row
}

func newFigure(r Row, skipped bool) *Figure {
	return &Figure{
		Name: r.Name, What: r.What, How: r.How, Unit: r.Unit, Target: r.Target, AtLeast: r.AtLeast,
		Samples: []float64{}, Skipped: skipped, row: r,
	}
}

// evaluate computes the value from the samples. A row without enough of them is not measured.
func (f *Figure) evaluate() {
	if f.Skipped {
		return
	}
	if f.Unmeasured == "" && len(f.Samples) < f.row.Need {
		f.Unmeasured = fmt.Sprintf("%d samples, it needs %d", len(f.Samples), f.row.Need)
	}
	if f.Unmeasured != "" {
		return
	}
	if f.Value = Median(f.Samples); f.row.Quantile > 0 {
		f.Value = Quantile(f.Samples, f.row.Quantile)
	}
	f.OK = f.Value <= f.Target
	if f.AtLeast {
		f.OK = f.Value >= f.Target
	}
}

// fewSamples is how many samples are printed one by one.
const fewSamples = 12

// line is the row with value, target and verdict; names take width characters.
func (f *Figure) line(width int) string {
	verdict := "ok"
	switch {
	case f.Skipped:
		return fmt.Sprintf("%-*s skipped: %s", width, f.Name, f.What)
	case f.Unmeasured != "":
		return fmt.Sprintf("%-*s not measured: %s", width, f.Name, f.Unmeasured)
	case !f.OK:
		verdict = "MISSED"
	}
	bound := "<="
	if f.AtLeast {
		bound = ">="
	}
	return fmt.Sprintf("%-*s %8s %-2s  target %s %s %-2s  %-6s  %s (%s)", width, f.Name, f.number(f.Value), f.Unit,
		bound, f.number(f.Target), f.Unit, verdict, f.What, f.detail())
}

func (f *Figure) number(v float64) string { return fmt.Sprintf("%.*f", f.row.Digits, v) }

// detail is what stands behind the value: its samples, or their bounds when there are
// many, and the note.
func (f *Figure) detail() string {
	text := make([]string, 0, len(f.Samples))
	for _, s := range f.Samples {
		text = append(text, f.number(s))
	}
	if len(text) > fewSamples {
		text = []string{fmt.Sprintf("%d samples, %s to %s", len(text), f.number(slices.Min(f.Samples)),
			f.number(slices.Max(f.Samples)))}
	}
	detail := strings.Join(text, " ")
	if f.Note != "" {
		detail += "; " + f.Note
	}
	return detail
}
