package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/test/scannerdiff"
)

//go:embed differences.tsv
var differences string

// asSyft compares the packages of the newer systems with those that syft finds.
func asSyft(ctx context.Context, s *site) (string, error) {
	r := scannerdiff.NewReport(differences, s.out, false)
	systems := []struct {
		name string
		*system
	}{{"debian", &s.debian.newer}}
	for _, name := range slices.Sorted(maps.Keys(s.others)) {
		systems = append(systems, struct {
			name string
			*system
		}{name, &s.others[name].newer})
	}
	for _, sys := range systems {
		ours, err := scannerdiff.ScanOurs(ctx, sys.dir)
		if err != nil {
			return "", err
		}
		theirs, err := scannerdiff.ScanSyft(ctx, filepath.Join(s.tools, "syft"), sys.dir,
			filepath.Join(s.dir, "syft.json"))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(s.out, "%s: %d packages, syft %d\n", sys.name, len(ours), len(theirs))
		for _, kind := range slices.Sorted(slices.Values(catalog.Kinds)) {
			r.Compare("syft", kind, ours, theirs)
		}
	}
	passed, failed := r.End()
	if failed > 0 {
		return "", fmt.Errorf("%d of %d comparisons and explanations failed", failed, passed+failed)
	}
	return fmt.Sprintf("%d comparisons and explanations hold", passed), nil
}
