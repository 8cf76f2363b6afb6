package rest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// book is where a trail writes.
type book struct {
	mu   sync.Mutex
	fail error
	got  []farm.Event
	most int // events of one call
}

func (b *book) keep(_ context.Context, events []farm.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	b.got, b.most = append(b.got, events...), max(b.most, len(events))
	return nil
}

func (b *book) failing(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// inTrail runs a test with a running trail, and returns what it has logged.
func inTrail(t *testing.T, test func(t *testing.T, trail *AuditTrail, b *book, log func() string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		b := &book{}
		ctx, cancel := context.WithCancel(t.Context())
		trail := NewAuditTrail(b.keep, slog.New(slog.NewTextHandler(&text, nil)))
		done := make(chan struct{})
		go func() {
			defer close(done)
			trail.Run(ctx)
		}()
		test(t, trail, b, func() string { synctest.Wait(); return text.String() })
		cancel()
		<-done
	})
}

// done is a record of a change.
func done(change ...func(*AuditRecord)) AuditRecord {
	a := AuditRecord{
		Time: time.Unix(1601991701, 0), RequestID: "4f", CredentialName: "anna", Method: auth.ByKey, KeyID: "ci",
		Address:    "192.0.2.1",
		HTTPMethod: "DELETE", Route: "DELETE /api/v1/apikey", Outcome: outcomeDone, Subject: "old",
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

func TestTrailRecord(t *testing.T) {
	inTrail(t, func(t *testing.T, trail *AuditTrail, b *book, _ func() string) {
		trail.AuditorFor(farm.ServiceRegistry).Audit(t.Context(), done(func(a *AuditRecord) { a.ForUser = "ben" }))
		synctest.Wait()
		if len(b.got) != 1 {
			t.Fatalf("%+v", b.got)
		}
		raw, err := b.got[0].EncodeRecord("host")
		must(t, err)
		var got map[string]any
		must(t, json.Unmarshal(raw, &got))
		want := `{"about":"old","address":"192.0.2.1","for_user":"ben","instance_id":"","key_id":"ci","machineName":"host","method":"key","name":"Audit","outcome":"done","request":"4f",` +
			`"route":"DELETE /api/v1/apikey","service":"registry","sub_type":"auditAction","time":1601991701,"type":"apiAction","user":"anna","verb":"DELETE"}`
		if string(raw) != want {
			t.Errorf("got  %s\nwant %s", raw, want)
		}
	})
}

// TestWhatATrailHolds: it has what an authenticated caller changed, or may have changed, unless other events
// report it, and no refusals.
func TestWhatATrailHolds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*AuditRecord)
		want   int
	}{
		"done":                    {func(*AuditRecord) {}, 1},
		"by a node":               {func(a *AuditRecord) { a.KeyID, a.Method = "", auth.ByNode }, 1},
		"by a program for a user": {func(a *AuditRecord) { a.ForUser = "ben" }, 1},
		"by the program beside it": {func(a *AuditRecord) {
			a.KeyID, a.CredentialName, a.Method = "",
				"", auth.ByLocal
		}, 1},
		"broke off":                {func(a *AuditRecord) { a.Outcome = "internal" }, 1},
		"nobody knows":             {func(a *AuditRecord) { a.Outcome = "unavailable" }, 1},
		"told by others":           {func(a *AuditRecord) { a.OwnEvents = true }, 0},
		"would be told, broke off": {func(a *AuditRecord) { a.OwnEvents, a.Outcome = true, "internal" }, 1},
		"forbidden":                {func(a *AuditRecord) { a.Outcome = "forbidden" }, 0},
		"unauthenticated":          {func(a *AuditRecord) { a.Outcome = "unauthenticated" }, 0},
		"too many":                 {func(a *AuditRecord) { a.Outcome = "too-many" }, 0},
		"invalid":                  {func(a *AuditRecord) { a.Outcome = "invalid" }, 0},
		"not there":                {func(a *AuditRecord) { a.Outcome = "not-found" }, 0},
		"of nobody":                {func(a *AuditRecord) { a.CredentialName, a.KeyID, a.Method = "", "", "" }, 0},
		"tried under a key": {func(a *AuditRecord) {
			a.CredentialName, a.Method, a.Outcome = "", "",
				"unauthenticated"
		}, 0},
		"of nobody, and broke off": {func(a *AuditRecord) {
			a.CredentialName, a.KeyID, a.Method, a.Outcome = "", "", "",
				"internal"
		}, 0},
		"of nobody, away meanwhile": {func(a *AuditRecord) {
			a.CredentialName, a.Method, a.Outcome = "", "",
				"unavailable"
		}, 0},
	} {
		inTrail(t, func(t *testing.T, trail *AuditTrail, b *book, _ func() string) {
			trail.AuditorFor(farm.ServiceController).Audit(t.Context(), done(c.change))
			synctest.Wait()
			if b.count() != c.want {
				t.Errorf("%s: %d events, want %d", name, b.count(), c.want)
			}
		})
	}
}

