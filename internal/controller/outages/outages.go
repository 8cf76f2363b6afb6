package outages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	maxAge     = time.Second     // of the facts of an answer: the portal requests the status for every page
	gap        = 5 * time.Minute // nodes that are lost with a longer pause between them are not of one outage
	maxOutages = 20
	maxGroups  = 10
	maxNodeIDs = 10
)

// The share of the nodes from which an outage is an alarm: all nodes, or this many.
const (
	alarmNodes   = 3
	alarmPercent = 20
)

// Options configure Outages. All fields are set.
type Options struct {
	NodeTimeout     time.Duration // time without contact after which a node is Offline
	InstanceTimeout time.Duration // after that, how long its instances may come back

	// LastContact returns when a node was last in contact with any replica; zero: not known.
	LastContact func(node string) time.Time
	// Paused reports whether a maintenance pauses the timeouts.
	Paused func() bool
	// Since returns the moment from which a timeout that began at t counts.
	Since func(t time.Time) time.Time
}

// Outages are the nodes of a cloud that are Offline or Unhealthy.
type Outages struct {
	db   record.DB
	opts Options

	mu    sync.Mutex // guards the fields below
	taken time.Time
	lost  []lostNode
}

// lostNode is a node that is Offline or Unhealthy, and its instances.
type lostNode struct {
	node      *farm.Node
	cause     string    // equal for nodes with the same reason
	since     time.Time // last contact, or when it became Unhealthy
	instances int
	atRisk    int
	errorAt   time.Time
}

// New returns the outages of a database.
func New(db record.DB, o Options) *Outages { return &Outages{db: db, opts: o} }

// Current returns the outages of the nodes that sees accepts, the largest first.
func (o *Outages) Current(sees func(node string) bool) []api.Outage {
	var lost []lostNode
	for _, one := range o.facts() {
		if sees(one.node.ID) {
			lost = append(lost, one)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	total, sizes := 0, map[string]int{} // group ID -> its nodes
	for id, node := range o.db.Tables.Nodes.All() {
		if !sees(id) {
			continue
		}
		total++
		for _, group := range node.Groups {
			sizes[group]++
		}
	}
	var list []api.Outage
	for _, nodes := range clusters(lost) {
		outage := describe(nodes)
		outage.Of, outage.Groups = total, o.groups(nodes, sizes)
		list = append(list, outage)
	}
	slices.SortStableFunc(list, func(a, b api.Outage) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return list[:min(len(list), maxOutages)]
}

// facts returns the nodes that are lost, at most maxAge old. It reads their instances, and no others.
func (o *Outages) facts() []lostNode {
	now := o.db.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if age := now.Sub(o.taken); age >= 0 && age < maxAge {
		return o.lost
	}
	o.taken, o.lost = now, nil
	for _, node := range o.db.Tables.Nodes.All() {
		joined := node.StateSince.Equal(node.Joined)
		if !joined && (node.State == farm.NodeOffline || node.State == farm.NodeUnhealthy) {
			o.lost = append(o.lost, o.fact(node))
		}
	}
	return o.lost
}

func (o *Outages) fact(node *farm.Node) lostNode {
	out := lostNode{node: node, cause: causeOf(node), since: node.StateSince}
	offline := node.State == farm.NodeOffline
	if offline {
		out.since = o.opts.LastContact(node.ID)
		if out.since.IsZero() || out.since.After(node.StateSince) {
			out.since = node.StateSince.Add(-o.opts.NodeTimeout)
		}
	}
	for _, inst := range o.db.Tables.Instances.Where(record.ByNode, node.ID) {
		if inst.State == farm.Terminated || inst.IsStandby() {
			continue
		}
		out.instances++
		if !offline || inst.State == farm.Errored || inst.State == farm.Terminating {
			continue
		}
		out.atRisk++
		began := inst.NodeLostAt
		if began.IsZero() {
			began = node.StateSince
		}
		if at := o.opts.Since(began).Add(o.opts.InstanceTimeout); out.errorAt.IsZero() || at.Before(out.errorAt) {
			out.errorAt = at
		}
	}
	if o.opts.Paused() {
		out.errorAt = time.Time{}
	}
	return out
}

// causeOf returns the reason of a node's state without its numbers.
func causeOf(node *farm.Node) string {
	if node.State == farm.NodeOffline {
		cause, _, _ := strings.Cut(node.StateReason, " for ")
		return cause
	}
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return '#'
		}
		return c
	}, node.StateReason)
}

