package main

import (
	"fmt"

	"github.com/buildyard/buildyard/test/bench/row"
)

// The rows, by what they promise.
const (
	rowStart   = "start"
	rowSize    = "start-60gb"
	rowDelta   = "delta"
	rowExec    = "exec"
	rowForward = "forward"
)

// Numbers of samples.
const (
	minStarts   = 15 // that the figure of a start needs
	minPairs    = 5  // that the other figures need
	minExecs    = 40
	deltaRounds = 5
	streams     = 9 // of each kind
)

var rows = []row.Row{
	{
		Name: rowStart, What: "create to Started, beyond tart's own time, p50", Unit: "ms", Target: 150,
		Need: minStarts,
		How: "(POST sent until Started seen, polling every 5 ms; the template is cached) - (`tart run` of a " +
			"directory that exists until `tart exec` succeeds, repeated every 5 ms), one after the other with the " +
			"same time of boot; that time grows from pair to pair, so that no phase of a poll is preferred",
	},
	{
		Name: rowSize, What: "start of a cached 60 GB version / 1 GB version, median of the pairs", Unit: "x",
		Target: 1.2, Digits: 2, Need: minPairs,
		How: "both from POST sent until Started seen, one after the other; guests without a time of boot; data in " +
			fmt.Sprintf("pieces of %d MiB, %d MiB apart, between holes", pieceBytes>>20, pieceDistance>>20),
	},
	{
		Name: rowDelta, What: "next tag applied onto a clone / writing its bytes, median of the pairs", Unit: "x",
		Target: 2, Digits: 2, Need: deltaRounds,
		How: fmt.Sprintf("pull of a version that changes %d MiB of %d in runs of 4 KiB to 1 MiB, its parent cached "+
			"as a raw file, by the time to clone that file, write the same bytes from memory and sync them; nothing "+
			"is left to be written before and after", changedBytes>>20, baseBytes>>20),
	},
	{
		Name: rowExec, What: "command in a guest, beyond `tart exec`, p50", Unit: "ms", Target: 30, Digits: 1,
		Need: minExecs,
		How: "(Exec of the driver until its result) - (`tart exec -i` until its end), /usr/bin/true in the same " +
			"guest, one after the other",
	},
	{
		Name: rowForward, What: "bytes per second of a forwarded port / of the guest's own, median", Unit: "x",
		Target: 0.5, AtLeast: true, Digits: 2, Need: streams,
		How: fmt.Sprintf("%d MiB from and to a process of the guest, each over one connection, %d times; the "+
			"direction with the worse median counts", streamBytes>>20, streams),
	},
}
