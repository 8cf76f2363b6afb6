package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Intervals and limits of the series.
const (
	sampleEvery   = 10 * time.Second
	StoreInterval = 5 * time.Minute
	// recordsPerCommit is how many records of the cloud are written together: the largest ones fit a
	// transaction. Those of groups are written alone.
	recordsPerCommit = 8
	maxPulled        = 1 << 44 // bytes that a node is assumed to have pulled at most between two polls

	// The timeline of a node or a group has up to 32 KB.
	maxNodeSeries  = 2000
	maxGroupSeries = 100
)

// series records the utilization of the cloud, of its groups and of its nodes: in short steps for hours,
// in longer ones for days. Every replica computes it separately, since each sees all records; the bytes
// that nodes pull and the loads of their hosts it learns from them or from the replica that they poll.
// The leader stores the series of the cloud and of groups. Those of nodes are only in memory.
type series struct {
	db   record.DB
	opts Options

	counters *counters

	mu     lockorder.Mutex[lockorder.Series] // guards the fields below
	cloud  timeline
	nodes  map[string]timeline // node id -> its timeline
	groups map[string]timeline // group id -> its timeline
	total  int64               // bytes that nodes have reported to this replica
	kept   time.Time           // up to when it is recorded
	tried  time.Time           // when that was last tried
}

func newSeries(db record.DB, opts Options) *series {
	return &series{
		db: db, opts: opts, kept: db.Now(), tried: db.Now(), cloud: newCloudTimeline(),
		nodes: map[string]timeline{}, groups: map[string]timeline{},
	}
}

