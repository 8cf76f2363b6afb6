package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
	"github.com/buildyard/buildyard/test/bench/row"
)

const fullFeeds = "a database of the whole of OSV and NVD, generated in the published forms"

// fullPart builds a database of everything that "imagescan db sync" collects, and matches with it.
var fullPart = part{
	rows: func(rounds int) []row.Row {
		rows := append(buildRows(rowFullBuild, rowFullBuildMemory, "the whole of OSV and NVD", 900, 600), row.Row{
			Name: rowFullSize, What: "size of " + fullFeeds, Unit: "MB", Target: 150, Digits: 1, Need: 1,
			How: fmt.Sprintf("%d CVEs and %d records of OSV", feedCVEs, osvRecords()),
		})
		return append(rows, fullDatabase.rows(rounds)...)
	},
	measure: fullRows,
}

func osvRecords() int {
	n := 0
	for _, e := range vulndbtest.Ecosystems {
		n += e.Records
	}
	return n
}

func fullRows(ctx context.Context, b *bench) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	dir := filepath.Join(b.Dir, "full")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.Say("writing feeds of %d CVEs and %d records", feedCVEs, osvRecords())
	if err := writeFeed(filepath.Join(dir, "nvdcve-2.0.json.gz")); err != nil {
		return err
	}
	for i, e := range vulndbtest.Ecosystems {
		if err := writeArchive(filepath.Join(dir, fmt.Sprintf("osv-%02d.zip", i)), e, uint64(i)); err != nil {
			return err
		}
	}
	db, err := b.build(ctx, "full.db", rowFullBuild, rowFullBuildMemory, dir)
	if err != nil {
		return err
	}
	st, err := os.Stat(db)
	if err != nil {
		return err
	}
	b.Add(rowFullSize, float64(st.Size())/(1<<20))
	return matchRows(ctx, b, db, fullDatabase)
}

func writeArchive(path string, e vulndbtest.Ecosystem, seed uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(vulndbtest.WriteOSVArchive(f, e, seed), f.Close())
}
