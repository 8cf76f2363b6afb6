package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// registryFigures are the rows that the test program of the registry on S3 measures: its figure, and the row's value.
var registryFigures = map[string]struct {
	testCase, figure string
	value            func(figure float64) float64
}{
	rowS3Pull: {"pull compared with disk", "wire_rate_of_disk", func(rate float64) float64 { return 1 / rate }},
	rowCommit: {"requests of a commit", "commit_requests", func(n float64) float64 { return n }},
	rowMirror: {"mirror", "mirror_second_pull_bytes", func(n float64) float64 { return n }},
}

// registries measures the rows of registries.
func (b *bench) registries(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "buildyard-bench-ha-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, f := range registryFigures {
		if !b.Wants(name) {
			continue
		}
		figures, err := b.runRegistryTest(ctx, f.testCase, filepath.Join(dir, name+".json"))
		if err != nil {
			return err
		}
		figure, ok := figures[f.figure]
		if !ok {
			return fmt.Errorf("the test program has no figure %s", f.figure)
		}
		b.Add(name, f.value(figure))
		b.Say("%s: %s %.3g", name, f.figure, figure)
	}
	return nil
}

// runRegistryTest runs one case of the test program and returns its figures.
func (b *bench) runRegistryTest(ctx context.Context, testCase, report string) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./test/s3", "-versitygw", b.gateway,
		"-only", "^"+testCase+"$", "-json", report)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("case %q of test/s3: %w: %s", testCase, err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	var results []struct {
		Figures map[string]float64 `json:"figures"`
	}
	if err := json.Unmarshal(text, &results); err != nil || len(results) != 1 {
		return nil, fmt.Errorf("report of case %q: %d results: %w", testCase, len(results), err)
	}
	return results[0].Figures, nil
}
