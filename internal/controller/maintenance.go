package controller

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Maintenance is an operator's instruction that nothing is removed or terminated automatically for
// a while. Requests of clients are still carried out.
type Maintenance struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // ends automatically then; zero: only by request
	Ended  time.Time `json:"ended,omitzero"` // by hand
	Reason string    `json:"reason,omitempty"`
}

const settingMaintenance = "maintenance"

// MaxMaintenance bounds the length of a maintenance that ends automatically.
const MaxMaintenance = 30 * 24 * time.Hour

// end returns when a maintenance ends or has ended; zero for one without end.
func (m Maintenance) end() time.Time {
	if !m.Ended.IsZero() {
		return m.Ended
	}
	return m.Until
}

// on reports whether it is active. The zero value is not.
func (m Maintenance) on(now time.Time) bool {
	end := m.end()
	return !m.Since.IsZero() && (end.IsZero() || now.Before(end))
}

// Shown returns an active maintenance in its form for clients.
func (m Maintenance) Shown() *api.Maintenance {
	return &api.Maintenance{On: true, Since: m.Since, Until: m.Until, Reason: m.Reason}
}

// Maintenance returns the active maintenance; ok is false without one.
func (c *Controller) Maintenance() (m Maintenance, ok bool) {
	m = c.lastMaintenance()
	return m, m.on(c.now())
}

func (c *Controller) lastMaintenance() Maintenance {
	s, _, ok := c.tables.Settings.Get(settingMaintenance)
	if !ok || s.Maintenance == nil {
		return Maintenance{}
	}
	return *s.Maintenance
}

// maintenance reports whether maintenance mode is on: automatic removals and timeouts are paused.
func (c *Controller) maintenance() bool {
	_, on := c.Maintenance()
	return on
}

// afterMaintenance returns the moment from which a timeout that began at t counts: a maintenance
// that ended since restarts it, so that the timeouts do not all expire together.
func (c *Controller) afterMaintenance(t time.Time) time.Time {
	m := c.lastMaintenance()
	if end := m.end(); !m.on(c.now()) && end.After(t) {
		return end
	}
	return t
}

// BeginMaintenance pauses everything that removes or terminates something automatically. It does so
// durably, for a time or, when that is 0, until it is ended. If maintenance mode is already on, its
// time and reason are replaced.
func (c *Controller) BeginMaintenance(ctx context.Context, length time.Duration, reason string) (Maintenance, error) {
	if length < 0 || length > MaxMaintenance {
		return Maintenance{}, farm.Invalid("for", "must be between 0 and %s", MaxMaintenance)
	}
	return c.changeMaintenance(ctx, func(m Maintenance, now time.Time) Maintenance {
		next := Maintenance{Since: now, Reason: reason}
		if m.on(now) {
			next.Since = m.Since
		}
		if length > 0 {
			next.Until = now.Add(length)
		}
		return next
	})
}

// EndMaintenance ends maintenance mode; it does nothing when that is off.
func (c *Controller) EndMaintenance(ctx context.Context) error {
	_, err := c.changeMaintenance(ctx, func(m Maintenance, now time.Time) Maintenance {
		if m.on(now) {
			m.Ended = now
		}
		return m
	})
	return err
}

func (c *Controller) changeMaintenance(ctx context.Context, change func(Maintenance, time.Time) Maintenance) (Maintenance, error) {
	var next Maintenance
	_, err := store.Update(ctx, c.store, c.tables.Settings, settingMaintenance, func(s *Setting) (*Setting, error) {
		var was Maintenance
		if s != nil && s.Maintenance != nil {
			was = *s.Maintenance
		}
		next = change(was, c.now())
		if next == was {
			return s, nil
		}
		return &Setting{Maintenance: &next}, nil
	})
	return next, err
}

const (
	// registryPause is how long the registry is asked to pause at a time; without another request
	// it resumes then, so that a controller that died blocks nothing.
	registryPause = time.Minute
	pauseRenewal  = 20 * time.Second
)

// followMaintenance logs when maintenance mode begins and ends, and keeps the registry paused in
// between.
func (c *Controller) followMaintenance(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	was := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.maintained:
		}
		m, on := c.Maintenance()
		switch {
		case on && !was:
			c.log.WarnContext(ctx, "maintenance mode on: cleanup is paused",
				"since", m.Since, "until", m.Until, "reason", m.Reason)
		case was && !on:
			c.log.WarnContext(ctx, "maintenance has ended", "since", m.Since)
		}
		if on || was {
			c.pauseRegistry(ctx, on)
		}
		next := pauseRenewal
		if end := m.end(); on && !end.IsZero() {
			next = min(next, end.Sub(c.now()))
		}
		was = on
		timer.Reset(next)
	}
}

// pauseRegistry asks the registry to pause garbage collection, or to resume it.
func (c *Controller) pauseRegistry(ctx context.Context, on bool) {
	if c.opts.PauseRegistry == nil {
		return
	}
	length := time.Duration(0)
	if on {
		length = registryPause
	}
	if err := c.opts.PauseRegistry(ctx, length); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "notifying the registry of maintenance mode failed; retrying", "error", err)
	}
}

// observeMaintenance wakes followMaintenance after a change.
func (c *Controller) observeMaintenance(events []store.Event) {
	for _, e := range events {
		if e.Kind == kindSetting && e.ID == settingMaintenance {
			select {
			case c.maintained <- struct{}{}:
			default:
			}
		}
	}
}
