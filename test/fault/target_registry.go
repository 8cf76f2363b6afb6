package fault

import (
	"context"
	"fmt"

	"github.com/buildyard/buildyard/test/fault/crash"
)

// everyFrom is the number of kills that was asked for from which each step is met at every time that an operation
// comes to it.
const everyFrom = 1000

// registryTarget ends a registry before each step that changes its storage, fills its disk there and flips bits. How
// many kills that are follows from the steps, not from the number that was asked for.
func registryTarget(ctx context.Context, s *scene) (r result, err error) {
	report, err := crash.Run(ctx, crash.Options{
		Programs: s.Programs, Dir: s.dir, Rand: s.rng, Every: s.n >= everyFrom, Say: s.say,
	})
	if err != nil {
		return r, err
	}
	kills, full := report.Kills(), report.Full()
	s.kills, s.planned = kills.Tried, kills.Planned
	r = s.result()
	r.Acknowledged, r.Crash = kills.Acknowledged, report
	r.Lost = kills.Lost + full.Lost + kills.Missing + full.Missing
	r.Orphans, r.Wrong = kills.Orphans+full.Orphans, kills.Wrong+full.Wrong
	r.Problems = append(r.Problems, report.Problems...)
	return r, nil
}

// crashFigures are the required cases of the registry's points.
func crashFigures(c *crash.Report) []figure {
	kills, full, unmet := c.Kills(), c.Full(), c.Unmet()
	figures := []figure{
		{"points", len(c.Points) > 0 &&
			len(unmet) == 0, fmt.Sprintf("%d, without a kill or a reason %v", len(c.Points), unmet)},
		{"missing", kills.Missing+full.Missing == 0, fmt.Sprint(kills.Missing + full.Missing)},
		{"full disk", full.Tried == full.Planned &&
			full.Planned > 0, fmt.Sprintf("%d of %d %s", full.Tried, full.Planned, c.NoDisk)},
	}
	for _, f := range c.Flips {
		figures = append(figures, figure{
			"flipped bit " + f.Name, f.Refused == f.Tried && f.Tried > 0 && f.Taken == 0,
			fmt.Sprintf("%d of %d refused", f.Refused, f.Tried),
		})
	}
	return figures
}
