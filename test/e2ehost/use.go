package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// useAct is the intended use of the scanner, from a full scan to a decision.
type useAct struct {
	s      *stage
	v      *service
	dbs    *databases
	rec    *record
	follow *follower
	began  time.Time // of the installs
}

// use runs it.
func use(ctx context.Context, s *stage) error {
	dbs, err := s.databases(ctx)
	if err != nil {
		return err
	}
	a := &useAct{s: s, dbs: dbs, rec: newRecord()}
	if a.v, err = s.begin(ctx, "watch", settings{database: dbs.used, more: map[string]any{
		"db-update-url": dbs.listing(), "db-update-interval": "1m", "webhook": dbs.hook(),
	}}); err != nil {
		return err
	}
	s.try("full scan", func(r *row) error { return a.fullScan(ctx, r) })
	s.try("analyse", func(r *row) error { return a.analyse(ctx, r) })
	s.try("reset", func(r *row) error { return a.reset(ctx, r) })
	s.try("real time", func(r *row) error { return a.realTime(ctx, r) })
	a.follow = a.v.follow(ctx)
	defer a.follow.end()
	a.install(ctx)
	a.change(ctx)
	s.try("as a full scan", func(r *row) error {
		return s.asFullScan(ctx, r, a.v, settings{leave: []string{s.host("seed")}}, s.host())
	})
	s.try("decide", func(r *row) error { return a.decide(ctx, r) })
	s.try("fromTime and min_score", func(r *row) error { return a.queries(ctx, r) })
	if err := dbs.publish(ctx, dbs.newer); err != nil {
		return err
	}
	s.try("what came before", func(r *row) error { return a.again(ctx, r) })
	a.mounts(ctx)
	s.try("newer database", func(r *row) error { return a.update(ctx, r) })
	s.try("stop", func(r *row) error { return a.stop(ctx, r) })
	return nil
}

// fullScan finds the packages installed before.
func (a *useAct) fullScan(ctx context.Context, r *row) error {
	want := map[packageFile]bool{}
	for _, b := range seeds {
		if err := writeTree(a.s.host("seed", b.kind), b.files()); err != nil {
			return err
		}
		want[b.at(a.s.host("seed", b.kind))] = true
	}
	if _, err := a.v.command(ctx, r, 0, "Scan State: Idle", "full-scan"); err != nil {
		return err
	}
	got, err := a.v.packages(ctx, time.Time{})
	differ(r, want, within(got, a.s.dir), "missing", "additional")
	r.Says = fmt.Sprintf("%d packages that were there", len(want))
	return err
}

// analyse checks what was found.
func (a *useAct) analyse(ctx context.Context, r *row) error {
	rep, err := a.v.whole(ctx)
	if err != nil {
		return err
	}
	findings(r, rep, seeds, a.s.host("seed"))
	for _, c := range []struct {
		status int
		text   string
		args   string
	}{
		{0, "TYPE", "report"},
		{0, "SEVERITY", "report vulnerabilities --sort score -c tnvVsSl"},
		{0, "\"creation_time\"", "report -f json"},
		{0, "\"ruleId\"", "report -f sarif"},
		{0, "\"bomFormat\"", "report -f cyclonedx"},
		{0, "\"spdxVersion\"", "report -f spdx"},
		{8, "critical", "report --fail-on critical"},
		{0, "Service State: Active\nScan State: Idle", "status"},
	} {
		if _, err := a.v.command(ctx, r, c.status, c.text, strings.Fields(c.args)...); err != nil {
			return err
		}
	}
	return nil
}

// reset empties the report.
func (a *useAct) reset(ctx context.Context, r *row) error {
	if _, err := a.v.command(ctx, r, 0, "Scan State: Idle", "report", "reset"); err != nil {
		return err
	}
	rep, err := a.v.whole(ctx)
	r.check(len(rep.Packages) == 0 && len(rep.Vulnerabilities) == 0, "%d packages are left", len(rep.Packages))
	if err != nil {
		return err
	}
	_, err = a.v.command(ctx, r, 0, "No packages found", "report", "-t", "2020-01-01T00:00:00Z")
	return err
}

// realTime begins to watch the whole host, by events of the system.
func (a *useAct) realTime(ctx context.Context, r *row) error {
	if _, err := a.v.command(ctx, r, 0, "Scan State: Real-Time", "real-time-scan", "start"); err != nil {
		return err
	}
	if err := a.v.quiet(ctx); err != nil {
		return err
	}
	st, err := a.v.status(ctx)
	method, at := "", ""
	for _, m := range st.Mounts {
		if len(m.Path) > len(at) && strings.HasPrefix(a.s.host()+"/", strings.TrimSuffix(m.Path, "/")+"/") {
			method, at = m.Method, m.Path
		}
	}
	r.check(method == "fanotify", "%s is watched by %q", at, method)
	r.check(st.Path == "" && st.Counts.Packages == 0, "the status has %q, %d packages", st.Path, st.Counts.Packages)
	r.Says = method
	return err
}

// Minimum numbers of installed packages.
const (
	leastKind = 40
	leastAll  = 500
)

