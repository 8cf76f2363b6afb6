//go:build !linux

package buildyard_test

import "github.com/rogpeppe/go-internal/testscript"

// terminal is for Linux alone: elsewhere terminals are made in other ways.
func terminal(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("this test makes no terminals here: begin the script with [!linux] skip")
}
