package nodelink

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of a node's writes that only describe: its description, its address, texts and progress of
// its instances. Transitions of instances that are placed on it are not limited, see record.StatusChange.
const (
	writeBurst    = 6                // writes without a pause
	writeInterval = 10 * time.Second // one more
	writeTime     = 15 * time.Second // for delayed writes
)

// pacedWrites holds the latest reports of a node that are written later. The mutex of its session
// guards it.
type pacedWrites struct {
	used      int       // writes of the burst
	since     time.Time // when the oldest of these was made, or one was last returned
	scheduled bool      // a timer writes what follows
	info      *farm.NodeInfo
	base      *farm.NodeInfo // the record when info was delayed
	infoFirst bool           // info was delayed again for the statuses: it comes before them
	host      string
	statuses  map[string]api.InstanceStatus // instance id -> its last status
}

// dropWrite removes a delayed write that a new one replaces.
func (s *session) dropWrite(forget func(*pacedWrites)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	forget(&s.writes)
}

func (w *pacedWrites) addStatuses(statuses map[string]api.InstanceStatus) {
	if w.statuses == nil {
		w.statuses = map[string]api.InstanceStatus{}
	}
	maps.Copy(w.statuses, statuses)
}

// restoreStatuses keeps statuses whose write failed until the next write. Later ones of the same
// instances stay.
func (l *Link) restoreStatuses(ctx context.Context, s *session, statuses []api.InstanceStatus) {
	if len(statuses) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := map[string]api.InstanceStatus{}
	for _, status := range statuses {
		if _, later := s.writes.statuses[status.InstanceID]; !later {
			old[status.InstanceID] = status
		}
	}
	s.writes.addStatuses(old)
	l.scheduleWriteLocked(ctx, s)
}

// takeWrite reports whether the node may write now, and counts the write.
func (s *session) takeWrite(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes.take(now)
}

func (w *pacedWrites) take(now time.Time) bool {
	if back := int(now.Sub(w.since) / writeInterval); w.used > 0 && back > 0 {
		w.used = max(w.used-back, 0)
		w.since = w.since.Add(time.Duration(back) * writeInterval)
	}
	if w.used == 0 {
		w.since = now
	}
	if w.used >= writeBurst {
		return false
	}
	w.used++
	return true
}

// allowWrite reports whether the node may write now. If not, later stores what is to be written as
// soon as it may.
func (l *Link) allowWrite(ctx context.Context, s *session, later func(*pacedWrites)) bool {
	now := l.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.writes
	if w.take(now) {
		return true
	}
	if s.dropped {
		return false
	}
	later(w)
	l.scheduleWriteLocked(ctx, s)
	return false
}

// scheduleWriteLocked starts a timer that writes the delayed reports as soon as the node may write.
func (l *Link) scheduleWriteLocked(ctx context.Context, s *session) {
	w := &s.writes
	if w.scheduled || s.dropped {
		return
	}
	w.scheduled = true
	wait := max(w.since.Add(writeInterval).Sub(l.db.Now()), time.Millisecond)
	time.AfterFunc(wait, func() { l.writeLater(context.WithoutCancel(ctx), s) })
}

// writeLater writes the delayed reports, as far as the node may write now. If that fails the node
// is asked for everything.
func (l *Link) writeLater(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	s.describing.Lock() // a poll with a newer report waits, and is written after this
	defer s.describing.Unlock()
	s.mu.Lock()
	w := &s.writes
	info, base, host, infoFirst := w.info, w.base, w.host, w.infoFirst
	w.info, w.base, w.host, w.infoFirst, w.scheduled = nil, nil, "", false, false
	s.mu.Unlock()
	node, _, ok := l.db.Tables.Nodes.Get(s.node)
	if !ok {
		return
	}

	statuses := func() error { return l.applyStatuses(ctx, s, s.takeStatuses()) }
	describe := func() error {
		putOff := func(w *pacedWrites) { w.info, w.base, w.infoFirst = info, base, true }
		if info == nil || !l.allowWrite(ctx, s, putOff) {
			return nil
		}
		return l.writeInfo(ctx, s, info, base)
	}
	first, second := statuses, describe
	if infoFirst {
		first, second = second, first
	}
	err := first()
	if err == nil {
		err = second()
	}
	if err == nil && host != "" && node.State != farm.NodeOffline { // Offline: its next poll has its address
		err = l.restoreContact(ctx, s, node, host)
	}
	if err != nil {
		l.db.Log.WarnContext(ctx, "storing the description of a node failed; its next report is a full one",
			"node_id", s.node, "error", err)
		s.mu.Lock()
		s.infoHash, s.inventoryHash = "", ""
		s.mu.Unlock()
	}
}

// ScriptOutput returns what the startup script of an instance has printed so far, also when that is yet to be
// written; nil: nothing, or it has ended. Another replica knows what is written only.
func (l *Link) ScriptOutput(inst *farm.Instance) *farm.ScriptOutput {
	s := l.Sessions.session(inst.NodeID)
	if s == nil || inst.Script != nil {
		return inst.ScriptOutput
	}
	s.mu.Lock()
	status, waits := s.writes.statuses[inst.ID]
	s.mu.Unlock()
	if !waits || status.Claim != inst.Claim || status.No <= inst.StatusNumber || status.ScriptOutput == nil {
		return inst.ScriptOutput
	}
	return nodeinput.ScriptOutput(status.ScriptOutput)
}

// takeStatuses removes and returns the delayed statuses.
func (s *session) takeStatuses() []api.InstanceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.writes.statuses))
	s.writes.statuses = nil
	return list
}
