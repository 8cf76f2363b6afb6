package row

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestStats(t *testing.T) {
	for _, c := range []struct {
		samples           []float64
		median, p50, most float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{3, 1}, 2, 1, 3},
		{[]float64{9, 1, 2}, 2, 2, 9},
		{[]float64{4, 1, 3, 2}, 2.5, 2, 4},
	} {
		given := slices.Clone(c.samples)
		if m, p, q := Median(c.samples), Quantile(c.samples, 0.5),
			Quantile(c.samples, 0.99); m != c.median || p != c.p50 || q != c.most {
			t.Errorf("%v: median %v, p50 %v, p99 %v", c.samples, m, p, q)
		}
		if !slices.Equal(given, c.samples) {
			t.Errorf("the samples are %v now", c.samples)
		}
	}
	many := make([]float64, 500)
	for i := range many {
		many[i] = float64(i + 1)
	}
	if p := Quantile(many, 0.99); p != 495 {
		t.Errorf("p99 of 1 to 500 is %v", p)
	}
}

var rows = []Row{
	{Name: "most", Unit: "ms", Target: 4, Digits: 1, Need: 3},
	{Name: "least", Unit: "x", Target: 0.6, AtLeast: true, Digits: 2, Need: 1},
	{Name: "tail-of-many", Unit: "ms", Target: 20, Need: 2, Quantile: 0.99},
}

// TestVerdicts: each kind of row is compared with its own side of the target.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		row     string
		samples []float64
		ok      bool
		line    string
	}{
		"on target":     {"most", []float64{4, 4, 4}, true, "most              4.0 ms  target <= 4.0 ms  ok"},
		"above":         {"most", []float64{1, 4.1, 5}, false, "MISSED"},
		"too few":       {"most", []float64{1, 1}, false, "not measured: 2 samples, it needs 3"},
		"at least":      {"least", []float64{0.6}, true, "least            0.60 x   target >= 0.60 x   ok"},
		"below":         {"least", []float64{0.59}, false, "MISSED"},
		"quantile":      {"tail-of-many", []float64{1, 1, 1, 30}, false, "30 ms"},
		"many samples":  {"tail-of-many", slices.Repeat([]float64{2, 7}, 10), true, "(20 samples, 2 to 7; noted)"},
		"quantile good": {"tail-of-many", []float64{20, 1}, true, "ok"},
	} {
		r := NewReport(rows, map[string]bool{c.row: true})
		for _, s := range c.samples {
			r.Add(c.row, s)
		}
		r.Note(c.row, "not%s", "ed")
		r.Evaluate()
		var out strings.Builder
		r.Print(&out, "head")
		if r.Figure(c.row).OK != c.ok || r.OK(true) != c.ok || !strings.Contains(out.String(), c.line) {
			t.Errorf("%s: %+v\n%s", name, r.Figure(c.row), &out)
		}
		if !strings.Contains(out.String(), "\nhead; ") || !strings.Contains(out.String(), " 2 skipped\n") {
			t.Errorf("%s:\n%s", name, &out)
		}
	}
}

// TestMissIsMeasured: a missed row fails a run only when targets are checked, an
// unmeasured one always.
func TestMissIsMeasured(t *testing.T) {
	r := NewReport(rows, map[string]bool{"least": true})
	r.Add("least", 0.1)
	r.Evaluate()
	if !r.OK(false) || r.OK(true) {
		t.Error("a missed row is judged wrongly")
	}
	r = NewReport(rows, map[string]bool{"least": true})
	r.Spoil(errors.New("gone"), "least")
	r.Add("least", 1)
	r.Evaluate()
	if r.OK(false) || r.Wants("least") || r.Figure("least").Value != 0 {
		t.Error("a spoilt row counts as measured")
	}
}

func TestOnly(t *testing.T) {
	only, err := Only(rows, "")
	if err != nil || !only["most"] || !only["tail-of-many"] {
		t.Errorf("all are %v, %v", only, err)
	}
	only, err = Only(rows, "least")
	if err != nil || only["most"] || !only["least"] {
		t.Errorf("one is %v, %v", only, err)
	}
	if _, err := Only(rows, "least,"); err == nil {
		t.Error("an empty name is a row")
	}
}
