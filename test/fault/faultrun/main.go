// Command faultrun runs the cases of package fault, see there.
//
//	go run ./test/fault/faultrun -n 50 -seed s [-targets LIST] [-json FILE]
//
// It has no case itself.
//
// Invariant: it exits with 1 unless every required case passed.
package main

import (
	"github.com/buildyard/buildyard/test/fault"
	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("fault", fault.Run) }
