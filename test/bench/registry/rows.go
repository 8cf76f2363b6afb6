package main

import "github.com/buildyard/buildyard/test/bench/row"

// The rows, by what they promise.
const (
	rowPull           = "pull"
	rowNaive          = "pull-naive"
	rowScatteredBytes = "bytes-scattered"
	rowClusteredBytes = "bytes-clustered"
	rowScattered      = "apply-scattered"
	rowClustered      = "apply-clustered"
	rowPush           = "push"
	rowStart          = "start"
	rowCPU            = "cpu"
	rowPeerPull       = "peer-pull"
	rowPeerBytes      = "peer-bytes"
	rowClientMemory   = "rss-client"
	rowRegistryMemory = "rss-registry"
	rowList           = "list-10000"
)

// inRounds are the rows that every pair measures.
var inRounds = []string{
	rowPull, rowNaive, rowScatteredBytes, rowClusteredBytes, rowScattered, rowClustered, rowPush, rowStart, rowCPU,
	rowPeerPull, rowPeerBytes,
}

var how = struct{ pull, bytes, apply, memory string }{
	pull: "median of the ratios of the pairs; all that is written is on stable storage at the end of each " +
		"measurement, and nothing else is left to be written at its begin",
	bytes: "frames and indexes that the pull moved, by the 4 KiB blocks that differ",
	apply: "pull onto the version before, which is here, by the time of writing as many bytes with O_DIRECT, 4 MiB " +
		"at a time, into one new file and syncing it",
	memory: "a disk of 200 GB that holds 3 GB in pieces of 64 KiB is pushed and pulled: the most that was resident",
}

// rows returns the table of a run of so many pairs.
func rows(pairs int) []row.Row {
	return []row.Row{
		{
			Name: rowPull, What: "full pull : 4-range copy of the stored bytes", Unit: "x", Target: 1.4, Digits: 2,
			Need: pairs,
			How: how.pull +
				"; the layer file is in memory before each; the copy writes each of its ranges in place, 1 MiB at " +
				"a time, and verifies nothing; the note has the same copy with write-behind",
		},
		{
			Name: rowNaive, What: "full pull : naive one-stream copy of the image", Unit: "x", Target: 0.3, Digits: 2,
			Need: pairs,
			How:  "the same; the copy is io.Copy of the whole image from a bare file server into a file",
		},
		{
			Name: rowScatteredBytes, What: "next tag, 3 % scattered + 200 MB: bytes moved : changed", Unit: "x",
			Target: 0.65, Digits: 3, Need: pairs, How: how.bytes,
		},
		{
			Name: rowClusteredBytes, What: "next tag, 3 % clustered + 200 MB: bytes moved : changed", Unit: "x",
			Target: 0.65, Digits: 3, Need: pairs, How: how.bytes,
		},
		{
			Name: rowScattered, What: "next tag applied, scattered : writing its bytes raw", Unit: "x", Target: 4,
			Digits: 2, Need: pairs, How: how.apply,
		},
		{
			Name: rowClustered, What: "next tag applied, clustered : writing its bytes raw", Unit: "x", Target: 2,
			Digits: 2, Need: pairs, How: how.apply,
		},
		{
			Name: rowPush, What: "full push : cold read of the data bytes (rate)", Unit: "x", Target: 0.25,
			AtLeast: true, Digits: 3, Need: pairs,
			How: "the push of a disk that is not in memory into an empty registry until it is published, by O_DIRECT " +
				"reads of its data, 4 MiB at a time",
		},
		{
			Name: rowStart, What: "disk of an instance of a cached version, 4 GiB and 64 TiB", Unit: "ms", Target: 50,
			Digits: 1, Need: pairs,
			How: "from the cached disk to a disk that a VM can write to, on stable storage; the slower of the two " +
				"sizes",
		},
		{
			Name: rowCPU, What: "CPU of the registry for each GB : a bare file server", Unit: "x", Target: 1.1,
			Digits: 2, Need: pairs,
			How: "the layer file in the ranges of a pull over 4 connections, read and thrown away, several times; " +
				"processor time of the serving process",
		},
		{
			Name: rowPeerPull, What: "full pull : distribution v3.1.2 and oras-go v2.6.4", Unit: "x", Target: 1,
			Digits: 2, Need: pairs,
			How: "the same disk as zstd layers of 512 MiB, pulled with 4 requests at a time and synced, not " +
				"decompressed",
		},
		{
			Name: rowPeerBytes, What: "its bytes for the next tag, clustered : ours", Unit: "x", Target: 5,
			AtLeast: true, Digits: 1, Need: pairs,
			How: "sizes of its layers that the tag before does not have, by what our pull moved",
		},
		{
			Name: rowClientMemory, What: "memory of the client, 200 GB disk", Unit: "MB", Target: 256, Need: 1,
			How: how.memory,
		},
		{
			Name: rowList, What: "list of 10,000 templates of 20 versions, p50", Unit: "ms", Target: 50, Digits: 1,
			Need: listCalls,
			How:  "calls of GET /registry/v2/vm, one after the other, until the last byte was read",
		},
		{
			Name: rowRegistryMemory, What: "memory of the registry, 200 GB disk", Unit: "MB", Target: 256, Need: 1,
			How: how.memory,
		},
	}
}
