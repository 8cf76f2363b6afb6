// Testsum reads what go test -json prints and says what people want to know: one
// line a package, the output of what failed, the reason of every skip, the slow
// packages, and at the very end "N passed, N failed, N skipped". It is not a test
// runner: it starts nothing and decides nothing but its exit status, which is 1
// when something failed or no test ran.
//
//	go test -json ./... | testsum
//
// With -evidence it also shows what tests that passed put out, and a skip is a failure.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	s := newSummary(os.Stdout)
	flag.BoolVar(&s.evidence, "evidence", false, "show what tests that passed put out, and fail when one was skipped")
	flag.Parse()
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(2)
	}
	if !s.finish() {
		os.Exit(1)
	}
}
