package events

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Bounds of the events about the states of nodes: an outage of a whole site is not to displace all
// other recent events.
const (
	burstWindow = 10 * time.Second // counted from the first event of a name
	burstSingle = 10               // events of a name in one window that are written one by one
)

// burstNames maps the event of one node to the event that summarizes many.
var burstNames = map[farm.EventName]farm.EventName{
	farm.EventNodeOffline:   farm.EventNodesOffline,
	farm.EventNodeUnhealthy: farm.EventNodesUnhealthy,
	farm.EventNodeRecovered: farm.EventNodesRecovered,
}

// nodeStateEvent returns the event of a node that became Offline or Unhealthy, or is neither any
// longer; ok is false for another change. since is when the Offline or Unhealthy state began.
func nodeStateEvent(was, now *farm.Node) (event farm.Event, ok bool) {
	if was == nil || now == nil || was.State == now.State {
		return event, false
	}
	troubled := func(n *farm.Node) bool { return n.State == farm.NodeOffline || n.State == farm.NodeUnhealthy }
	name, cause := farm.EventNodeRecovered, was
	switch {
	case now.State == farm.NodeOffline:
		name, cause = farm.EventNodeOffline, now
	case now.State == farm.NodeUnhealthy:
		name, cause = farm.EventNodeUnhealthy, now
	case !troubled(was) || was.StateSince.Equal(was.Joined): // a node that has just joined is Offline, too
		return event, false
	}
	return farm.NewNodeEvent(name, now, map[string]any{
		"node_state": now.VisibleState(), "former_state": was.VisibleState(),
		"since": cause.StateSince.Unix(), "reason": farm.Clip(cause.StateReason, maxEventText),
	}), true
}

// burst counts the events of one name in a window, and has those that are not written one by one.
type burst struct {
	ends   time.Time
	single int
	held   map[string]heldState // node ID -> its last change
}

// heldState is a change of a node's state whose event is not written on its own.
type heldState struct {
	at     time.Time
	reason string
}

// bursts limits the events about states of nodes.
type bursts struct {
	wake chan struct{} // has a value when the first event is held

	mu     sync.Mutex // guards the fields below
	byName map[farm.EventName]*burst
}

func newBursts() *bursts {
	return &bursts{wake: make(chan struct{}, 1), byName: map[farm.EventName]*burst{}}
}

// admit reports whether an event about one node is written on its own. Otherwise it is held for the
// summary.
func (b *bursts) admit(event farm.Event, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byName[event.Name]
	if of == nil || len(of.held) == 0 && !now.Before(of.ends) {
		of = &burst{ends: now.Add(burstWindow), held: map[string]heldState{}}
		b.byName[event.Name] = of
	}
	if of.single < burstSingle {
		of.single++
		return true
	}
	id, _ := event.Extra["node_id"].(string)
	reason, _ := event.Extra["reason"].(string)
	of.held[id] = heldState{now, reason}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return false
}

// due returns the held changes of the windows that have ended, of all with every.
func (b *bursts) due(now time.Time, every bool) map[farm.EventName]map[string]heldState {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := map[farm.EventName]map[string]heldState{}
	for name, of := range b.byName {
		if len(of.held) > 0 && (every || !now.Before(of.ends)) {
			list[name] = of.held
			delete(b.byName, name)
		}
	}
	return list
}

// pending reports whether changes are held.
func (b *bursts) pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range b.byName {
		if len(of.held) > 0 {
			return true
		}
	}
	return false
}

// addNodeState adds the event of a change of a node's state, unless its summary will have it.
func (e *Log) addNodeState(list []farm.Event, change store.Change) []farm.Event {
	was, _, _ := e.db.Tables.Nodes.Get(change.ID())
	now, _ := change.Value().(*farm.Node)
	if event, ok := nodeStateEvent(was, now); ok && e.bursts.admit(event, e.db.Now()) {
		return append(list, event)
	}
	return list
}

// summarize writes the summaries of this replica's held events, until the context ends; then those
// that are left.
func (e *Log) summarize(ctx context.Context) {
	tick := time.NewTicker(burstWindow / 10)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-ctx.Done():
			e.writeSummaries(ctx, true)
			return
		case <-e.bursts.wake:
		}
		tick.Reset(burstWindow / 10)
		for e.bursts.pending() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				e.writeSummaries(ctx, false)
			}
		}
	}
}

// writeSummaries writes one event for each name whose window has ended. A summary that cannot be
// written is dropped: the states themselves are in the records of the nodes.
func (e *Log) writeSummaries(ctx context.Context, every bool) {
	var list []farm.Event
	for name, held := range e.bursts.due(e.db.Now(), every) {
		if event, ok := e.summary(name, held); ok {
			list = append(list, event)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tendTime)
	defer cancel()
	if err := e.Append(ctx, list...); err != nil {
		e.db.Log.WarnContext(ctx, "writing a summary of node states failed", "error", err)
	}
}

// summary returns the event about the held changes of one name; ok is false when none of them was
// committed.
func (e *Log) summary(name farm.EventName, held map[string]heldState) (event farm.Event, ok bool) {
	reasons, ids, since := map[string]int{}, []string(nil), time.Time{}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		change := held[id]
		node, _, known := e.db.Tables.Nodes.Get(id)
		if !known || node.StateSince.Before(change.at.Add(-burstWindow)) { // its commit failed
			continue
		}
		ids = append(ids, id)
		reasons[change.reason]++
		if since.IsZero() || change.at.Before(since) {
			since = change.at
		}
	}
	if len(ids) == 0 {
		return event, false
	}
	reason := slices.MaxFunc(slices.Sorted(maps.Keys(reasons)),
		func(a, b string) int { return cmp.Compare(reasons[a], reasons[b]) })
	return farm.Event{Name: burstNames[name], Extra: map[string]any{
		"node_count": len(ids), "node_ids": ids[:min(len(ids), maxEventNodes)],
		"since": since.Unix(), "reason": reason,
	}}, true
}
