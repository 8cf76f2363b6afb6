package portal

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// slotUse is how pages name and color one use of slots.
type slotUse struct{ Name, Class string }

// slotUses are the uses of slots in the order of a bar. The API has one use for instances without a running VM.
var slotUses = []slotUse{
	{"running", "f-ok"},
	{"starting or stopped", "f-busy"},
	{"held by failed VMs", "f-bad"},
	{"held by orphaned VMs", "f-warn"},
	{"unavailable", "f-off"},
	{"free", "f-free"},
}

// slotBar is slots as a bar: of a node a segment for each slot, of a cloud and of large nodes one for each use.
type slotBar struct {
	Label          string // all uses in words
	Used, Capacity int
	Held           string // what holds slots without running, for the line below; "": nothing
	Width          int    // of the view box
	Segments       []slotSegment
	Key            []slotCount // the uses with their numbers
}

// slotSegment is the slots of one use in a bar.
type slotSegment struct{ Class, Path string }

// slotCount is how many slots have one use.
type slotCount struct {
	Name, Class string
	Count       int
}

// The size of bars in units of their view boxes.
const (
	slotBarWidth, slotBarHeight = 84, 14
	cloudBarWidth               = 1000
	maxSlotSegments             = 12 // more slots are drawn as parts of the whole
)

// newSlotBar draws slots of which no more than the given number is free.
func newSlotBar(s *api.Slots, free, width int) slotBar {
	b := slotBar{Used: usedSlots(s), Capacity: s.Capacity, Width: width, Held: heldText(s)}
	total := max(s.Capacity, b.Used)
	counts := []int{s.Running, s.Other, s.Failed, s.Orphaned, max(total-b.Used-free, 0), free}
	var words []string
	from := 0
	for i, n := range counts {
		use := slotUses[i]
		if n == 0 && use.Name != "running" && use.Name != "free" {
			continue
		}
		b.Key = append(b.Key, slotCount{use.Name, use.Class, n})
		if n == 0 {
			continue
		}
		words = append(words, fmt.Sprint(format.Count(n), " ", use.Name))
		b.Segments = append(b.Segments, slotSegment{use.Class, segmentPath(from, n, total, width)})
		from += n
	}
	b.Label = strings.Join(words, ", ")
	return b
}

// nodeSlotBar draws the slots of a node. While it takes no starts, its other slots are unavailable.
func nodeSlotBar(n *api.Node) slotBar {
	return newSlotBar(n.Slots, freeSlots(n), slotBarWidth)
}

// freeSlots returns how many VMs can be started on a node.
func freeSlots(n *api.Node) int {
	if n.State != string(farm.NodeActive) {
		return 0
	}
	return n.Slots.Free
}

// segmentPath returns the SVG path of some of the slots of a bar.
func segmentPath(from, n, total, width int) string {
	if width == cloudBarWidth || total > maxSlotSegments {
		begin, end := width*from/total, width*(from+n)/total
		return fmt.Sprintf("M%d 0h%dv%dh-%dz", begin, max(end-begin, 1), slotBarHeight, max(end-begin, 1))
	}
	step := float64(width) / float64(max(total, 8))
	var path strings.Builder
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&path, "M%.1f 1h%.1fv%dh-%.1fz", float64(i)*step+.5, step-2, slotBarHeight-2, step-2)
	}
	return path.String()
}

// usedSlots returns how many slots are not free, whatever takes them.
func usedSlots(s *api.Slots) int { return s.Running + s.Failed + s.Orphaned + s.Other }

// heldText names what takes slots although nothing runs in them.
func heldText(s *api.Slots) string {
	var parts []string
	if s.Failed > 0 {
		parts = append(parts, format.Count(s.Failed)+" failed")
	}
	if s.Orphaned > 0 {
		parts = append(parts, format.Count(s.Orphaned)+" orphaned")
	}
	return strings.Join(parts, ", ")
}

// slotLine is one slot of a node, and what takes it.
type slotLine struct {
	Number   int
	Use      string      // of the API; "": it is free
	State    string      // of its instance, or a word for what is there instead
	Instance instanceRow // without an ID: it is none that the visitor may see
	VMID     string      // of an orphaned VM
	Note     string
}

