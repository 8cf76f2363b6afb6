package build

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// shared returns the directory of real advisories, which not every machine has.
func shared(t testing.TB) string {
	dir := os.Getenv("SHARED")
	if dir == "" {
		t.Skip("SHARED names no folder of real advisories")
	}
	return filepath.Join(dir, "data", "vuln")
}

func TestRealFeeds(t *testing.T) {
	from := shared(t)
	start := time.Now()
	report, err := Build(context.Background(),
		Options{Inputs: []string{from}, Target: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(start))
	_ = report.Print(os.Stderr)
	for _, s := range report.Sources {
		for i, r := range s.Rejections {
			if i < 12 {
				t.Log(r)
			}
		}
	}
}