// install installs packages while the host is watched; a row for each kind and one for all.
func (a *useAct) install(ctx context.Context) {
	a.began = time.Now()
	a.s.try("installs", func(r *row) error {
		err := a.s.each(ctx, r, installers, a.rec)
		r.check(err == nil, "%v", err)
		r.Says = fmt.Sprintf("%d ways of coming", len(installers)-1+len(ways))
		return a.follow.settle(ctx, a.rec, a.s.host())
	})
	came := a.rec.there()
	var all row
	for _, k := range kinds {
		of := map[packageFile]event{}
		for t, e := range came {
			if t.kind == k {
				of[t] = e
			}
		}
		r := row{Name: k}
		n, worst := a.follow.compare(&r, of)
		r.Says = says(r, n, worst)
		if n < leastKind {
			r.Differences = append(r.Differences, fmt.Sprintf("fewer than %d came", leastKind))
		}
		a.s.report(r)
		all.All, all.Equal = all.All+r.All, all.Equal+r.Equal
		all.figure("worst seconds", max(all.Figures["worst seconds"], worst.Seconds()))
	}
	all.Name = "all kinds"
	all.Says = says(all, all.All, time.Duration(all.Figures["worst seconds"]*float64(time.Second)))
	if all.All < leastAll {
		all.Differences = append(all.Differences, fmt.Sprintf("fewer than %d came", leastAll))
	}
	all.Seconds = time.Since(a.began).Seconds()
	a.s.report(all)
	a.exact("nothing else")
}

func says(r row, n int, worst time.Duration) string {
	return fmt.Sprintf("%d installed = %d cataloged within %.0f s of the last write (worst %.1f s)", n, r.Equal,
		soon.Seconds(), worst.Seconds())
}

// exact compares the current report with the installed packages.
func (a *useAct) exact(name string) {
	a.s.try(name, func(r *row) error {
		want := map[packageFile]bool{}
		for t := range a.rec.there() {
			want[t] = true
		}
		got := a.follow.kept(a.s.host())
		differ(r, want, got, "missing", "additional")
		r.Says = fmt.Sprintf("%d places in the report, %d installed", len(got), len(want))
		return nil
	})
}

// change upgrades and removes some of each kind.
func (a *useAct) change(ctx context.Context) {
	before := a.rec.there()
	a.s.try("changes", func(r *row) error {
		err := a.s.each(ctx, r, changers, a.rec)
		r.check(err == nil, "%v", err)
		return a.follow.settle(ctx, a.rec, a.s.host())
	})
	newer := map[packageFile]event{}
	for t, e := range a.rec.there() {
		if _, was := before[t]; !was {
			newer[t] = e
		}
	}
	r := row{Name: "upgraded"}
	n, worst := a.follow.compare(&r, newer)
	r.Says = says(r, n, worst)
	a.s.report(r)
	a.gone()
	a.exact("nothing else, again")
}

// gone checks that removed packages left the report in time.
func (a *useAct) gone() {
	r := row{Name: "removed"}
	worst := time.Duration(0)
	for t, e := range a.rec.went {
		at, ok := a.follow.left(t)
		took := max(at.Sub(e.at), 0)
		r.check(ok, "still there: %s, removed by %s", t, e.how)
		if ok {
			worst = max(worst, took)
			if took > soon {
				r.Differences = append(r.Differences,
					fmt.Sprintf("late: %s, removed by %s: %.1f s", t, e.how, took.Seconds()))
			}
		}
	}
	r.figure("worst seconds", worst.Seconds())
	r.Says = fmt.Sprintf("%d removed = %d left within %.0f s (worst %.1f s)", r.All, r.Equal, soon.Seconds(),
		worst.Seconds())
	a.s.report(r)
}

// asFullScan makes another service, with an empty inventory, scan a directory in full, and compares
// both reports.
func (s *stage) asFullScan(ctx context.Context, r *row, v *service, o settings, dir string) error {
	if err := v.quiet(ctx); err != nil {
		return err
	}
	got, err := v.packages(ctx, time.Time{})
	if err != nil {
		return err
	}
	s.fresh++
	o.database = s.at("state", "none.db")
	fresh, err := s.begin(ctx, fmt.Sprintf("fresh%d", s.fresh), o)
	if err != nil {
		return err
	}
	if _, err := fresh.command(ctx, r, 0, "Scan State: Idle", "full-scan", "-d", dir); err != nil {
		return err
	}
	want, err := fresh.packages(ctx, time.Time{})
	if err != nil {
		return err
	}
	want, got = within(want, dir), within(got, dir)
	differ(r, want, got, "only the full scan has", "only real time has")
	r.Says = fmt.Sprintf("%d places of packages, %d in a full scan", len(got), len(want))
	return fresh.End()
}

// again copies packages installed before the reset, which makes an old package new.
func (a *useAct) again(ctx context.Context, r *row) error {
	rec := newRecord()
	for _, b := range seeds {
		to := a.s.host("copied", b.kind)
		if err := writeTree(to, b.files()); err != nil {
			return err
		}
		if err := rec.installed("a copy", time.Time{}, b.at(to)); err != nil {
			return err
		}
	}
	if err := a.follow.settle(ctx, rec, a.s.host("copied")); err != nil {
		return err
	}
	n, worst := a.follow.compare(r, rec.there())
	r.Says = says(*r, n, worst)
	return nil
}

// stop checks that a package installed just before the stop is in the report.
func (a *useAct) stop(ctx context.Context, r *row) error {
	u := unit{"npm", "the-last-one", "1.0.0"}
	to := a.s.host("last")
	if err := writeTree(to, u.files()); err != nil {
		return err
	}
	if _, err := a.v.command(ctx, r, 0, "Scan State:", "real-time-scan", "stop"); err != nil {
		return err
	}
	got, err := a.v.packages(ctx, time.Time{})
	if err != nil {
		return err
	}
	r.check(got[u.at(to)], "what was installed just before the stop is not in the report")
	st, err := a.v.status(ctx)
	r.check(st.State == api.HostIdle, "it is %s", st.State)
	return err
}
