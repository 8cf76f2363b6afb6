package reach

import (
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// Limits of an explanation. What exceeds them is counted.
const (
	maxExplainedPackages  = 5
	maxExplainedFunctions = 20
)

// Explain returns sentences that name the vulnerable functions of a finding, none for packages that are not of Go.
func Explain(db DB, f *match.Finding) ([]string, error) {
	if f.Package.Kind != catalog.Go {
		return nil, nil
	}
	r := resolver{code: map[codeKey]vulnerableCode{}, db: db}
	code, err := r.codeOf(f)
	if err != nil {
		return nil, err
	}
	if len(code.packages) == 0 {
		return []string{"No advisory names the vulnerable functions: whether a program has them is unknown."}, nil
	}
	var out []string
	for _, p := range code.packages[:min(len(code.packages), maxExplainedPackages)] {
		platform := ""
		if list := slices.Concat(p.GOOS, p.GOARCH); len(list) > 0 {
			platform = " (" + strings.Join(list, ", ") + ")"
		}
		if len(p.Symbols) == 0 {
			out = append(out, fmt.Sprintf("%s names the whole package %s%s. A scan tells whether a program has it.",
				code.advisory, p.Path, platform))
			continue
		}
		functions := strings.Join(p.Symbols[:min(len(p.Symbols), maxExplainedFunctions)], ", ")
		if more := len(p.Symbols) - maxExplainedFunctions; more > 0 {
			functions += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, fmt.Sprintf("%s names vulnerable functions of %s%s: %s. A scan tells whether a program has "+
			"them.", code.advisory, p.Path, platform, functions))
	}
	if more := len(code.packages) - maxExplainedPackages; more > 0 {
		out = append(out, fmt.Sprintf("%s names %d more packages.", code.advisory, more))
	}
	return out, nil
}
