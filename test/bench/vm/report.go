package main

import (
	"fmt"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
)

// The rows, by what they promise.
const (
	rowOverhead = "overhead"
	rowResume   = "resume"
	rowPause    = "pause"
	rowIdle     = "idle"
)

// minPairs is how many pairs a figure needs to count.
const minPairs = 5

var rows = []row.Row{
	{
		Name: rowOverhead, What: "own part of a cold start, p50", Unit: "ms", Target: 150, Need: minPairs,
		How: "(POST sent until Started seen) - (QEMU's process started until the guest's agent opened its port); " +
			"the first by this client, " +
			"polling every 5 ms, QEMU's start by the start_date that the API gives, the agent's port by the time " +
			"in QEMU's event; the template is cached",
	},
	{
		Name: rowResume, What: "start of a suspended version / cold start, median of the pairs", Unit: "x",
		Target: 0.25, Digits: 2, Need: minPairs,
		How: "both from POST sent until Started seen, one after the other, the order changes with each pair; v2 is " +
			"v1 saved while it ran",
	},
	{
		Name: rowPause, What: "guest stands still for a save, median", Unit: "ms", Target: 400, Need: minPairs,
		How: "the longer of what the driver measured and of the time between QEMU's own STOP and RESUME events; " +
			"before each save the guest writes 32 MiB of noise to memory and 32 MiB to its disk",
	},
	{
		Name: rowIdle, What: fmt.Sprintf("CPU of %d idle guests, of one core", idleGuests), Unit: "%", Target: 10,
		Digits: 1, Need: 1,
		How: fmt.Sprintf(
			"user and system time of their QEMU processes over %s, %s after the last one was Started; resumed from "+
				"v2, 256 MB each",
			idleTime, settleTime),
	},
}

// report is the report in JSON.
type report struct {
	*row.Report
	Pairs      int        `json:"pairs"`
	Hypervisor hypervisor `json:"hypervisor"`
	Starts     []interval `json:"starts"`
}

// JSON returns the report with the starts.
func (b *bench) JSON() any { return report{b.Report, b.pairs, b.hypervisor, b.starts} }

// Head describes the hypervisor.
func (b *bench) Head() string { return fmt.Sprintf("%s; %d pairs", b.hypervisor, b.pairs) }

// hypervisor is the node's description of its hypervisor.
type hypervisor struct {
	Product     string `json:"product"`
	Version     string `json:"version"`
	Accelerator string `json:"accelerator"`
}

func (h hypervisor) String() string {
	if h.Product == "" {
		return "no hypervisor was seen"
	}
	return fmt.Sprintf("%s %s, accelerator %s", h.Product, h.Version, h.Accelerator)
}

// interval is how the time of one start was spent, in milliseconds.
type interval struct {
	Pair   int     `json:"pair"`
	Tag    string  `json:"tag"`
	Whole  float64 `json:"whole_ms"`       // from POST sent until Started seen
	Before float64 `json:"before_qemu_ms"` // until QEMU was started
	Boot   float64 `json:"boot_ms"`        // until the guest's agent had opened its port
	After  float64 `json:"after_ready_ms"` // until Started was seen
}

// addStart records how the time of a start was spent.
func (b *bench) addStart(pair int, tag string, s start) {
	b.starts = append(b.starts,
		interval{pair, tag, runner.MS(s.whole), runner.MS(s.before), runner.MS(s.boot), runner.MS(s.after)})
}
