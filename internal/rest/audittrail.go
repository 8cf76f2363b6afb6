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
	appendEvents func(ctx context.Context, events []farm.Event) error
	log          *slog.Logger
	wake         chan struct{}

	mu            sync.Mutex // guards the fields below
	queued        []farm.Event
	droppedEvents int // left out since the last log line about it

	writeMu sync.Mutex // held while records are written
}

// Limits of an AuditTrail.
const (
	trailWaits = 10_000 // buffered records
	trailBatch = 100    // records written together
	trailTime  = 10 * time.Second
	trailPause = 30 * time.Second // the longest pause after a failure
)

// NewAuditTrail makes a trail. keep makes events durable; after an error it is called with them again, so that some
// may be stored twice.
func NewAuditTrail(keep func(ctx context.Context, events []farm.Event) error, log *slog.Logger) *AuditTrail {
	return &AuditTrail{appendEvents: keep, log: log, wake: make(chan struct{}, 1)}
}

// AuditorFor returns the auditor of a service.
func (t *AuditTrail) AuditorFor(s farm.Service) Auditor { return serviceAuditor{t, s} }

// serviceAuditor is the Auditor of one service.
type serviceAuditor struct {
	*AuditTrail
	service farm.Service
}

var _ Auditor = serviceAuditor{}

// happened contains the outcomes after which something may have changed.
var happened = map[string]bool{outcomeDone: true, string(farm.CodeInternal): true, string(farm.CodeUnavailable): true}

// Audit implements Auditor.
func (t serviceAuditor) Audit(_ context.Context, a AuditRecord) {
	// without Method: unknown caller
	if !happened[a.Outcome] || a.OwnEvents && a.Outcome == outcomeDone || a.Method == "" {
		return
	}
	t.enqueue(a.toEvent(t.service))
}

// toEvent converts a record to an event.
func (a AuditRecord) toEvent(s farm.Service) farm.Event {
	extra := map[string]any{
		"service": string(s), "method": string(a.Method), "verb": a.HTTPMethod, "route": a.Route, "outcome": a.Outcome,
	}
	if a.Subject != "" {
		extra["about"] = a.Subject
	}
	return farm.Event{Name: farm.EventAudit, Time: a.Time, Actor: a.actor(), Extra: extra}
}

func (a AuditRecord) actor() farm.Actor {
	return farm.Actor{
		User: a.CredentialName, KeyID: a.KeyID, Address: a.Address, RequestID: a.RequestID,
		ForUser: a.ForUser,
	}
}

func (t *AuditTrail) enqueue(e farm.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queued) >= trailWaits {
		t.droppedEvents++
		return
	}
	t.queued = append(t.queued, e)
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
	t.writeMu.Lock()
	defer t.writeMu.Unlock()
	for {
		list, lost := t.nextBatch()
		if lost > 0 {
			t.log.ErrorContext(ctx,
				"audit events could not be written to the event log and were dropped; they are only in this log",
				"count",
				lost)
		}
		if len(list) == 0 {
			return nil
		}
		if err := t.writeEvents(ctx, list); err != nil {
			return err
		}
		t.mu.Lock()
		t.queued = t.queued[len(list):]
		if len(t.queued) == 0 {
			t.queued = nil
		}
		t.mu.Unlock()
	}
}

// nextBatch returns the next records to write, and how many were left out since the last call.
func (t *AuditTrail) nextBatch() (list []farm.Event, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost, t.droppedEvents = t.droppedEvents, 0
	return t.queued[:min(len(t.queued), trailBatch)], lost
}

func (t *AuditTrail) writeEvents(ctx context.Context, list []farm.Event) error {
	ctx, cancel := context.WithTimeout(ctx, trailTime)
	defer cancel()
	return t.appendEvents(ctx, list)
}
