package main

import (
	"fmt"
	"io"
)

// report counts and prints the results.
type report struct {
	out io.Writer

	passed, failed, skipped int
	blocks                  int // sh blocks of the pages that are run
}

func (r *report) pass(format string, args ...any) {
	r.passed++
	fmt.Fprintf(r.out, "  ok      "+format+"\n", args...)
}

func (r *report) skip(format string, args ...any) {
	r.skipped++
	fmt.Fprintf(r.out, "  skipped "+format+"\n", args...)
}

func (r *report) fail(format string, args ...any) {
	r.failed++
	fmt.Fprintf(r.out, "  FAILED  "+format+"\n", args...)
}

// sum prints the last lines. It reports whether the run succeeded.
func (r *report) sum() bool {
	tooMany := 100*r.skipped > maxSkipped*r.blocks
	if tooMany {
		fmt.Fprintf(r.out, "\n%d of %d blocks are skipped, more than %d %%\n", r.skipped, r.blocks, maxSkipped)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed == 0 && !tooMany
}
