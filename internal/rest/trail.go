package rest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

// AuditTrail writes the audit records of API requests to the event log. It buffers a bounded number of records
// in memory while they cannot be written, and never blocks a caller. Records that are lost with the process, or
// left out, are in the structured log. Run drives it.
//
// It excludes refusals: a caller without access makes a service write only the bounded lines of its log.
type AuditTrail struct {
	keep func(ctx context.Context, events []farm.Event) error
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex // guards what follows
	waiting []farm.Event
	lost    int // left out since the last log line about it

	turn sync.Mutex // held while records are written
}

// Limits of an AuditTrail.
const (
	trailWaits = 10_000 // buffered records
	trailBunch = 100    // records written together
	trailTime  = 10 * time.Second
	trailPause = 30 * time.Second // the longest pause after a failure
)

// NewTrail makes a trail. keep makes events durable; after an error it is called with them again, so that some
// may be stored twice.
func NewTrail(keep func(ctx context.Context, events []farm.Event) error, log *slog.Logger) *AuditTrail {
	return &AuditTrail{keep: keep, log: log, wake: make(chan struct{}, 1)}
}

// Of returns the auditor of a service.
func (t *AuditTrail) Of(s farm.Service) Auditor { return trailOf{t, s} }

// trailOf is the Auditor of one service.
type trailOf struct {
	*AuditTrail
	service farm.Service
}

var _ Auditor = trailOf{}

// happened contains the outcomes after which something may have changed.
var happened = map[string]bool{outcomeDone: true, string(farm.CodeInternal): true, string(farm.CodeUnavailable): true}

// Audit implements Auditor.
func (t trailOf) Audit(_ context.Context, a AuditRecord) {
	// without Method: unknown caller
	if !happened[a.Outcome] || a.OwnEvents && a.Outcome == outcomeDone || a.Method == "" {
		return
	}
	t.add(a.event(t.service))
}

// event converts a record to an event.
func (a AuditRecord) event(s farm.Service) farm.Event {
	extra := map[string]any{
		"service": string(s), "method": string(a.Method), "verb": a.Verb, "route": a.Route, "outcome": a.Outcome,
	}
	if a.About != "" {
		extra["about"] = a.About
	}
	return farm.Event{Name: farm.EventAudit, Time: a.Time, By: a.actor(), Extra: extra}
}

func (a AuditRecord) actor() farm.Actor {
	return farm.Actor{User: a.Identifier, KeyID: a.KeyID, Address: a.Address, Request: a.Request, ForUser: a.ForUser}
}

func (t *AuditTrail) add(e farm.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= trailWaits {
		t.lost++
		return
	}
	t.waiting = append(t.waiting, e)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run writes records until the context ends.
func (t *AuditTrail) Run(ctx context.Context) {
	pauses := retry.New(time.Second, trailPause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		for {
			err := t.Flush(ctx)
			if err == nil {
				pauses.Reset()
				break
			}
			if ctx.Err() != nil {
				return
			}
			pause := pauses.Next()
			t.log.WarnContext(ctx, "writing audit events to the event log failed; retrying", "pause",
				pause.String(), "error", err)
			if retry.Sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// Flush writes the buffered records. It must be called after Run has returned and the last request has ended.
func (t *AuditTrail) Flush(ctx context.Context) error {
	t.turn.Lock()
	defer t.turn.Unlock()
	for {
		list, lost := t.first()
		if lost > 0 {
			t.log.ErrorContext(ctx,
				"audit events could not be written to the event log and were dropped; they are only in this log",
				"count",
				lost)
		}
		if len(list) == 0 {
			return nil
		}
		if err := t.write(ctx, list); err != nil {
			return err
		}
		t.mu.Lock()
		t.waiting = t.waiting[len(list):]
		if len(t.waiting) == 0 {
			t.waiting = nil
		}
		t.mu.Unlock()
	}
}

// first returns the next records to write, and how many were left out since the last call.
func (t *AuditTrail) first() (list []farm.Event, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost, t.lost = t.lost, 0
	return t.waiting[:min(len(t.waiting), trailBunch)], lost
}

func (t *AuditTrail) write(ctx context.Context, list []farm.Event) error {
	ctx, cancel := context.WithTimeout(ctx, trailTime)
	defer cancel()
	return t.keep(ctx, list)
}
