package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is a line of the report.
type row struct {
	Name        string
	Equal, All  int                // correct checks, and all checks
	Says        string             `json:",omitempty"`
	Figures     map[string]float64 `json:",omitempty"`
	Differences []string           `json:",omitempty"`
	Seconds     float64
}

func (r row) passed() bool { return len(r.Differences) == 0 && r.All > 0 && r.Equal == r.All }

// check counts one condition that must hold.
func (r *row) check(holds bool, format string, args ...any) {
	r.All++
	if holds {
		r.Equal++
		return
	}
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

// fail records an error as a failed check.
func (r *row) fail(err error) {
	if err != nil {
		r.check(false, "%v", err)
	}
}

// figure records a number for the JSON.
func (r *row) figure(name string, v float64) {
	if r.Figures == nil {
		r.Figures = map[string]float64{}
	}
	r.Figures[name] = v
}

// most is how many differences of a row are printed.
const most = 12

func (r row) print(out io.Writer) {
	verdict := "ok"
	if !r.passed() {
		verdict = "FAILED"
	}
	says := r.Says
	if says == "" {
		says = fmt.Sprintf("%d/%d", r.Equal, r.All)
	}
	fmt.Fprintf(out, "%-28s %-6s %5.1f s  %s\n", r.Name, verdict, r.Seconds, says)
	for i, d := range r.Differences {
		if i == most {
			fmt.Fprintf(out, "    and %d more\n", len(r.Differences)-most)
			return
		}
		fmt.Fprintf(out, "    %s\n", strings.ReplaceAll(d, "\n", "\n    "))
	}
}

// report prints a row and records it.
func (s *stage) report(r row) {
	r.print(s.out)
	s.rows = append(s.rows, r)
}

// try runs a function that fills a row.
func (s *stage) try(name string, do func(r *row) error) {
	began := time.Now()
	r := row{Name: name}
	r.fail(do(&r))
	r.Seconds = time.Since(began).Seconds()
	s.report(r)
}
