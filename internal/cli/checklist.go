package cli

import (
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/doctor"
)

// CheckList is the output of the commands doctor.
type CheckList struct {
	Outcome doctor.Outcome  `json:"outcome"` // the worst one
	Checks  []doctor.Result `json:"checks"`
}

// PrintChecks prints the results of checks, one in a line, and returns an error when some failed.
func PrintChecks(w io.Writer, f Format, results []doctor.Result) error {
	list := CheckList{doctor.Worst(results), results}
	err := f.Write(w, list, func(g *Grid) {
		for _, r := range results {
			if r.Remedy == "" {
				g.Row(r.Outcome, r.Name, r.Detail)
			} else {
				g.Row(r.Outcome, r.Name, r.Detail+"; remedy: "+r.Remedy)
			}
		}
	})
	if failed := doctor.Count(results, doctor.Failed); err == nil && failed > 0 {
		err = Exit(ExitFailed, fmt.Errorf("%d of %s failed", failed, Plural(len(results), "check")))
	}
	return err
}
