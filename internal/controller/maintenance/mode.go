package maintenance

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Mode is the maintenance mode of a cloud.
type Mode struct {
	db            record.DB
	pauseRegistry func(ctx context.Context, length time.Duration) error // nil: there is no registry
	changed       chan struct{}                                         // has a value when the record may have changed
}

// New returns the mode. pauseRegistry asks the registry to pause garbage collection for a time, 0 to
// resume; nil when the cloud has no registry.
func New(db record.DB, pauseRegistry func(ctx context.Context, length time.Duration) error) *Mode {
	return &Mode{db: db, pauseRegistry: pauseRegistry, changed: make(chan struct{}, 1)}
}

const setting = "maintenance"

// MaxLength bounds the length of a maintenance that ends automatically.
const MaxLength = 30 * 24 * time.Hour

// Active returns the active maintenance; ok is false without one.
func (o *Mode) Active() (m record.Maintenance, ok bool) {
	m = o.last()
	return m, m.On(o.db.Now())
}

func (o *Mode) last() record.Maintenance {
	s, _, ok := o.db.Tables.Settings.Get(setting)
	if !ok || s.Maintenance == nil {
		return record.Maintenance{}
	}
	return *s.Maintenance
}

// On reports whether maintenance mode is on: automatic removals and timeouts are paused.
func (o *Mode) On() bool {
	_, on := o.Active()
	return on
}

// After returns the moment from which a timeout that began at t counts: a maintenance
// that ended since restarts it, so that the timeouts do not all expire together.
func (o *Mode) After(t time.Time) time.Time {
	m := o.last()
	if end := m.End(); !m.On(o.db.Now()) && end.After(t) {
		return end
	}
	return t
}

// Begin pauses everything that removes or terminates something automatically. It does so
// durably, for a time or, when that is 0, until it is ended. If maintenance mode is already on, its
// time and reason are replaced.
func (o *Mode) Begin(ctx context.Context, length time.Duration, reason string) (record.Maintenance, error) {
	if length < 0 || length > MaxLength {
		return record.Maintenance{}, farm.Invalid("for", "must be between 0 and %s", MaxLength)
	}
	return o.change(ctx, func(m record.Maintenance, now time.Time) record.Maintenance {
		next := record.Maintenance{Since: now, Reason: reason}
		if m.On(now) {
			next.Since = m.Since
		}
		if length > 0 {
			next.Until = now.Add(length)
		}
		return next
	})
}

// End ends maintenance mode; it does nothing when that is off.
func (o *Mode) End(ctx context.Context) error {
	_, err := o.change(ctx, func(m record.Maintenance, now time.Time) record.Maintenance {
		if m.On(now) {
			m.Ended = now
		}
		return m
	})
	return err
}

func (o *Mode) change(
	ctx context.Context, change func(record.Maintenance, time.Time) record.Maintenance,
) (record.Maintenance, error) {
	var next record.Maintenance
	_, err := store.Update(ctx, o.db.Store, o.db.Tables.Settings,
		setting, func(s *record.Setting) (*record.Setting, error) {
			var was record.Maintenance
			if s != nil && s.Maintenance != nil {
				was = *s.Maintenance
			}
			next = change(was, o.db.Now())
			if next == was {
				return s, nil
			}
			return &record.Setting{Maintenance: &next}, nil
		})
	return next, err
}

const (
	// registryPause is how long the registry is asked to pause at a time; without another request
	// it resumes then, so that a controller that died blocks nothing.
	registryPause = time.Minute
	pauseRenewal  = 20 * time.Second
)

// Run logs when maintenance mode begins and ends, and keeps the registry paused in
// between.
func (o *Mode) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	was := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-o.changed:
		}
		m, on := o.Active()
		switch {
		case on && !was:
			o.db.Log.WarnContext(ctx, "maintenance mode on: cleanup is paused",
				"since", m.Since, "until", untilText(m.Until), "reason", m.Reason)
		case was && !on:
			o.db.Log.WarnContext(ctx, "maintenance mode off", "since", m.Since)
		}
		if on || was {
			o.pause(ctx, on)
		}
		next := pauseRenewal
		if end := m.End(); on && !end.IsZero() {
			next = min(next, end.Sub(o.db.Now()))
		}
		was = on
		timer.Reset(next)
	}
}

// untilText is the end of a maintenance in logs.
func untilText(end time.Time) string {
	if end.IsZero() {
		return "no end"
	}
	return end.Format(time.RFC3339)
}

// pause asks the registry to pause garbage collection, or to resume it.
func (o *Mode) pause(ctx context.Context, on bool) {
	if o.pauseRegistry == nil {
		return
	}
	length := time.Duration(0)
	if on {
		length = registryPause
	}
	if err := o.pauseRegistry(ctx, length); err != nil && ctx.Err() == nil {
		o.db.Log.WarnContext(ctx, "notifying the registry of maintenance mode failed; retrying", "error", err)
	}
}

// Observe wakes Run after a change.
func (o *Mode) Observe(events []store.Event) {
	for _, e := range events {
		if e.Kind == record.KindSetting && e.ID == setting {
			select {
			case o.changed <- struct{}{}:
			default:
			}
		}
	}
}
