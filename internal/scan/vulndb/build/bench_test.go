package build_test

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

// BenchmarkNVD builds a database of a whole NVD: 330,000 CVEs.
func BenchmarkNVD(b *testing.B) {
	dir := os.Getenv("NVD_FEED") // created before, so that its creation is not measured
	if dir == "" {
		dir = b.TempDir()
	}
	from := filepath.Join(dir, "nvdcve-2.0.json.gz")
	if _, err := os.Stat(from); err != nil {
		writeFeed(b, from, 330_000)
	}
	for b.Loop() {
		target := filepath.Join(b.TempDir(), "db")
		if dir := os.Getenv("NVD_FEED"); dir != "" {
			target = filepath.Join(dir, "db")
		}
		report, err := build.Build(b.Context(), build.Options{Inputs: []string{from}, Target: target})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(report.Info.Size)/1e6, "MB")
		b.ReportMetric(float64(report.Info.Applicabilities), "applicabilities")
	}
}

func writeFeed(b *testing.B, path string, n int) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		b.Fatal(err)
	}
	if err := vulndbtest.WriteNVDFeed(z, n, 1); err != nil {
		b.Fatal(err)
	}
	if err := z.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen and BenchmarkQuestions query the database in VULN_DB, or one of 20,000 CVEs.
func BenchmarkOpen(b *testing.B) {
	path := questioned(b)
	for b.Loop() {
		db, err := vulndb.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQuestions(b *testing.B) {
	db, err := vulndb.Open(questioned(b))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for b.Loop() { // 12,000 packages, most of them without records
		for i := range 12_000 {
			if _, err := db.Advisories(vulndb.NPM, fmt.Sprintf("package-%d", i*7919%12_000)); err != nil {
				b.Fatal(err)
			}
			applicabilities(b, db, fmt.Sprintf("vendor%d", i*7919%12_000), "product3")
		}
	}
}

func questioned(b *testing.B) string {
	if path := os.Getenv("VULN_DB"); path != "" {
		return path
	}
	from := filepath.Join(b.TempDir(), "nvd.json.gz")
	writeFeed(b, from, 20_000)
	target := filepath.Join(b.TempDir(), "db")
	if _, err := build.Build(b.Context(), build.Options{Inputs: []string{from}, Target: target}); err != nil {
		b.Fatal(err)
	}
	return target
}
