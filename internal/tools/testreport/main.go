// Testreport completes a run of gotestsum: it reads the events of go test -json that gotestsum
// stored, lists every skipped, flaky and failed test, and prints "N passed, N failed, N skipped"
// last. A test is flaky when it failed and passed when it was run again. The exit status is 1 when
// a test failed, none ran, or more than three were flaky. See scripts/test.sh.
//
//	testreport [-status 0] [-slow] [-no-skips] EVENTS
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	r := newReport(os.Stdout)
	status := flag.Int("status", 0, "the exit status of gotestsum: a run with another one has failed")
	slow := flag.Bool("slow", false, "list the 20 slowest tests")
	noSkips := flag.Bool("no-skips", false, "fail when a test was skipped")
	flag.Parse()
	in, err := os.Open(flag.Arg(0))
	if err == nil {
		err = r.read(in)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		*status = 2
	}
	if *slow {
		r.printSlow()
	}
	if !r.finish(*status == 0) || *noSkips && len(r.skipped) > 0 {
		os.Exit(1)
	}
}
