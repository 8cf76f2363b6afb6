package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// group is cases that share a cloud.
type group struct {
	name     string
	macs     int  // nodes that are fake Macs
	parallel bool // the Macs run different cases at the same time; otherwise one case runs after the other
	cases    []testCase

	managedMACs bool // the cloud manages MAC addresses, which requests can then name
}

// testCase is one row of the report.
type testCase struct {
	name string
	run  func(ctx context.Context, a *caseRun) error
}

// caseRun is one run of a case.
type caseRun struct {
	*row
	*site
	mac *mac // that the case has to itself
}

// groups in the order in which they run.
var groups = []group{
	{name: "flow", macs: 2, cases: flowCases},
	{name: "kill", macs: 3, parallel: true, cases: killCases()},
	{name: "failure", macs: 3, parallel: true, cases: failureCases, managedMACs: true},
	{name: "placement", macs: 1, cases: placementCases},
}

func (g group) rowName(c testCase) string { return g.name + ": " + c.name }

// required returns the names of the cases that are asked for.
func required(only *regexp.Regexp) (names []string) {
	for _, g := range groups {
		for _, c := range g.asked(only) {
			names = append(names, g.rowName(c))
		}
	}
	return names
}

func (g group) asked(only *regexp.Regexp) (out []testCase) {
	for _, c := range g.cases {
		if only.MatchString(g.rowName(c)) {
			out = append(out, c)
		}
	}
	return out
}

// run runs the selected cases on a new cloud.
func (g group) run(ctx context.Context, s *stage, r *report, only *regexp.Regexp) error {
	asked := g.asked(only)
	if len(asked) == 0 {
		return nil
	}
	x := &site{stage: s, dir: filepath.Join(s.dir, g.name)}
	if err := x.open(ctx, g.macs, g.managedMACs); err != nil {
		return errors.Join(fmt.Errorf("the cloud of %q does not start: %w", g.name, err), x.close())
	}
	queue := make(chan testCase, len(asked))
	for _, c := range asked {
		queue <- c
	}
	close(queue)
	var wg sync.WaitGroup
	for i := range x.macs {
		if i > 0 && !g.parallel {
			break
		}
		wg.Go(func() {
			for c := range queue {
				r.add(x.runCase(ctx, g.rowName(c), c, x.macs[i]))
			}
		})
	}
	wg.Wait()
	return errors.Join(ctx.Err(), x.close())
}

// caseLimit bounds one case.
const caseLimit = 5 * time.Minute

func (x *site) runCase(ctx context.Context, name string, c testCase, m *mac) row {
	ctx, cancel := context.WithTimeoutCause(ctx, caseLimit, fmt.Errorf("the case did not end within %s", caseLimit))
	defer cancel()
	began := time.Now()
	a := &caseRun{row: &row{Name: name}, site: x, mac: m}
	a.fail(c.run(ctx, a))
	a.fail(m.recover(ctx))
	a.conclude(time.Since(began))
	return *a.row
}
