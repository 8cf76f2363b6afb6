package match

import (
	"encoding/json"
	"fmt"
	"io"
)

// Baseline has the findings of a former report. Nil is an empty one.
type Baseline struct {
	findings map[findingKey]bool
}

// findingKey identifies a finding in reports: one vulnerability of one version of a package, at any
// path.
type findingKey struct{ id, kind, name, version string }

// baselineReport has the relevant fields of a report.
type baselineReport struct {
	Matches *[]struct {
		Vulnerability struct {
			ID string `json:"id"`
		} `json:"vulnerability"`
		Artifact struct {
			Name    string `json:"name"`
			Version string `json:"version"`
			Type    string `json:"type"`
		} `json:"artifact"`
	} `json:"matches"`
}

// maxBaselineBytes limits how many bytes of a report are read.
const maxBaselineBytes = 256 << 20

// ReadBaseline reads a report in the JSON format.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	var report struct {
		baselineReport
		Reports []baselineReport `json:"reports"` // of a whole registry
	}
	bounded := &io.LimitedReader{R: r, N: maxBaselineBytes}
	if err := json.NewDecoder(bounded).Decode(&report); err != nil {
		if bounded.N <= 0 {
			err = fmt.Errorf("the baseline has more than %d MiB", maxBaselineBytes>>20)
		}
		return nil, fmt.Errorf("read baseline report: %w", err)
	}
	if report.Reports == nil {
		report.Reports = []baselineReport{report.baselineReport}
	}
	b := &Baseline{findings: map[findingKey]bool{}}
	for _, r := range report.Reports {
		if r.Matches == nil {
			return nil, fmt.Errorf("baseline is not a JSON scan report: it has no list of matches")
		}
		for _, m := range *r.Matches {
			b.findings[findingKey{m.Vulnerability.ID, m.Artifact.Type, m.Artifact.Name, m.Artifact.Version}] = true
		}
	}
	return b, nil
}

// Has reports whether the baseline has a finding.
func (b *Baseline) Has(f *Finding) bool {
	return b != nil &&
		b.findings[findingKey{f.Vulnerability.ID, string(f.Package.Kind), f.Package.Name, f.Package.Version}]
}