// short matches the first delay after a failure.
var short = regexp.MustCompile(`pause=([5-9]\d\d(\.\d+)?ms|1s)`)

// TestTrailWaits while nothing can be written, within its limits, and reports what it has left out.
func TestTrailWaits(t *testing.T) {
	inTrail(t, func(t *testing.T, trail *AuditTrail, b *book, log func() string) {
		b.failing(errors.New("the store is away"))
		for range trailWaits + 7 {
			trail.AuditorFor(farm.ServiceController).Audit(t.Context(), done())
		}
		time.Sleep(10 * time.Minute)
		if n := strings.Count(log(), "writing audit events to the event log failed"); n < 20 || n > 40 {
			t.Errorf("%d lines of failures in ten minutes", n)
		}
		if b.count() != 0 {
			t.Error("written")
		}
		b.failing(nil)
		time.Sleep(2 * trailPause)
		if b.count() != trailWaits || b.most != trailBatch {
			t.Errorf("%d events came, at most %d at a time", b.count(), b.most)
		}
		if strings.Count(log(), "were dropped") != 1 || !strings.Contains(log(), "count=7") {
			t.Errorf("that some were dropped is not said once:\n%s", log()[:min(2000, len(log()))])
		}
		trail.AuditorFor(farm.ServiceController).Audit(t.Context(), done())
		synctest.Wait()
		if b.count() != trailWaits+1 {
			t.Error("it does not go on")
		}
		b.failing(errors.New("the store is away again"))
		trail.AuditorFor(farm.ServiceController).Audit(t.Context(), done())
		time.Sleep(400 * time.Millisecond)
		if n := len(short.FindAllString(log(), -1)); n != 2 || strings.Count(log(), "were dropped") != 1 {
			t.Errorf("it does not begin anew:\n%s", log()[:min(2000, len(log()))])
		}
		b.failing(nil)
	})
}

// TestTrailFlush writes what came after the trail has stopped.
func TestTrailFlush(t *testing.T) {
	b := &book{}
	trail := NewAuditTrail(b.keep, slog.New(slog.DiscardHandler))
	for range 250 {
		trail.AuditorFor(farm.ServiceController).Audit(t.Context(), done())
	}
	must(t, trail.Flush(t.Context()))
	if b.count() != 250 {
		t.Errorf("%d events", b.count())
	}
	b.failing(errors.New("away"))
	trail.AuditorFor(farm.ServiceController).Audit(t.Context(), done())
	if trail.Flush(t.Context()) == nil {
		t.Error("no error")
	}
}

// TestTheGuardReportsWhatIsReported: the record includes values from the handler and from the table of routes; the
// handler knows the caller.
func TestTheGuardReportsWhatIsReported(t *testing.T) {
	g := newGate(t)
	var actor farm.Actor
	routes := []Route{
		{Pattern: "POST /told", Permission: "list_vms", OwnEvents: true, Handle: func(r *Request) (any, error) {
			actor = ActorOf(r.Context())
			AuditSubject(r.Request, "the key "+strings.Repeat("x", 1000))
			return nil, nil // an answer without a body
		}},
		// as above
		{Pattern: "POST /untold", Permission: "list_vms", Handle: func(*Request) (any, error) { return nil, nil }},
	}
	g.handler = g.guard.Handler(routes, slog.New(slog.DiscardHandler))
	a := g.ask("POST", "/told", "Authorization", g.key(t))
	if want := (farm.Actor{
		User: "ci", KeyID: "ci", Address: "192.0.2.7",
		RequestID: a.Header().Get(RequestIDHeader),
	}); actor != want || want.RequestID == "" {
		t.Errorf("the handler sees %+v, want %+v", actor, want)
	}
	g.ask("POST", "/untold", "Authorization", g.key(t))
	got := g.audited()
	if len(got) != 2 || !got[0].OwnEvents || !strings.HasPrefix(got[0].Subject, "the key xx") ||
		len(got[0].Subject) != maxReasonBytes || got[1].OwnEvents || got[1].Subject != "" {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(g.log.String(), `about="the key xx`) {
		t.Error(g.log.String())
	}
	if ActorOf(t.Context()) != (farm.Actor{}) {
		t.Error("somebody makes no request")
	}
}
