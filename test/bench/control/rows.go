package main

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// The rows, by what they promise.
const (
	rowCreate1    = "create-1"
	rowCreate8    = "create-8"
	rowCreate64   = "create-64"
	rowPlaced     = "count-placed"
	rowStarted    = "count-started"
	rowLatency50  = "start-p50"
	rowLatency99  = "start-p99"
	rowBurst      = "burst-2000"
	rowGrow       = "grow-7000"
	rowGrowRatio  = "grow-rate"
	rowList1000   = "list-1000"
	rowList10000  = "list-10000"
	rowFewMemory  = "idle-1000-mb"
	rowFewCPU     = "idle-1000-cpu"
	rowManyMemory = "idle-10k-mb"
	rowManyCPU    = "idle-10k-cpu"
	rowManyWrites = "idle-10k-wr"
	rowRunning    = "running-cpu"
	rowRunningMB  = "running-mb"
	rowRestart    = "restart"
)

// Sizes and times of what is measured.
const (
	rounds       = 5 // of everything that is a rate
	window       = time.Second
	latencies    = 600
	lists        = 500
	wholeRequest = 1000 // instances of one request
	burst        = 2000
	before       = 3000 // running when the cloud grows
	growth       = 7000
	fleet        = 100 // nodes of the rows about instances
	slots        = 110 // of each of them
	few          = 1000
	many         = 10_000
	records      = 100_000
	restarts     = 3
	settle       = 15 * time.Second
	idle         = 20 * time.Second
)

var how = struct{ create, count, latency, burst, idle string }{
	create: fmt.Sprintf(
		"median of the ratios of %d rounds; in each, for %s, first a bare handler (it decodes, group-commits one 1.5 "+
			"KB record into the same kind of store, answers), then POST /api/v1/vm with count 1 on a cloud without "+
			"nodes; what was created is removed after each round", rounds, window),
	count: fmt.Sprintf(
		"median of %d rounds, from POST with count=%d sent until the last of them was seen so on GET "+
			"/api/v1/vm/watch; %d nodes with %d slots, templates cached, nothing else runs", rounds, wholeRequest,
		fleet, slots),
	latency: fmt.Sprintf(
		"%d creates, one after the other, on %d nodes; from POST sent until Started was seen on the watch; they stay "+
			"and run",
		latencies, fleet),
	burst: fmt.Sprintf(
		"median of %d rounds: single creates by 64 callers on %d nodes, from the first POST sent until the "+
			"last Started was seen on the watch", rounds, fleet),
	idle: fmt.Sprintf("the server's process over %s, %s after the last node was there; a new process on a new store",
		idle, settle),
}

var rows = []row.Row{
	{
		Name: rowCreate1, What: "durable creates, 1 caller / bare handler", Unit: "x", Target: 0.6, AtLeast: true,
		Digits: 2, Need: rounds, How: how.create,
	},
	{
		Name: rowCreate8, What: "durable creates, 8 callers / bare handler", Unit: "x", Target: 0.6, AtLeast: true,
		Digits: 2, Need: rounds, How: how.create,
	},
	{
		Name: rowCreate64, What: "durable creates, 64 callers / bare handler", Unit: "x", Target: 0.6, AtLeast: true,
		Digits: 2, Need: rounds, How: how.create,
	},
	{
		Name: rowPlaced, What: "one request, count=1,000 -> all placed", Unit: "s", Target: 0.08, Digits: 3,
		Need: rounds,
		How:  how.count,
	},
	{
		Name: rowStarted, What: "one request, count=1,000 -> all Started", Unit: "s", Target: 0.25, Digits: 3,
		Need: rounds, How: how.count,
	},
	{
		Name: rowLatency50, What: "create -> Started seen, idle, p50", Unit: "ms", Target: 4, Digits: 2, Need: 500,
		Quantile: 0.5, How: how.latency,
	},
	{
		Name: rowLatency99, What: "create -> Started seen, idle, p99", Unit: "ms", Target: 20, Digits: 2, Need: 500,
		Quantile: 0.99, How: how.latency,
	},
	{
		Name: rowBurst, What: "burst of 2,000 single creates -> all Started", Unit: "s", Target: 0.6, Digits: 3,
		Need: rounds, How: how.burst,
	},
	{
		Name: rowGrow, What: "7,000 onto 3,000 running -> all Started", Unit: "s", Target: 2.5, Digits: 3, Need: rounds,
		How: how.burst,
	},
	{
		Name: rowGrowRatio, What: "its rate : the rate of 2,000 on an empty cloud", Unit: "x", Target: 0.8,
		AtLeast: true, Digits: 2, Need: rounds,
		How: "median of the ratios of the rounds; in each the 2,000 come first, then 1,000 more, then the 7,000",
	},
	{
		Name: rowList1000, What: "list of 1,000 instances, p50", Unit: "ms", Target: 1.5, Digits: 2, Need: lists,
		Quantile: 0.5, How: fmt.Sprintf(
			"%d calls of GET /api/v1/vm, one after the other, until the last byte was read; running instances", lists),
	},
	{
		Name: rowList10000, What: "list of 10,000 instances, p50", Unit: "ms", Target: 12, Digits: 2, Need: lists,
		Quantile: 0.5, How: "the same",
	},
	{Name: rowFewMemory, What: "1,000 idle nodes: RSS of the server", Unit: "MB", Target: 110, Need: 1, How: how.idle},
	{
		Name: rowFewCPU, What: "1,000 idle nodes: CPU of the server, of one core", Unit: "%", Target: 2, Digits: 2,
		Need: 1, How: how.idle,
	},
	{
		Name: rowManyMemory, What: "10,000 idle nodes at a 5 s rhythm: RSS of the server", Unit: "MB", Target: 500,
		Need: 1, How: how.idle,
	},
	{
		Name: rowManyCPU, What: "10,000 idle nodes at a 5 s rhythm: CPU of the server, of one core", Unit: "%",
		Target: 12,
		Digits: 2, Need: 1, How: how.idle,
	},
	{
		Name: rowManyWrites, What: "10,000 idle nodes: writes", Unit: "", Target: 0, Need: 1,
		How: "revisions of the store after the same window less those before it, read from a copy of its database",
	},
	{
		Name: rowRunning, What: "10,000 running instances on 100 nodes, nobody asking: CPU of the server", Unit: "%",
		Target: 2, Digits: 2, Need: 1, How: fmt.Sprintf("over %s, %s after the last call; the watch is closed", idle,
			settle),
	},
	{
		Name: rowRunningMB, What: "10,000 running instances: RSS of the server", Unit: "MB", Target: 300, Need: 1,
		How: fmt.Sprintf("the server's process, %s after the last call and %s more; a new process on a new store; "+
			"single creates by %d callers on %d nodes, all Started; the watch is closed", settle, idle, callers, fleet),
	},
	{
		Name: rowRestart, What: "restart to ready with 100,000 records", Unit: "s", Target: 5, Digits: 2,
		Need: restarts,
		How: "waiting instances, made by requests with count=1,000; from the start of the process until /readyz " +
			"answers 200; the process before was ended in order",
	},
}
