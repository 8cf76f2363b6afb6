package fault

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/test/fault/crash"
)

// whole is a result that passes for n = 50.
func whole(target string) result {
	return result{Target: target, Kills: 50, Planned: 50, Acknowledged: 250, Needed: 250}
}

// TestCrashFigures: each figure of the registry's points can fail alone.
func TestCrashFigures(t *testing.T) {
	sound := func() *crash.Report {
		done := crash.Outcome{Planned: 1, Tried: 1}
		return &crash.Report{
			Points: []*crash.Point{{Name: "a", Operations: []string{"x"}, Kills: done, Full: done}},
			Flips:  []crash.Flip{{Name: "pushed", Tried: 1, Refused: 1}},
		}
	}
	for name, spoil := range map[string]func(*crash.Report){
		"":                   func(*crash.Report) {},
		"points":             func(c *crash.Report) { c.Points[0].Operations = nil },
		"missing":            func(c *crash.Report) { c.Points[0].Full.Missing = 1 },
		"full disk":          func(c *crash.Report) { c.Points[0].Full.Tried = 0 },
		"flipped bit pushed": func(c *crash.Report) { c.Flips[0].Refused = 0 },
	} {
		c := sound()
		spoil(c)
		for _, f := range crashFigures(c) {
			if f.good == (f.name == name) {
				t.Errorf("%q spoilt: %q is good: %v (%s)", name, f.name, f.good, f.measure)
			}
		}
	}
}

func TestReport(t *testing.T) {
	cases := map[string]struct {
		spoil func(r *report)
		ok    bool
		last  string
	}{
		"whole":     {func(*report) {}, true, "12 passed, 0 failed, 0 skipped"},
		"few kills": {func(r *report) { r.Results[0].Kills = 49 }, false, "11 passed, 1 failed, 0 skipped"},
		"lost":      {func(r *report) { r.Results[1].Lost = 1 }, false, "11 passed, 1 failed, 0 skipped"},
		"orphans":   {func(r *report) { r.Results[1].Orphans = 1 }, false, "11 passed, 1 failed, 0 skipped"},
		"wrong":     {func(r *report) { r.Results[0].Wrong = 1 }, false, "11 passed, 1 failed, 0 skipped"},
		"stuck":     {func(r *report) { r.Results[1].Stuck = 1 }, false, "11 passed, 1 failed, 0 skipped"},
		"few calls": {func(r *report) { r.Results[1].Acknowledged = 249 }, false, "11 passed, 1 failed, 0 skipped"},
		"skipped": {func(r *report) {
			r.Results[1].Skipped = "no QEMU here"
		}, false, "6 passed, 0 failed, 6 skipped"},
		"unmeasured": {func(r *report) {
			r.Results[0].Unmeasured = "the controller did not start"
		}, false, "6 passed, 6 failed, 0 skipped"},
		"no need": {func(r *report) { r.Results[0].Needed = 0 }, false, "11 passed, 1 failed, 0 skipped"},
		"nothing": {func(r *report) { r.Results = nil }, false, "0 passed, 0 failed, 0 skipped"},
	}
	for name, c := range cases {
		r := &report{N: 50, Results: []result{whole("controller"), whole("agent")}}
		c.spoil(r)
		r.evaluate()
		var out strings.Builder
		r.print(&out)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; r.ok() != c.ok || last != c.last {
			t.Errorf("%s: ok %v, last line %q", name, r.ok(), last)
		}
	}
}
