package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// unprivilegedUser is the ID of a user without privileges.
const unprivilegedUser = 65534

// user runs the same test as a user without privileges, which receives changes in the package
// directories only.
func user(ctx context.Context, s *stage) error {
	home := s.host("ci")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	if err := os.Chown(home, unprivilegedUser, unprivilegedUser); err != nil {
		return err
	}
	o := settings{database: s.at("state", "none.db"), user: unprivilegedUser, home: home}
	v, err := s.begin(ctx, "user", o)
	if err != nil {
		return err
	}
	defer func() { _ = v.End() }()
	s.try("without privileges", func(r *row) error { return asUser(ctx, s, v, r, home) })
	s.try("and as a full scan", func(r *row) error { return s.asFullScan(ctx, r, v, o, home) })
	return nil
}

func asUser(ctx context.Context, s *stage, v *service, r *row, home string) error {
	for _, c := range [][]string{{"full-scan", "-d", home}, {"report", "reset"}, {"real-time-scan", "start"}} {
		if _, err := v.command(ctx, r, 0, "", c...); err != nil {
			return err
		}
	}
	if err := v.quiet(ctx); err != nil {
		return err
	}
	f := v.follow(ctx)
	defer f.end()
	rec := newRecord()
	// "src" does not exist yet: its ancestors are watched.
	if err := s.byWays(ctx, rec, home+"/src"); err != nil {
		return err
	}
	if err := f.settle(ctx, rec, home); err != nil {
		return err
	}
	n, worst := f.compare(r, rec.there())
	if err := s.changeWays(ctx, rec, home+"/src"); err != nil {
		return err
	}
	began := time.Now()
	if err := f.settle(ctx, rec, home); err != nil {
		return err
	}
	want := map[packageFile]bool{}
	for t := range rec.there() {
		want[t] = true
	}
	differ(r, want, f.kept(home), "missing", "additional")
	r.check(time.Since(began) <= soon, "what changed took %.1f s", time.Since(began).Seconds())
	st, err := v.status(ctx)
	if err != nil {
		return err
	}
	methods := map[string]int{}
	for _, m := range st.Mounts {
		methods[m.Method]++
	}
	r.check(methods["inotify"] > 0 && methods["fanotify"] == 0, "file systems are watched by %v", methods)
	r.Says = "inotify: " + says(*r, n, worst)
	r.Says = fmt.Sprintf("inotify: %d installed within %.0f s (worst %.1f s), %d changed", n, soon.Seconds(),
		worst.Seconds(), 2*len(kinds))
	return nil
}