// maxSlotLines bounds the rows of a node's page.
const maxSlotLines = 100

// slotLines returns a row for each slot of a node, first those that are taken, and how many free ones have none.
func slotLines(n *api.Node, rows map[string]instanceRow) (lines []slotLine, more int) {
	for i, h := range n.Slots.Holders[:min(len(n.Slots.Holders), maxSlotLines)] {
		line := slotLine{Number: i + 1, Use: h.Use, State: h.State, Instance: rows[h.InstanceID]}
		if line.Instance.ID == "" {
			line.Instance = instanceRow{ID: h.InstanceID, Name: h.Name, Created: h.Since}
			switch {
			case h.InstanceID == "" && h.VMID == "":
				line.Instance.Name = "an instance that you may not see"
			case h.Name == "":
				line.Instance.Name = format.ShortID(h.InstanceID)
			}
		}
		line.Note = line.Instance.Note
		if fill := newDiskFill(h.Fill); fill != nil {
			line.Note = strings.TrimSpace(fill.Text() + ". " + line.Note)
		}
		switch h.Use {
		case api.SlotFailed:
			line.State = "Failed VM"
			line.Note = strings.TrimSpace(line.Note + " Its VM holds the slot until the instance is terminated.")
		case api.SlotOrphaned:
			line.State, line.VMID = "Orphaned VM", h.VMID
			line.Note = "no instance of this cloud: adopt or remove it with buildyard node adopt"
			line.Instance.ID = ""
			if h.VMID == "" {
				line.Instance.Name = "a VM that you may not see"
			}
		}
		lines = append(lines, line)
	}
	free := min(max(n.Slots.Capacity-len(n.Slots.Holders), 0), max(maxSlotLines-len(lines), 0))
	for i := range free {
		line := slotLine{Number: len(n.Slots.Holders) + i + 1, State: "Unused"}
		if n.State != string(farm.NodeActive) {
			line.State = "Unavailable"
		}
		lines = append(lines, line)
	}
	return lines, max(max(n.Slots.Capacity, len(n.Slots.Holders))-len(lines), 0)
}

// slotWarning describes what holds slots of a node without running; "" for nothing.
func slotWarning(n *api.Node) string {
	s := n.Slots
	var parts []string
	if s.Failed > 0 {
		parts = append(parts, format.Plural(s.Failed, "slot is held by a failed VM", "slots are held by failed VMs"))
	}
	if s.Orphaned > 0 {
		parts = append(parts, format.Plural(s.Orphaned, "slot is held by an orphaned VM",
			"slots are held by orphaned VMs"))
	}
	return strings.Join(parts, ", ")
}

// withSlots returns a node with its slots; of a controller that does not name them, those of its VMs.
func withSlots(n api.Node) api.Node {
	if n.Slots == nil {
		n.Slots = &api.Slots{Capacity: n.Capacity, Running: n.VMCount, Free: max(n.Capacity-n.VMCount, 0)}
	}
	return n
}

// nodeHours returns what some nodes did in the last hour. Of the slots used the step that continues is left out: rows
// change once for each step.
func nodeHours(v *visit, ids []string) map[string]nodeHour {
	if len(ids) == 0 {
		return nil
	}
	series, err := v.NodeSparklines(v, api.RangeHour, ids[:min(len(ids), api.MaxSparklines)])
	if err != nil {
		return nil // the list is complete without
	}
	hours := map[string]nodeHour{}
	for _, one := range series.Series {
		hours[one.ID] = nodeHour{
			slots:  chart.SparkOf("Slots used on "+one.Name, one.SlotsUsed[:max(len(one.SlotsUsed)-1, 0)]),
			failed: sumOf(one.Failures),
		}
	}
	return hours
}

// nodeHour is what a node did in the last hour.
type nodeHour struct {
	slots  *chart.Spark
	failed int
}

// sumOf adds what was measured.
func sumOf(list []*float64) int {
	sum := 0.0
	for _, n := range list {
		if n != nil {
			sum += *n
		}
	}
	return int(sum + 0.5)
}
