package controller

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const settingMaintenance = "maintenance"

// MaxMaintenance bounds the length of a maintenance that ends automatically.
const MaxMaintenance = 30 * 24 * time.Hour

// Maintenance returns the active maintenance; ok is false without one.
func (c *Controller) Maintenance() (m record.Maintenance, ok bool) {
	m = c.lastMaintenance()
	return m, m.On(c.now())
}

func (c *Controller) lastMaintenance() record.Maintenance {
	s, _, ok := c.tables.Settings.Get(settingMaintenance)
	if !ok || s.Maintenance == nil {
		return record.Maintenance{}
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
	if end := m.End(); !m.On(c.now()) && end.After(t) {
		return end
	}
	return t
}

// BeginMaintenance pauses everything that removes or terminates something automatically. It does so
// durably, for a time or, when that is 0, until it is ended. If maintenance mode is already on, its
// time and reason are replaced.
func (c *Controller) BeginMaintenance(ctx context.Context, length time.Duration, reason string) (record.Maintenance, error) {
	if length < 0 || length > MaxMaintenance {
		return record.Maintenance{}, farm.Invalid("for", "must be between 0 and %s", MaxMaintenance)
	}
	return c.changeMaintenance(ctx, func(m record.Maintenance, now time.Time) record.Maintenance {
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

// EndMaintenance ends maintenance mode; it does nothing when that is off.
func (c *Controller) EndMaintenance(ctx context.Context) error {
	_, err := c.changeMaintenance(ctx, func(m record.Maintenance, now time.Time) record.Maintenance {
		if m.On(now) {
			m.Ended = now
		}
		return m
	})
	return err
}

func (c *Controller) changeMaintenance(ctx context.Context, change func(record.Maintenance, time.Time) record.Maintenance) (record.Maintenance, error) {
	var next record.Maintenance
	_, err := store.Update(ctx, c.store, c.tables.Settings, settingMaintenance, func(s *record.Setting) (*record.Setting, error) {
		var was record.Maintenance
		if s != nil && s.Maintenance != nil {
			was = *s.Maintenance
		}
		next = change(was, c.now())
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
		if end := m.End(); on && !end.IsZero() {
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
		if e.Kind == record.KindSetting && e.ID == settingMaintenance {
			select {
			case c.maintained <- struct{}{}:
			default:
			}
		}
	}
}
