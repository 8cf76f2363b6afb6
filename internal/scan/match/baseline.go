package match

import (
	"encoding/json"
	"fmt"
	"io"
)

// Baseline has the findings of a former report. Nil is an empty one.
type Baseline struct {
	known map[findingKey]bool
}

// findingKey identifies a finding in reports: one vulnerability of one version of a package, at any
// path.
type findingKey struct{ id, kind, name, version string }

// reported has the relevant fields of a report.
type reported struct {
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

// maxBaseline limits how many bytes of a report are read.
const maxBaseline = 256 << 20

// ReadBaseline reads a report in the JSON format.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	var report struct {
		reported
		Reports []reported `json:"reports"` // of a whole registry
	}
	bounded := &io.LimitedReader{R: r, N: maxBaseline}
	if err := json.NewDecoder(bounded).Decode(&report); err != nil {
		if bounded.N <= 0 {
			err = fmt.Errorf("it has more than %d MiB", maxBaseline>>20)
		}
		return nil, fmt.Errorf("read the baseline: %w", err)
	}
	if report.Reports == nil {
		report.Reports = []reported{report.reported}
	}
	b := &Baseline{known: map[findingKey]bool{}}
	for _, r := range report.Reports {
		if r.Matches == nil {
			return nil, fmt.Errorf("read the baseline: it is not a report of a scan, it has no matches")
		}
		for _, m := range *r.Matches {
			b.known[findingKey{m.Vulnerability.ID, m.Artifact.Type, m.Artifact.Name, m.Artifact.Version}] = true
		}
	}
	return b, nil
}

// Has reports whether the baseline has a finding.
func (b *Baseline) Has(f *Finding) bool {
	return b != nil &&
		b.known[findingKey{f.Vulnerability.ID, string(f.Package.Kind), f.Package.Name, f.Package.Version}]
}