// count applies do to the current points of the cloud, of a node and of its groups. Without a node it is
// that of the requested group.
func (s *series) count(node, group string, do func(*point)) {
	now, groups := s.db.Now(), []string{group}
	if node != "" {
		groups = s.groupsOf(node)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cloud.each(now, do)
	s.countPartsLocked(now, node, groups, do)
}

// countPartsLocked also counts for a node or a group that was not measured yet. The next sample drops those that do not
// exist.
func (s *series) countPartsLocked(now time.Time, node string, groups []string, do func(*point)) {
	countPart(s.nodes, node, maxNodeSeries, now, do)
	for _, id := range groups {
		countPart(s.groups, id, maxGroupSeries, now, do)
	}
}

func countPart(of map[string]timeline, id string, most int, now time.Time, do func(*point)) {
	if id == "" {
		return
	}
	if t := part(of, id, most); t != nil {
		t.each(now, do)
	}
}

// groupsOf returns the groups of a node.
func (s *series) groupsOf(node string) []string {
	if n, _, ok := s.db.Tables.Nodes.Get(node); ok {
		return n.Groups
	}
	return nil
}

// started counts a started VM.
func (s *series) started(inst *farm.Instance, took time.Duration) {
	class := classOf(took)
	s.count(inst.NodeID, inst.GroupID, func(p *point) { p.start(class) })
}

// failed counts an instance that went to Error.
func (s *series) failed(inst *farm.Instance) {
	s.count(inst.NodeID, inst.GroupID, func(p *point) { p.failures++ })
}

// pulledHere counts the bytes that a node which polls this replica has pulled.
func (s *series) pulledHere(node string, bytes int64) {
	if bytes = min(bytes, maxPulled); bytes <= 0 {
		return
	}
	s.mu.Lock()
	s.total += bytes
	s.mu.Unlock()
	s.count(node, "", func(p *point) { p.pulled += bytes })
}

// pulledElsewhere counts the bytes that the nodes of another replica have pulled.
func (s *series) pulledElsewhere(bytes int64) {
	if bytes > 0 {
		s.count("", "", func(p *point) { p.pulled += min(bytes, maxPulled) })
	}
}

// nodePulledElsewhere counts the part of a node in the bytes of another replica.
func (s *series) nodePulledElsewhere(node string, bytes int64) {
	if bytes = min(bytes, maxPulled); bytes <= 0 {
		return
	}
	now, groups := s.db.Now(), s.groupsOf(node)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countPartsLocked(now, node, groups, func(p *point) { p.pulled += bytes })
}

// pulledTotal returns the bytes that nodes have reported to this replica, for its digest.
func (s *series) pulledTotal() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// load resumes from what is recorded.
func (s *series) load() {
	for _, f := range s.db.Tables.Series.All() {
		s.take(f)
	}
}

// observe takes over points that another replica recorded before this one was started.
func (s *series) observe(events []store.Event) {
	for _, e := range events {
		if f, ok := e.New.(*record.SeriesRecord); ok {
			s.take(f)
		}
	}
}

// take takes over the points of a record that have more samples than our own.
func (s *series) take(f *record.SeriesRecord) {
	now := s.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cloud.take(f.Step, f.Points, now)
	for id, points := range f.Groups {
		if t := part(s.groups, id, maxGroupSeries); t != nil {
			t.take(f.Step, points, now)
		}
	}
}

// part returns the timeline of a node or a group, a new one if it has none; nil: there are too many.
func part(of map[string]timeline, id string, most int) timeline {
	t := of[id]
	if t == nil && len(of) < most {
		t = newPartTimeline()
		of[id] = t
	}
	return t
}

// keep records the new points, and removes those that are too old.
func (s *series) keep(ctx context.Context, term *record.Term, now time.Time) error {
	s.mu.Lock()
	since := s.kept
	if pause := now.Sub(s.tried); pause >= 0 && pause < StoreInterval {
		s.mu.Unlock()
		return nil
	}
	s.tried = now
	busy := s.cloud.busySince(since)
	var changes, groups []store.Change
	if busy {
		changes = s.cloudChangesLocked(since, now)
		groups = s.groupChangesLocked(since, now)
	}
	s.mu.Unlock()

	changes = append(changes, s.outdated(now)...)
	for some := range slices.Chunk(changes, recordsPerCommit) {
		if err := term.Commit(ctx, some...); err != nil {
			return err
		}
	}
	for _, change := range groups {
		if err := term.Commit(ctx, change); err != nil {
			return err
		}
	}
	if busy {
		s.mu.Lock()
		s.kept = now
		s.mu.Unlock()
	}
	return nil
}

// cloudChangesLocked returns the records of the cloud with points since a time.
func (s *series) cloudChangesLocked(since, now time.Time) (changes []store.Change) {
	for i := range s.cloud {
		r := &s.cloud[i]
		for b := r.number(since) / r.batch; b <= r.number(now)/r.batch; b++ {
			if points := r.recorded(b); len(points) > 0 {
				f := &record.SeriesRecord{Step: int64(r.step / time.Second), Points: points}
				changes = append(changes, store.Put(s.db.Tables.Series, recordID("", r.step, b), f, store.Any))
			}
		}
	}
	return changes
}

// groupChangesLocked returns the records of groups with points since a time: each has the points of all
// groups in some steps.
func (s *series) groupChangesLocked(since, now time.Time) (changes []store.Change) {
	for i, r := range newPartTimeline() {
		first := max(r.number(since), r.number(now)-r.size+1)
		for b := first / r.batch; b <= r.number(now)/r.batch; b++ {
			f := &record.SeriesRecord{Step: int64(r.step / time.Second), Groups: map[string][]record.SeriesStep{}}
			for id, t := range s.groups {
				if points := t[i].recorded(b); len(points) > 0 {
					f.Groups[id] = points
				}
			}
			if len(f.Groups) > 0 {
				changes = append(changes, store.Put(s.db.Tables.Series, recordID("g", r.step, b), f, store.Any))
			}
		}
	}
	return changes
}

// recordID returns the id of the record of some steps.
func recordID(kind string, step time.Duration, batch int64) string {
	return fmt.Sprintf("%s%d-%d", kind, int64(step/time.Second), batch)
}

// outdated returns the changes that remove the records which no request can cover any longer.
func (s *series) outdated(now time.Time) (changes []store.Change) {
	for id, f := range s.db.Tables.Series.All() {
		if f.LastStep() < firstKept(f, now) {
			changes = append(changes, store.Delete(s.db.Tables.Series, id, store.Any))
		}
	}
	return changes
}

// firstKept returns the number of the oldest step that a record may still be needed for.
func firstKept(f *record.SeriesRecord, now time.Time) int64 {
	size := map[int64]int64{} // length of a step in seconds -> steps that are kept
	rings := newCloudTimeline()
	if f.Groups != nil {
		rings = newPartTimeline()
	}
	for _, r := range rings {
		size[int64(r.step/time.Second)] = r.size
	}
	if f.Usage != nil {
		for _, r := range newUsageRings() {
			size[int64(r.step/time.Second)] = r.size
		}
	}
	if size[f.Step] == 0 {
		return 0 // it has steps of a length that there is not: it is kept unless it is empty
	}
	return max(now.Unix(), 0)/f.Step - size[f.Step]
}

// Series returns the utilization of the cloud over a range of the API.
func (u *Usage) Series(over string) (api.Series, error) {
	return u.series.over(over, func() timeline { return u.series.cloud })
}

// NodeSeries returns the utilization of a node over a range of the API. A node that was not measured has no points.
func (u *Usage) NodeSeries(over, node string) (api.Series, error) {
	out, err := u.series.over(over, func() timeline { return u.series.nodes[node] })
	out.NodeID = node
	return out, err
}

// GroupSeries returns the utilization of a group over a range of the API: that of its nodes, and its pending
// instances.
func (u *Usage) GroupSeries(over, group string) (api.Series, error) {
	out, err := u.series.over(over, func() timeline { return u.series.groups[group] })
	out.GroupID = group
	return out, err
}

// over returns the points of a timeline, which choose returns while the lock is held.
func (s *series) over(name string, choose func() timeline) (api.Series, error) {
	o, err := rangeOf(name)
	if err != nil {
		return api.Series{}, err
	}
	now := s.db.Now()
	out := newAPISeries(o, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	choose().over(o, now, func(_ int, p *point) { out.Points = append(out.Points, p.toAPI(o.step)) })
	return out, nil
}

func newAPISeries(o seriesRange, now time.Time) api.Series {
	first, _ := o.bounds(now)
	return api.Series{
		Range: o.name, Step: int(o.step / time.Second), To: now.Truncate(time.Second), From: o.start(first),
		Points: []api.SeriesPoint{},
	}
}
