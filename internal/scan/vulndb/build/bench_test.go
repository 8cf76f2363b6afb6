package build_test

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

// BenchmarkNVD builds a database of a whole NVD: 330,000 CVEs.
func BenchmarkNVD(b *testing.B) {
	dir := os.Getenv("NVD_FEED") // made before, so that making it is not measured
	if dir == "" {
		dir = b.TempDir()
	}
	from := filepath.Join(dir, "nvdcve-2.0.json.gz")
	if _, err := os.Stat(from); err != nil {
		writeFeed(b, from)
	}
	for b.Loop() {
		target := filepath.Join(b.TempDir(), "db")
		report, err := build.Build(b.Context(), build.Options{Inputs: []string{from}, Target: target})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(report.Info.Size)/1e6, "MB")
		b.ReportMetric(float64(report.Info.Applicabilities), "applicabilities")
	}
}

func writeFeed(b *testing.B, path string) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		b.Fatal(err)
	}
	if err := vulndbtest.WriteNVDFeed(z, 330_000, 1); err != nil {
		b.Fatal(err)
	}
	if err := z.Close(); err != nil {
		b.Fatal(err)
	}
}
