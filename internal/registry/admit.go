package registry

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

// Default limits of a caller.
const (
	DefaultMaxPushes      = 256
	DefaultMaxReservation = 50 // percent
	DefaultMaxLogRows     = 600_000
	DefaultMaxLogBytes    = 256 << 20
)

// Settings of these limits, which refusals name.
const (
	settingPushes      = "SVC_MAX_PUSHES"
	settingReservation = "SVC_MAX_PUSH_RESERVATION"
	settingLogRows     = "SVC_MAX_LOG_ROWS"
	settingLogBytes    = "SVC_MAX_LOG_ROW_BYTES"
)

// retryPush is the retry delay sent to a caller that met a limit of pushes.
const retryPush = 30 * time.Second

// admit refuses a push when its caller, or all callers together, have reached the limit of unfinished pushes.
// The caller holds booking.
func (r *Registry) admit(ctx context.Context, caller string) error {
	r.endEmpty(ctx)
	all, mine := r.openPushes(), 0
	for _, s := range all {
		if s.caller == caller && caller != "" {
			mine++
		}
	}
	most := r.o.MaxPushes
	if mine >= farm.CallerShare(most) {
		return farm.Busy(retryPush,
			"You have %d unfinished pushes, the limit per caller: a quarter of the setting %s (%d); "+
				"finish or abort some, or try again later", mine, settingPushes, most)
	}
	if len(all) < most {
		return nil
	}
	return r.evictSession(ctx, all)
}

// evictSession ends the evictable push that was idle longest.
func (r *Registry) evictSession(ctx context.Context, all []*session) error {
	slices.SortFunc(all, func(a, b *session) int { return a.lastTouch().Compare(b.lastTouch()) })
	now := r.o.Now()
	for _, s := range all {
		if !s.spare(now) || !s.commit.TryLock() {
			continue
		}
		defer s.commit.Unlock()
		r.log.Info("push session evicted to admit a new one", "session", s.id, "template", s.target)
		return r.endSession(ctx, s)
	}
	return farm.Busy(retryPush, "Limit of %d unfinished pushes reached (setting %s); try again later", len(all),
		settingPushes)
}

// openPushes returns the sessions that are not committed.
func (r *Registry) openPushes() []*session {
	return slices.DeleteFunc(r.allSessions(), func(s *session) bool { return s.done() != nil })
}

// endEmpty ends pushes that are older than Options.EmptyPush and have received nothing. It releases their
// reservations.
func (r *Registry) endEmpty(ctx context.Context) {
	now := r.o.Now()
	for _, s := range r.openPushes() {
		if now.Sub(s.begun) <= r.o.EmptyPush || !s.empty() {
			continue
		}
		if err := r.expire(ctx, s); err != nil {
			r.log.Warn("ending an idle push session failed", "session", s.id, "error", err)
		}
	}
}

// admitReservation refuses a push whose caller has reserved its maximum share of the free space. A single push
// is not refused for its size: what exceeds the share is not reserved.
func (r *Registry) admitReservation(caller string, free int64) error {
	if caller == "" {
		return nil
	}
	if reserved, most := r.reservedBy(caller), r.mostReserved(free); reserved > 0 && reserved >= most {
		return farm.Busy(retryPush,
			"Your unfinished pushes reserve %s, the limit per caller: %d %% of the free space (setting %s); "+
				"finish or abort some, or try again later", bytesize.Format(reserved), r.o.MaxReservation,
			settingReservation)
	}
	return nil
}

// mostReserved is the maximum that the pushes of one caller may reserve of the free space.
func (r *Registry) mostReserved(free int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, free)), uint64(r.o.MaxReservation))
	most, _ := bits.Div64(hi, lo, 100)
	return int64(most)
}

// rowLimit bounds the log rows that are accepted per minute. Its methods may be called from many goroutines.
type rowLimit struct {
	rows  int
	bytes int64
	now   func() time.Time

	mu       sync.Mutex // guards the fields below
	began    time.Time
	total    taken
	byCaller map[string]taken
}

// taken counts rows and their bytes.
type taken struct {
	rows  int
	bytes int64
}

func (t taken) plus(u taken) taken { return taken{t.rows + u.rows, t.bytes + u.bytes} }

// take counts rows of a caller, or refuses them.
func (l *rowLimit) take(caller string, more taken) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if since := now.Sub(l.began); since < 0 || since >= time.Minute {
		l.began, l.total, l.byCaller = now, taken{}, map[string]taken{}
	}
	wait := l.began.Add(time.Minute).Sub(now)
	total, mine := l.total.plus(more), l.byCaller[caller].plus(more)
	switch {
	case caller != "" && mine.rows > farm.CallerShare(l.rows):
		return farm.Busy(wait,
			"You have sent %d log rows in this minute, the limit per caller: a quarter of the setting %s (%d)",
			mine.rows-more.rows, settingLogRows, l.rows)
	case caller != "" && mine.bytes > farm.CallerShare(l.bytes):
		return farm.Busy(wait,
			"You have sent %d bytes of log rows in this minute; one caller may send a quarter of the setting %s (%d)",
			mine.bytes-more.bytes, settingLogBytes, l.bytes)
	case total.rows > l.rows:
		return farm.Busy(wait, "%d log rows were accepted in this minute; the limit is %d (setting %s)",
			l.total.rows, l.rows, settingLogRows)
	case total.bytes > l.bytes:
		return farm.Busy(wait, "%d bytes of log rows were accepted in this minute; the limit is %d (setting %s)",
			l.total.bytes, l.bytes, settingLogBytes)
	}
	l.total = total
	if caller != "" {
		l.byCaller[caller] = mine
	}
	return nil
}

// TakeRows appends log rows of a caller to the central logs, within the limits per minute. An empty caller is
// limited only by the totals.
func (r *Registry) TakeRows(caller string, rows []api.LogRow) (api.LogAppendResult, error) {
	more := taken{rows: len(rows)}
	for i := range rows {
		more.bytes += int64(len(rows[i].Content) + len(rows[i].Host) + len(rows[i].MachineName) + len(rows[i].Service))
	}
	if err := r.rows.take(caller, more); err != nil {
		return api.LogAppendResult{}, err
	}
	return r.Logs().Append(rows)
}

// TakeEvents appends events of a caller to the event log. They count as log rows.
func (r *Registry) TakeEvents(caller string, events [][]byte) (api.LogAppendResult, error) {
	more := taken{rows: len(events)}
	for _, e := range events {
		more.bytes += int64(len(e))
	}
	if err := r.rows.take(caller, more); err != nil {
		return api.LogAppendResult{}, err
	}
	return api.LogAppendResult{Rows: len(events)}, r.Logs().Events(events)
}
