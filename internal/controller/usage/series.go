package usage

import (
	"context"
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
	// recordsPerCommit is how many records are written together: the largest ones fit a transaction.
	recordsPerCommit = 8
	maxPulled        = 1 << 44 // bytes that a node is assumed to have pulled at most between two polls
)

// series records the utilization of the cloud: in steps of a minute for hours, in longer ones for
// days. Every replica computes it separately, since each sees all records; the bytes that nodes
// pull it learns from them or from the replica that they poll. The leader stores it.
type series struct {
	db     record.DB
	counts func() Snapshot

	mu    lockorder.Mutex[lockorder.Series] // guards the fields below
	rings []ring
	total int64     // bytes that nodes have reported to this replica
	kept  time.Time // up to when it is recorded
	tried time.Time // when that was last tried
}

// ring has the newest points of one step length.
type ring struct {
	step   time.Duration
	batch  int64 // points in one record
	points []point
}

func newSeries(db record.DB) *series {
	return &series{db: db, kept: db.Now(), tried: db.Now(), rings: []ring{
		{step: time.Minute, batch: 60, points: make([]point, 6*60+3)},
		{step: 10 * time.Minute, batch: 72, points: make([]point, 7*24*6+6)},
	}}
}

// number returns the number of a ring's step.
func (r *ring) number(t time.Time) int64 { return max(t.Unix(), 0) / int64(r.step/time.Second) }

// now returns the point of the current step.
func (r *ring) now(t time.Time) *point {
	at := r.number(t)
	p := &r.points[at%int64(len(r.points))]
	if p.at != at {
		*p = point{at: at}
	}
	return p
}

// seek returns the point of a step; nil without samples.
func (r *ring) seek(at int64) *point {
	if at < 0 {
		return nil
	}
	if p := &r.points[at%int64(len(r.points))]; p.at == at && p.samples > 0 {
		return p
	}
	return nil
}

// each applies do to the points of the current steps.
func (s *series) each(do func(*point)) {
	now := s.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rings {
		do(s.rings[i].now(now))
	}
}

// run takes samples periodically.
func (s *series) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.sample()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *series) sample() {
	n := s.counts()
	running := n.States[string(farm.Started)]
	s.each(func(p *point) {
		p.samples++
		p.running += running
		p.queue += n.Queue
		p.peak = max(p.peak, n.Queue)
	})
}

// started counts a started VM.
func (s *series) started(took time.Duration) {
	class := classOf(took)
	s.each(func(p *point) { p.start(class) })
}

// pulledHere counts the bytes that a node which polls this replica has pulled.
func (s *series) pulledHere(bytes int64) {
	bytes = min(max(bytes, 0), maxPulled)
	s.mu.Lock()
	s.total += bytes
	s.mu.Unlock()
	s.pulled(bytes)
}

// pulled counts the bytes that nodes have pulled.
func (s *series) pulled(bytes int64) {
	if bytes > 0 {
		s.each(func(p *point) { p.pulled += min(bytes, maxPulled) })
	}
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
	for i := range s.rings {
		r := &s.rings[i]
		if f.Step != int64(r.step/time.Second) {
			continue
		}
		last := r.number(now)
		for j := range f.Points {
			p := &f.Points[j]
			if p.At < 0 || p.At > last || p.At <= last-int64(len(r.points)) {
				continue
			}
			if own := r.seek(p.At); own == nil || own.samples < p.Samples {
				r.points[p.At%int64(len(r.points))] = pointOf(p)
			}
		}
	}
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
	var changes []store.Change
	busy := false
	for i := range s.rings {
		r := &s.rings[i]
		busy = busy || r.busySince(since)
		for b := r.number(since) / r.batch; busy && b <= r.number(now)/r.batch; b++ {
			if f := r.record(b); len(f.Points) > 0 {
				changes = append(changes, store.Put(s.db.Tables.Series, recordID(r.step, b), f, store.Any))
			}
		}
		changes = append(changes, s.outdatedLocked(r, now)...)
	}
	s.mu.Unlock()
	for some := range slices.Chunk(changes, recordsPerCommit) {
		if err := term.Commit(ctx, some...); err != nil {
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

// busySince reports whether there was any activity: points that do not justify a write are recorded
// with later ones.
func (r *ring) busySince(t time.Time) bool {
	first := r.number(t)
	return slices.ContainsFunc(r.points, func(p point) bool {
		return p.at >= first && (p.running > 0 || p.queue > 0 || p.pulled > 0 || p.starts != nil)
	})
}

// record returns the points of one record.
func (r *ring) record(batch int64) *record.SeriesRecord {
	f := &record.SeriesRecord{Step: int64(r.step / time.Second)}
	for at := batch * r.batch; at < (batch+1)*r.batch; at++ {
		if p := r.seek(at); p != nil {
			f.Points = append(f.Points, p.toRecord())
		}
	}
	return f
}

// outdatedLocked removes the records whose points no request can cover any longer.
func (s *series) outdatedLocked(r *ring, now time.Time) (changes []store.Change) {
	first := r.number(now) - int64(len(r.points))
	for id, f := range s.db.Tables.Series.All() {
		if n := len(f.Points); f.Step == int64(r.step/time.Second) && (n == 0 || f.Points[n-1].At < first) {
			changes = append(changes, store.Delete(s.db.Tables.Series, id, store.Any))
		}
	}
	return changes
}

// seriesRange is a range of the API: its length, and how many points are merged into one.
type seriesRange struct {
	name  string
	ring  int
	steps int // of the ring
	merge int
}

var spans = []seriesRange{
	{api.RangeHour, 0, 60, 1},
	{api.RangeQuarter, 0, 360, 3},
	{api.RangeDay, 1, 144, 1},
	{api.RangeWeek, 1, 1008, 6},
}

// Series returns the utilization of the cloud over a range of the API.
func (u *Usage) Series(over string) (api.Series, error) {
	i := slices.IndexFunc(spans, func(s seriesRange) bool { return s.name == over })
	if i < 0 {
		return api.Series{}, farm.Invalid("range", "must be %s, %s, %s or %s", api.RangeHour, api.RangeQuarter,
			api.RangeDay, api.RangeWeek)
	}
	return u.series.over(spans[i]), nil
}

func (s *series) over(o seriesRange) api.Series {
	now := s.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.rings[o.ring]
	step, merge := time.Duration(o.merge)*r.step, int64(o.merge)
	last := r.number(now) / merge
	first := last - int64(o.steps/o.merge) + 1
	out := api.Series{
		Range: o.name, Step: int(step / time.Second), To: now.Truncate(time.Second),
		From: time.Unix(first*int64(step/time.Second), 0).UTC(), Points: []api.SeriesPoint{},
	}
	for at := max(first, 0); at <= last; at++ {
		sum := point{at: at}
		for n := at * merge; n < (at+1)*merge; n++ {
			if p := r.seek(n); p != nil {
				sum.add(p)
			}
		}
		if sum.samples > 0 {
			out.Points = append(out.Points, sum.toAPI(step))
		}
	}
	return out
}
