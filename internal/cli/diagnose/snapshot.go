package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

// snapshotLimit bounds the nodes, reasons and instances of a snapshot.
const snapshotLimit = 50

// maxPending bounds the pending instances whose reasons are counted.
const maxPending = 1000

// snapshot is the state that top shows. Its JSON form is stable.
type snapshot struct {
	Time      time.Time           `json:"time"`
	Stats     api.ControllerStats `json:"stats"`
	PullRate  float64             `json:"pull_rate"` // bytes per second that nodes get from registries
	Nodes     []nodeLoad          `json:"nodes"`     // the busiest first
	MoreNodes int                 `json:"more_nodes,omitempty"`
	Pending   []pendingReason     `json:"pending"`   // the most frequent first
	Instances []activeInstance    `json:"instances"` // those that failed or start, the newest first
}

// nodeLoad is the load of a node.
type nodeLoad struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	State    string  `json:"state"`
	VMs      int     `json:"vms"`
	Capacity int     `json:"capacity"`  // VMs
	CPU      float64 `json:"cpu"`       // used share, 0..1
	Memory   float64 `json:"memory"`    // used share, 0..1
	DiskFree int64   `json:"disk_free"` // bytes
}

// pendingReason is a reason why instances are pending.
type pendingReason struct {
	Reason string  `json:"reason"`
	Count  int     `json:"count"`
	Oldest float64 `json:"oldest"` // seconds that the first one has waited
}

// activeInstance is an instance that failed or starts.
type activeInstance struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	State   string    `json:"state"`
	Share   float64   `json:"progress"` // of the pull, 0..1
	Node    string    `json:"node_id,omitempty"`
	Since   time.Time `json:"since"` // last change of its record
	Message string    `json:"message,omitempty"`
}

// takeSnapshot reads the present state. limit bounds each table.
func takeSnapshot(ctx context.Context, c *client.Controller, limit int) (*snapshot, error) {
	s := &snapshot{Time: time.Now().UTC()}
	var err error
	if s.Stats, err = c.Stats(ctx); err != nil {
		return nil, err
	}
	series, err := c.Series(ctx, "1h")
	if err != nil {
		return nil, err
	}
	s.PullRate = lastPullRate(series)
	nodes, err := c.Nodes(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	s.addNodes(nodes, limit)
	pending, err := c.Instances(ctx, client.ListOptions{Filter: "state:scheduling", Limit: maxPending})
	if err != nil {
		return nil, err
	}
	s.addPending(pending, limit)
	s.Instances = []activeInstance{}
	for _, state := range []string{"error", "pulling"} {
		list, err := c.Instances(ctx, client.ListOptions{Filter: "state:" + state, Limit: limit})
		if err != nil {
			return nil, err
		}
		s.addInstances(list)
	}
	slices.SortFunc(s.Instances, func(a, b activeInstance) int { return b.Since.Compare(a.Since) })
	s.Instances = s.Instances[:min(len(s.Instances), limit)]
	return s, nil
}

// lastPullRate returns the rate of the last complete step.
func lastPullRate(s api.Series) float64 {
	if len(s.Points) < 2 || s.Step <= 0 {
		return 0
	}
	return float64(s.Points[len(s.Points)-2].Pulled) / float64(s.Step)
}

func (s *snapshot) addNodes(list []api.Node, limit int) {
	s.Nodes = []nodeLoad{}
	for _, n := range list {
		s.Nodes = append(s.Nodes, nodeLoad{
			ID: n.NodeID, Name: n.NodeName, State: n.State, VMs: n.VMCount, Capacity: n.Capacity,
			CPU: n.CPUUtil, Memory: n.RAMUtil, DiskFree: n.FreeDisk,
		})
	}
	slices.SortFunc(s.Nodes, func(a, b nodeLoad) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.VMs, a.VMs), cmp.Compare(a.Name, b.Name))
	})
	if len(s.Nodes) > limit {
		s.MoreNodes = len(s.Nodes) - limit
		s.Nodes = s.Nodes[:limit]
	}
}

// addPending counts pending instances by their reasons.
func (s *snapshot) addPending(list []api.InstanceItem, limit int) {
	byReason := map[string]*pendingReason{}
	for _, i := range list {
		text := cmp.Or(i.VM.Message, "not evaluated yet")
		r := byReason[text]
		if r == nil {
			r = &pendingReason{Reason: text}
			byReason[text] = r
		}
		r.Count++
		r.Oldest = max(r.Oldest, s.Time.Sub(i.VM.CRTime).Seconds())
	}
	s.Pending = []pendingReason{}
	for _, r := range byReason {
		s.Pending = append(s.Pending, *r)
	}
	slices.SortFunc(s.Pending, func(a, b pendingReason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	s.Pending = s.Pending[:min(len(s.Pending), limit)]
}

func (s *snapshot) addInstances(list []api.InstanceItem) {
	for _, i := range list {
		s.Instances = append(s.Instances, activeInstance{
			ID: i.InstanceID, Name: i.VM.Name, State: i.VM.InstanceState, Share: i.VM.Progress, Node: i.VM.NodeID,
			Since: i.VM.TS, Message: i.VM.Message,
		})
	}
}

// table writes the snapshot as text.
func (s *snapshot) table(g *cli.Grid) {
	st := s.Stats
	g.Row(fmt.Sprintf("%d of %d VMs, %s pending (oldest %s), %.1f tasks/s, pulls %s/s",
		st.CapacityUsed, st.Capacity, fmt.Sprint(st.QueueDepth), secondsText(st.OldestWait), st.TasksPerSecond,
		bytesize.Format(int64(s.PullRate))))
	g.Row(fmt.Sprintf("last hour: %d starts, %d failures, %d terminations; instances: %s", st.StartsLastHour,
		st.FailuresLastHour, st.TerminationsLastHour, instanceStates(st.Instances)))

	g.Row("")
	g.Row("NODE", "STATE", "VMS", "CPU", "MEMORY", "DISK FREE")
	for _, n := range s.Nodes {
		g.Row(n.Name, n.State, fmt.Sprintf("%d/%d", n.VMs, n.Capacity), percent(n.CPU), percent(n.Memory),
			bytesize.Format(n.DiskFree))
	}
	if s.MoreNodes > 0 {
		g.Row(fmt.Sprintf("and %d more", s.MoreNodes))
	}
	if len(s.Pending) > 0 {
		g.Row("")
		g.Row("PENDING", "OLDEST", "REASON")
		for _, r := range s.Pending {
			g.Row(r.Count, secondsText(r.Oldest), r.Reason)
		}
	}
	if len(s.Instances) > 0 {
		g.Row("")
		g.Row("INSTANCE", "STATE", "AGE", "MESSAGE")
		for _, i := range s.Instances {
			state := i.State
			if i.Share > 0 && i.Share < 1 {
				state += " " + percent(i.Share)
			}
			g.Row(cmp.Or(i.Name, i.ID), state, secondsText(s.Time.Sub(i.Since).Seconds()), i.Message)
		}
	}
}

// instanceStates returns "3 Started, 1 Error": the states that instances are in.
func instanceStates(states map[string]int) string {
	present := maps.Clone(states)
	maps.DeleteFunc(present, func(_ string, n int) bool { return n == 0 })
	return cmp.Or(countStates(present), "none")
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

func secondsText(n float64) string {
	return time.Duration(max(n, 0) * float64(time.Second)).Round(time.Second).String()
}
