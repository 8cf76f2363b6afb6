package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// The rows of a package that comes.
const (
	rowArrival      = "package-report"
	rowArrivalWorst = "package-report-worst"
)

const arrivals = 15

var arrivalPart = part{
	rows: func(int) []row.Row {
		return []row.Row{
			{
				Name: rowArrival, What: "one new package to the report", Unit: "s", Target: 2, Digits: 2,
				Need: arrivals,
				How: fmt.Sprintf(
					"from the last write of a project whose package.json, package-lock.json and node_modules come, "+
						"to the first report that has the package; it is asked for every %s", glance),
			},
			{
				Name: rowArrivalWorst, What: "the same, worst of all", Unit: "s", Target: 2, Digits: 2, Need: arrivals,
				Quantile: 1, How: "the same samples",
			},
		}
	},
	measure: arrivalRows,
}

func arrivalRows(ctx context.Context, b *bench) (err error) {
	s, err := b.ready(ctx)
	if err != nil {
		return err
	}
	top := filepath.Join(b.Dir, "arrivals")
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	for n := range arrivals {
		if err := s.calm(ctx); err != nil {
			return err
		}
		// at no moment that the service keeps to
		if err := pause(ctx, time.Second+time.Duration(n)*97*time.Millisecond); err != nil {
			return err
		}
		began, name := time.Now(), fmt.Sprintf("buildyard-bench-arrival-%d", n)
		if err := install(filepath.Join(top, fmt.Sprint(n)), name); err != nil {
			return err
		}
		written := time.Now()
		if err := s.appears(ctx, name, began); err != nil {
			return err
		}
		took := time.Since(written).Seconds()
		b.Add(rowArrival, took)
		b.Add(rowArrivalWorst, took)
		b.Say("a package was in the report after %.2f s", took)
	}
	return nil
}

// install brings a project with one package, as npm does.
func install(project, name string) error {
	if err := writePackage(filepath.Join(project, "node_modules", name), name); err != nil {
		return err
	}
	lock := fmt.Sprintf(
		`{"name":"p","version":"0.0.1","lockfileVersion":3,"packages":{"":{"name":"p","dependencies":{%q:"1.0.0"}},"node_modules/%s":{"version":"1.0.0"}}}`, name, name)
	if err := os.WriteFile(filepath.Join(project, "package-lock.json"), []byte(lock), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(project, "package.json"),
		fmt.Appendf(nil, `{"name":"p","version":"0.0.1","private":true,"dependencies":{%q:"1.0.0"}}`, name), 0o600)
}
