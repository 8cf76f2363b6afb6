package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// family is a metric of a scrape: its type, and the labels that were seen.
type family struct {
	kind   string
	labels map[string]bool
}

var (
	sample    = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
	labelName = regexp.MustCompile(`([a-zA-Z_]\w*)="(?:[^"\\]|\\.)*"`)
)

// scrape reads the metrics of an address by their names.
func scrape(ctx context.Context, address string, header map[string]string) (map[string]family, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: HTTP %d", address, resp.StatusCode)
	}
	all := map[string]family{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if typed, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(typed, " ")
			all[name] = family{kind, map[string]bool{}}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); all[base].kind == "histogram" || all[base].kind == "summary" {
				name = base
			}
		}
		for _, label := range labelName.FindAllStringSubmatch(m[2], -1) {
			if all[name].labels != nil {
				all[name].labels[label[1]] = true
			}
		}
	}
	return all, lines.Err()
}

// compareMetrics requires that every metric that was exported before is exported now, with its type
// and its labels.
func compareMetrics(before, now map[string]family) (string, error) {
	ours := 0
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !strings.HasPrefix(name, "buildyard_") {
			continue
		}
		ours++
		f, ok := now[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%s is not exported", name))
			continue
		}
		if f.kind != before[name].kind {
			errs = append(errs, fmt.Errorf("%s is a %s, before a %s", name, f.kind, before[name].kind))
		}
		for _, label := range slices.Sorted(maps.Keys(before[name].labels)) {
			if len(f.labels) > 0 && !f.labels[label] {
				errs = append(errs, fmt.Errorf("%s does not have the label %s", name, label))
			}
		}
	}
	if ours == 0 {
		errs = append(errs, errors.New("nothing was exported before"))
	}
	return fmt.Sprintf("%d metrics are exported under their names", ours), errors.Join(errs...)
}
