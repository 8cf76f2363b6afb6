package main

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// The rows, by what they promise.
const (
	rowCreates  = "creates"
	rowStart    = "start-p50"
	rowTakeover = "takeover"
	rowMember   = "etcd-leader"
	rowS3Pull   = "s3-pull"
	rowCommit   = "s3-commit"
	rowMirror   = "mirror"
)

// Sizes and times of what is measured.
const (
	callers  = 64
	nodes    = 20
	slots    = 50
	rounds   = 5
	window   = 2 * time.Second
	starts   = 200
	failures = 5
)

var rows = []row.Row{
	{
		Name: rowCreates, What: "durable creates, 64 callers / one controller with its embedded store", Unit: "x",
		Target: 0.25, AtLeast: true, Digits: 2, Need: rounds, How: fmt.Sprintf(
			"median of the ratios of %d rounds; in each, for %s, POST /api/v1/vm with count 1 at both clouds in turn; "+
				"no nodes", rounds, window),
	},
	{
		Name: rowStart, What: "create -> Started seen, idle, p50", Unit: "ms", Target: 15, Digits: 2, Need: starts,
		Quantile: 0.5, How: fmt.Sprintf(
			"%d creates at one controller, one after the other; from POST sent until Started was seen on its watch",
			starts),
	},
	{
		Name: rowTakeover, What: "leader killed -> next placement", Unit: "s", Target: 4, Digits: 2, Need: failures,
		How: "from SIGKILL of the leading controller until an instance that was created at another one after that is " +
			"Started",
	},
	{
		Name: rowMember, What: "etcd leader killed: longest time without an acknowledged create", Unit: "s", Target: 3,
		Digits: 2, Need: failures, How: "one caller creates without a pause; SIGKILL of the member that leads",
	},
	{
		Name: rowS3Pull, What: "pull from an S3 registry / from a disk registry", Unit: "x", Target: 1.3, Digits: 2,
		Need: 1,
		How:  "medians of 10 pairs of pulls of one disk over a wire of 1 Gbit/s",
	},
	{
		Name: rowCommit, What: "commit of a tag on S3: requests beyond its data", Unit: "", Target: 5, Need: 1,
		How: "the larger of a small and a large layer, counted at a proxy before the server",
	},
	{
		Name: rowMirror, What: "second pull of a version at a mirror: layer bytes of the origin", Unit: "B", Need: 1,
		How: "GET requests of the mirror, counted at a proxy before the registry",
	},
}
