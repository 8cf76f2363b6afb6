package pools

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store"
)

// sum returns the sums of two periods.
func sum(a, b farm.PoolStats) farm.PoolStats {
	return farm.PoolStats{
		Hits: a.Hits + b.Hits, EarlyHits: a.EarlyHits + b.EarlyHits, Misses: a.Misses + b.Misses,
		SlotSeconds: a.SlotSeconds + b.SlotSeconds, SavedSeconds: a.SavedSeconds + b.SavedSeconds,
		Booted: a.Booted + b.Booted, Yielded: a.Yielded + b.Yielded, Replaced: a.Replaced + b.Replaced,
		Failed: a.Failed + b.Failed,
	}
}

// add changes the sums of a pool that are not stored yet.
func (s *Pools) add(pool string, change func(*farm.PoolStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		return
	}
	if s.sums[pool] == nil {
		s.sums[pool] = &farm.PoolStats{}
	}
	change(s.sums[pool])
}

// count counts what a change of an instance means for its pool.
func (s *Pools) count(was, now *farm.Instance) {
	switch {
	case now == nil:
	case was == nil && now.MissedPool != "":
		s.add(now.MissedPool, func(t *farm.PoolStats) { t.Misses++ })
		s.misses.Inc()
	case was == nil:
	case was.IsStandby() && now.Claimed != nil && !now.IsStandby():
		s.add(was.Pool, func(t *farm.PoolStats) {
			if now.Claimed.Early {
				t.EarlyHits++
			} else {
				t.Hits++
			}
			t.SavedSeconds += now.Claimed.BootSeconds
		})
		if now.Claimed.Early {
			s.earlyHits.Inc()
		} else {
			s.hits.Inc()
		}
	case now.IsStandby() && !was.IsReady() && now.IsReady():
		s.add(now.Pool, func(t *farm.PoolStats) { t.Booted++ })
		s.setState(now.Pool, func(to *poolState) { to.failures, to.agedAt = 0, time.Time{} })
	}
}

// addSlotTime counts a time for each standby that uses a slot.
func (s *Pools) addSlotTime(elapsed time.Duration) {
	seconds := max(0, elapsed.Seconds())
	for _, inst := range s.allStandbys() {
		if inst.UsesCapacity() {
			s.add(inst.Pool, func(t *farm.PoolStats) { t.SlotSeconds += seconds })
			s.slotMillis.Add(int64(seconds * 1000))
		}
	}
}

// Families returns the metrics of pools, all of them together.
func (s *Pools) Families() []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_pool_starts_total", Kind: metric.KindCounter, Labels: []string{"result"},
			Help: "Starts that fitted a pool: hit (a ready standby), early (one that still booted) or miss",
			Read: func(to *metric.Series) {
				to.Value(s.hits.Value(), "hit")
				to.Value(s.earlyHits.Value(), "early")
				to.Value(s.misses.Value(), "miss")
			},
		},
		{
			Name: "buildyard_pool_standbys", Kind: metric.KindGauge, Labels: []string{"state"},
			Help: "Standbys of pools, ready or booting",
			Read: func(to *metric.Series) {
				ready, booting := 0, 0
				for _, inst := range s.allStandbys() {
					switch {
					case inst.IsReady():
						ready++
					case inst.IsBooting():
						booting++
					}
				}
				to.Value(float64(ready), "ready")
				to.Value(float64(booting), "booting")
			},
		},
		{
			Name: "buildyard_pool_slot_seconds_total", Kind: metric.KindCounter,
			Help: "Time that standbys have used slots, while this replica was the leader",
			Read: func(to *metric.Series) { to.Value(s.slotMillis.Value() / 1000) },
		},
	}
}

// storeStats writes the sums since the last time. What cannot be written is tried again with the next ones; a leader
// that dies loses the sums of one interval.
func (s *Pools) storeStats(ctx context.Context, term *record.Term) {
	s.mu.Lock()
	sums := s.sums
	s.sums = map[string]*farm.PoolStats{}
	s.mu.Unlock()
	for pool, more := range sums {
		if _, _, exists := s.db.Tables.Pools.Get(pool); !exists {
			continue
		}
		_, err := store.Update(ctx, term, s.db.Tables.PoolStats, pool,
			func(old *farm.PoolStats) (*farm.PoolStats, error) {
				if old == nil {
					old = &farm.PoolStats{}
				}
				next := sum(*old, *more)
				return &next, nil
			})
		if err != nil {
			s.add(pool, func(t *farm.PoolStats) { *t = sum(*t, *more) })
		}
	}
}
