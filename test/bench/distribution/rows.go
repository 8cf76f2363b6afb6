package main

import (
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/test/bench/row"
)

// The rows, by what they promise.
const (
	rowTraced   = "traced"
	rowUntraced = "untraced"
	rowSlow     = "traced-slow"
	rowFetched  = "fetched"
	rowLarge    = "large"
	rowFill     = "fill"
	rowDisk     = "disk"
	rowKill     = "kill"

	rowManyBytes     = "nodes-bytes"
	rowManyTime      = "nodes-time"
	rowManyBytesSlow = "nodes-bytes-slow"
	rowManyTimeSlow  = "nodes-time-slow"

	rowPoolP50 = "pool-p50"
	rowPoolP99 = "pool-p99"
)

// The rows that are measured on one cloud each.
var (
	startRows = []string{
		rowTraced, rowUntraced, rowSlow, rowFetched, rowLarge, rowFill, rowDisk, rowKill,
	}
	manyRows = []string{rowManyBytes, rowManyTime, rowManyBytesSlow, rowManyTimeSlow}
	poolRows = []string{rowPoolP50, rowPoolP99}
)

// The rates of links, in bytes a second: 1 Gbit/s and 100 Mbit/s.
const (
	fullRate = 125_000_000
	slowRate = 12_500_000
)

func rows(starts int) []row.Row {
	ratio := func(name, what string, target float64, how string) row.Row {
		return row.Row{Name: name, What: what, Unit: "x", Target: target, Digits: 2, Need: starts, How: how}
	}
	const start = "from POST sent until Started seen, polling every 20 ms; "
	list := []row.Row{
		ratio(rowTraced, "start on a node without the template, with a trace / with all of it there", 1.15,
			start+"the divisor is the median of the starts with all of the template on the node"),
		ratio(rowUntraced, "the same without a trace", 1.7, start+"the same divisor"),
		ratio(rowSlow, "a start with a trace at 12.5 MB/s / the larger of one with all there and working set / rate",
			1.3, start+"the working set is the stored bytes of the frames that the guest has read until then"),
		ratio(rowFetched, "bytes fetched until then / bytes of the frames that the guest has read", 1.1,
			"stored bytes, as the process that serves the disk counts them when Started is seen; with a trace"),
		ratio(rowLarge, "start of a template of 60 GB / of one of 8 GB with the same system", 1.1,
			start+"both without a trace on a node without them; 52 GB are a second disk, of which each MB differs"),
		ratio(rowFill, "pull of the rest while the guest is idle / a pull before the start, per byte", 1.2,
			"from Started until the VM reads from files, divided by the bytes that were missing; and a distribution "+
				"to the node until it lists the version, divided by its bytes"),
		ratio(rowDisk, "rate of a disk after the move to files / of a VM that started from files", 0.98,
			"the guest reads 1 GiB with O_DIRECT, the median of 15 times each"),
		{
			Name: rowKill, What: "guest waits after the process that serves its disk was killed", Unit: "s", Target: 2,
			Digits: 2, Need: starts,
			How: "from SIGKILL, while a read of the guest that boots waits, until another process has answered a read",
		},
	}
	for i := range list {
		if list[i].Name == rowDisk {
			list[i].AtLeast, list[i].Need = true, 1
		}
		if list[i].Name == rowFill {
			list[i].Need = 1
		}
	}
	return slices.Concat(list, rowsOfMany(starts), rowsOfPool())
}

// rowsOfMany are the rows about a version that many nodes take at the same time.
func rowsOfMany(rounds int) (list []row.Row) {
	for _, at := range []struct {
		bytes, time, rate string
		need              int
	}{
		{rowManyBytes, rowManyTime, "125 MB/s", rounds},
		{rowManyBytesSlow, rowManyTimeSlow, "12.5 MB/s", slowRounds},
	} {
		how := fmt.Sprintf("a new version of %d MiB of noise; the links of the nodes and of controller with registry "+
			"have %s in both directions; nodes read from each other; their data is in memory", manySize>>20, at.rate)
		list = append(list,
			row.Row{
				Name: at.bytes, What: fmt.Sprintf("bytes sent while %d nodes take a version at %s / one copy",
					manyNodes, at.rate),
				Unit: "x", Target: 1.3, Digits: 2, Need: at.need,
				How: how + "; all that controller and registry send, with headers, by the layer's stored bytes",
			},
			row.Row{
				Name: at.time, What: fmt.Sprintf("time until %d nodes have it / a pull of one node alone", manyNodes),
				Unit: "x", Target: 1.5, Digits: 2, Need: at.need,
				How: how + "; from POST sent until all have it; the divisor is the median of pulls of one node alone",
			})
	}
	return list
}

// rowsOfPool are the rows about starts that claim a standby.
func rowsOfPool() (list []row.Row) {
	for _, r := range []row.Row{
		{Name: rowPoolP50, What: "claim of a standby -> first command in its guest, median", Target: 80, Quantile: 0.5},
		{Name: rowPoolP99, What: "the same, of 99 %", Target: 200, Quantile: 0.99},
	} {
		r.Unit, r.Need = "ms", claims
		r.How = fmt.Sprintf("from POST sent until the first command of the startup script has connected to the "+
			"benchmark; %d claims one by one of %d ready standbys, while no other boots", claims, standbys)
		list = append(list, r)
	}
	return list
}
