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
	DefaultMaxPushes             = 256
	DefaultMaxReservationPercent = 50 // percent
	DefaultMaxLogRows            = 600_000
	DefaultMaxLogBytes           = 256 << 20
)

// Settings of these limits, which refusals name.
const (
	maxPushesSetting      = "SVC_MAX_PUSHES"
	maxReservationSetting = "SVC_MAX_PUSH_RESERVATION"
	maxLogRowsSetting     = "SVC_MAX_LOG_ROWS"
	maxLogBytesSetting    = "SVC_MAX_LOG_ROW_BYTES"
)

// retryPushAfter is the retry delay sent to a caller that met a limit of pushes.
const retryPushAfter = 30 * time.Second

// admitPush refuses a push when its caller, or all callers together, have reached the limit of unfinished pushes.
// The caller holds booking.
func (r *Registry) admitPush(ctx context.Context, caller string) error {
	r.expireEmptyPushes(ctx)
	all, mine := r.uncommittedSessions(), 0
	for _, s := range all {
		if s.caller == caller && caller != "" {
			mine++
		}
	}
	most := r.opts.MaxPushes
	if mine >= farm.CallerShare(most) {
		return farm.Busy(retryPushAfter,
			"You have %d unfinished pushes, the limit per caller: a quarter of the setting %s (%d); "+
				"finish or abort some, or try again later", mine, maxPushesSetting, most)
	}
	if len(all) < most {
		return nil
	}
	return r.evictSession(ctx, all)
}

// evictSession ends the evictable push that was idle longest.
func (r *Registry) evictSession(ctx context.Context, all []*session) error {
	slices.SortFunc(all, func(a, b *session) int { return a.lastUse().Compare(b.lastUse()) })
	now := r.opts.Now()
	for _, s := range all {
		if !s.isEvictable(now) || !s.commitMu.TryLock() {
			continue
		}
		defer s.commitMu.Unlock()
		r.log.Info("push session evicted to admit a new one", "session", s.id, "template", s.templateID)
		return r.endSession(ctx, s)
	}
	return farm.Busy(retryPushAfter, "Limit of %d unfinished pushes reached (setting %s); try again later", len(all),
		maxPushesSetting)
}

// uncommittedSessions returns the sessions that are not committed.
func (r *Registry) uncommittedSessions() []*session {
	return slices.DeleteFunc(r.allSessions(), func(s *session) bool { return s.committedResult() != nil })
}

// expireEmptyPushes ends pushes that are older than Options.EmptyPushTimeout and have received nothing. It releases
// their reservations.
func (r *Registry) expireEmptyPushes(ctx context.Context) {
	now := r.opts.Now()
	for _, s := range r.uncommittedSessions() {
		if now.Sub(s.startedAt) <= r.opts.EmptyPushTimeout || !s.isEmpty() {
			continue
		}
		if err := r.expireSession(ctx, s); err != nil {
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
	if reserved, most := r.reservedByCaller(caller), r.maxReservation(free); reserved > 0 && reserved >= most {
		return farm.Busy(retryPushAfter,
			"Your unfinished pushes reserve %s, the limit per caller: %d %% of the free space (setting %s); "+
				"finish or abort some, or try again later", bytesize.Format(reserved), r.opts.MaxReservationPercent,
			maxReservationSetting)
	}
	return nil
}

// maxReservation is the maximum that the pushes of one caller may reserve of the free space.
func (r *Registry) maxReservation(free int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, free)), uint64(r.opts.MaxReservationPercent))
	most, _ := bits.Div64(hi, lo, 100)
	return int64(most)
}

// logRowLimiter bounds the log rows that are accepted per minute. Its methods may be called from many goroutines.
type logRowLimiter struct {
	maxRows  int
	maxBytes int64
	now      func() time.Time

	mu          sync.Mutex // guards the fields below
	windowStart time.Time
	total       logVolume
	byCaller    map[string]logVolume
}

// logVolume counts rows and their bytes.
type logVolume struct {
	rows  int
	bytes int64
}

func (t logVolume) add(u logVolume) logVolume { return logVolume{t.rows + u.rows, t.bytes + u.bytes} }

// admit counts rows of a caller, or refuses them.
func (l *logRowLimiter) admit(caller string, more logVolume) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if since := now.Sub(l.windowStart); since < 0 || since >= time.Minute {
		l.windowStart, l.total, l.byCaller = now, logVolume{}, map[string]logVolume{}
	}
	wait := l.windowStart.Add(time.Minute).Sub(now)
	total, mine := l.total.add(more), l.byCaller[caller].add(more)
	switch {
	case caller != "" && mine.rows > farm.CallerShare(l.maxRows):
		return farm.Busy(wait,
			"You have sent %d log rows in this minute, the limit per caller: a quarter of the setting %s (%d)",
			mine.rows-more.rows, maxLogRowsSetting, l.maxRows)
	case caller != "" && mine.bytes > farm.CallerShare(l.maxBytes):
		return farm.Busy(wait,
			"You have sent %d bytes of log rows in this minute; one caller may send a quarter of the setting %s (%d)",
			mine.bytes-more.bytes, maxLogBytesSetting, l.maxBytes)
	case total.rows > l.maxRows:
		return farm.Busy(wait, "%d log rows were accepted in this minute; the limit is %d (setting %s)",
			l.total.rows, l.maxRows, maxLogRowsSetting)
	case total.bytes > l.maxBytes:
		return farm.Busy(wait, "%d bytes of log rows were accepted in this minute; the limit is %d (setting %s)",
			l.total.bytes, l.maxBytes, maxLogBytesSetting)
	}
	l.total = total
	if caller != "" {
		l.byCaller[caller] = mine
	}
	return nil
}

// AppendLogRows appends log rows of a caller to the central logs, within the limits per minute. An empty caller is
// limited only by the totals.
func (r *Registry) AppendLogRows(caller string, rows []api.LogRow) (api.LogAppendResult, error) {
	more := logVolume{rows: len(rows)}
	for i := range rows {
		more.bytes += int64(len(rows[i].Content) + len(rows[i].Host) + len(rows[i].MachineName) + len(rows[i].Service))
	}
	if err := r.logRows.admit(caller, more); err != nil {
		return api.LogAppendResult{}, err
	}
	return r.Logs().Append(rows)
}

// AppendEvents appends events of a caller to the event log. They count as log rows.
func (r *Registry) AppendEvents(caller string, events [][]byte) (api.LogAppendResult, error) {
	more := logVolume{rows: len(events)}
	for _, e := range events {
		more.bytes += int64(len(e))
	}
	if err := r.logRows.admit(caller, more); err != nil {
		return api.LogAppendResult{}, err
	}
	return api.LogAppendResult{Rows: len(events)}, r.Logs().AppendEvents(events)
}
