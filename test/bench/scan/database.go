package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

// The rows of databases.
const (
	rowMatch       = "match-wall"
	rowMatchMemory = "match-memory"
	rowOpen        = "db-open"
	rowBuild       = "db-build-wall"
	rowBuildMemory = "db-build-memory"
	rowFeed        = "nvd-build-wall"
	rowFeedMemory  = "nvd-build-memory"

	rowFullBuild       = "full-build-wall"
	rowFullBuildMemory = "full-build-memory"
	rowFullSize        = "full-size"
	rowFullMatch       = "full-match-wall"
	rowFullMatchMemory = "full-match-memory"
	rowFullOpen        = "full-open"
)

const (
	matched  = 12_000  // packages
	feedCVEs = 330_000 // of a whole NVD
)

var matchPart = part{
	rows: func(rounds int) []row.Row { return realDatabase.rows(rounds) },
	measure: func(ctx context.Context, b *bench) error {
		db, err := b.database(ctx)
		if err != nil {
			return err
		}
		return matchRows(ctx, b, db, realDatabase)
	},
}

// matchNames are the rows of the matching with one database.
type matchNames struct{ of, wall, memory, open string }

var (
	realDatabase = matchNames{"a database of all advisories of SHARED", rowMatch, rowMatchMemory, rowOpen}
	fullDatabase = matchNames{fullFeeds, rowFullMatch, rowFullMatchMemory, rowFullOpen}
)

func (n matchNames) rows(rounds int) []row.Row {
	how := "a separate process for each turn, on " + n.of
	return []row.Row{
		{
			Name: n.wall, What: fmt.Sprintf("matching %d packages", matched), Unit: "ms", Target: 150, Digits: 1,
			Need: rounds, How: how,
		},
		{
			Name: n.memory, What: "memory that matching adds", Unit: "MB", Target: 24, Digits: 1, Need: rounds,
			How: "the most RssAnon while it matches, looked at every 5 ms, above that before; in the same turns",
		},
		{Name: n.open, What: "opening a database", Unit: "ms", Target: 1, Digits: 3, Need: rounds, How: how},
	}
}

var buildPart = part{
	rows: func(int) []row.Row {
		return buildRows(rowBuild, rowBuildMemory, "all advisories of SHARED", 30, 250)
	},
	measure: func(ctx context.Context, b *bench) error { _, err := b.database(ctx); return err },
}

var feedPart = part{
	rows: func(int) []row.Row {
		return buildRows(rowFeed, rowFeedMemory, fmt.Sprintf("a generated feed of %d CVEs", feedCVEs), 120, 400)
	},
	measure: func(ctx context.Context, b *bench) error {
		if err := b.prepare(ctx); err != nil {
			return err
		}
		feed := filepath.Join(b.Dir, "nvdcve-2.0.json.gz")
		b.Say("writing a feed of %d CVEs", feedCVEs)
		if err := writeFeed(feed); err != nil {
			return err
		}
		_, err := b.build(ctx, "nvd.db", rowFeed, rowFeedMemory, feed)
		return err
	},
}

func buildRows(wall, memory, of string, seconds, megabytes float64) []row.Row {
	return []row.Row{
		{Name: wall, What: "building a database of " +
			of, Unit: "s", Target: seconds, Digits: 1, Need: 1, How: "imagescan db build, once"},
		{Name: memory, What: "memory of building a database of " +
			of, Unit: "MB", Target: megabytes, Digits: 1, Need: 1, How: "the largest resident set of the same run"},
	}
}

// build builds a database and records the resource usage.
func (b *bench) build(ctx context.Context, name, wall, memory string, inputs ...string) (string, error) {
	to := filepath.Join(b.Dir, name)
	u, err := b.measured(ctx, b.scanner, append([]string{"db", "build", "-q", "--db-path", to}, inputs...)...)
	if err != nil {
		return "", err
	}
	b.Say("%s: %s", name, u)
	b.Add(wall, u.wall.Seconds())
	b.Add(memory, float64(u.memory)/(1<<20))
	return to, nil
}

// database returns the database of all advisories, which is built once in a run.
func (b *bench) database(ctx context.Context) (string, error) {
	if b.real != "" {
		return b.real, nil
	}
	if err := b.prepare(ctx); err != nil {
		return "", err
	}
	dir := filepath.Join(b.shared, "data", "vuln")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("there are no advisories: %w: set SHARED", err)
	}
	var err error
	b.real, err = b.build(ctx, "vuln.db", rowBuild, rowBuildMemory, dir)
	return b.real, err
}

func writeFeed(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err == nil {
		err = errors.Join(vulndbtest.WriteNVDFeed(z, feedCVEs, 1), z.Close())
	}
	return errors.Join(err, f.Close())
}

// matchRows measures the matching with a database.
func matchRows(ctx context.Context, b *bench, db string, names matchNames) error {
	packages, ask := filepath.Join(b.Dir, "packages.json"), filepath.Join(b.Dir, "ask")
	if err := errors.Join(apart(ctx, makingPackages, packages, db),
		rig.BuildSmall(ctx, ask, "test/bench/scan/query")); err != nil {
		return err
	}
	for n := range b.rounds + 1 {
		raw, err := rig.Output(ctx, "", ask, db, packages)
		if err != nil {
			return err
		}
		var a struct {
			OpenMS, MatchMS, BeforeMB, MostMB float64
			Findings                          int
		}
		if err := json.Unmarshal([]byte(raw), &a); err != nil {
			return err
		}
		b.Say("round %d: opened in %.3f ms, matched in %.1f ms, %.1f MB before, %.1f MB at most, %d findings",
			n, a.OpenMS, a.MatchMS, a.BeforeMB, a.MostMB, a.Findings)
		if n == 0 {
			continue
		}
		b.Add(names.wall, a.MatchMS)
		b.Add(names.memory, a.MostMB-a.BeforeMB)
		b.Add(names.open, a.OpenMS)
		b.Note(names.memory, "%.1f MB in all, %d findings", a.MostMB, a.Findings)
	}
	return nil
}