// clusters returns the nodes of each outage, in the order in which they were lost.
func clusters(lost []lostNode) (list [][]lostNode) {
	slices.SortFunc(lost, func(a, b lostNode) int {
		return cmp.Or(strings.Compare(string(a.node.State), string(b.node.State)), strings.Compare(a.cause, b.cause),
			a.since.Compare(b.since), strings.Compare(a.node.ID, b.node.ID))
	})
	begin := 0
	for i := 1; i <= len(lost); i++ {
		if i < len(lost) {
			a, b := lost[i-1], lost[i]
			if a.node.State == b.node.State && a.cause == b.cause && b.since.Sub(a.since) <= gap {
				continue
			}
		}
		list = append(list, lost[begin:i])
		begin = i
	}
	return list
}

// describe returns the outage of nodes, in the order in which they were lost.
func describe(lost []lostNode) api.Outage {
	first, last := lost[0], lost[len(lost)-1]
	out := api.Outage{
		State: string(first.node.State), Reason: first.node.StateReason, Nodes: len(lost),
		FirstContactLost: first.since, LastContactLost: last.since,
		AddressPrefix: commonPrefix(lost), NodeIDs: []string{},
	}
	if first.node.State == farm.NodeOffline {
		out.Reason = first.cause
	}
	for _, one := range lost {
		out.Instances += one.instances
		out.InstancesAtRisk += one.atRisk
		if at := one.errorAt; !at.IsZero() && (out.ErrorAt.IsZero() || at.Before(out.ErrorAt)) {
			out.ErrorAt = at
		}
	}
	byName := slices.SortedFunc(slices.Values(lost), func(a, b lostNode) int {
		return cmp.Or(strings.Compare(a.node.Name, b.node.Name), strings.Compare(a.node.ID, b.node.ID))
	})
	for _, one := range byName[:min(len(byName), maxNodeIDs)] {
		out.NodeIDs = append(out.NodeIDs, one.node.ID)
	}
	return out
}

// groups returns the groups of nodes, with the number of all their nodes.
func (o *Outages) groups(lost []lostNode, sizes map[string]int) (list []api.OutageGroup) {
	affected := map[string]int{}
	for _, one := range lost {
		for _, id := range one.node.Groups {
			affected[id]++
		}
	}
	for id, n := range affected {
		if group, _, ok := o.db.Tables.Groups.Get(id); ok { // a deleted one may still be named
			list = append(list, api.OutageGroup{ID: id, Name: group.Name, Nodes: n, Of: sizes[id]})
		}
	}
	slices.SortFunc(list, func(a, b api.OutageGroup) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Of, b.Of), strings.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), maxGroups)]
}

// Alarms is the source of the alarm of an outage of many nodes.
func (o *Outages) Alarms() []api.Alarm {
	list := o.Current(func(string) bool { return true })
	if len(list) == 0 {
		return nil
	}
	lost := len(o.facts())
	largest := list[0]
	if lost < largest.Of && (lost < alarmNodes || lost*100 < largest.Of*alarmPercent) {
		return nil
	}
	message := fmt.Sprintf("%d of %d nodes are Offline or Unhealthy; the largest outage: %s", lost, largest.Of,
		Describe(largest))
	return []api.Alarm{{
		Name: api.AlarmOutage, Since: largest.FirstContactLost, Count: lost, Message: message,
		Urgent: 2*lost >= largest.Of,
		Action: "Check what these nodes share: network, power, group. Show them: buildyard node list.",
	}}
}

// Describe returns an outage as a text: "200 nodes Offline (no contact), all of group ci, 10.1.2.0/24".
func Describe(o api.Outage) string {
	nodes := "nodes"
	if o.Nodes == 1 {
		nodes = "node"
	}
	text := fmt.Sprintf("%d %s %s", o.Nodes, nodes, o.State)
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	if len(o.Groups) > 0 && o.Groups[0].Nodes == o.Nodes && o.Nodes > 1 {
		text += ", all of group " + o.Groups[0].Name
	}
	if o.AddressPrefix != "" {
		text += ", addresses in " + o.AddressPrefix
	}
	return text
}
