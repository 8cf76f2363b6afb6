package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

func requestOf(who auth.Identity, addr string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/x", nil)
	return r.WithContext(context.WithValue(r.Context(), auditKey{},
		&requestAudit{Caller: Caller{Identity: who, Address: addr}}))
}

func TestConcurrencyLimit(t *testing.T) {
	l := NewConcurrencyLimit("log streams", "SVC_MAX_LOG_STREAMS", 8)
	ci := requestOf(auth.Identity{Name: "ci", KeyID: "ci"}, "192.0.2.1")
	var releases []func()
	take := func(r *http.Request, want string) {
		t.Helper()
		release, err := l.Acquire(r)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			releases = append(releases, release)
		}
		if got != want || err != nil && farm.CodeOf(err) != farm.CodeBusy {
			t.Errorf("%q, %s; want %q", got, farm.CodeOf(err), want)
		}
	}
	const mine = "You have 2 log streams open, the limit per caller: a quarter of the setting SVC_MAX_LOG_STREAMS " +
		"(8); close some, or try again later"
	take(ci, "")
	take(ci, "")
	take(ci, mine)
	take(requestOf(auth.Identity{Name: "ci", KeyID: "ci"}, "192.0.2.2"), mine) // the key counts, from wherever
	for i := range 6 {
		take(requestOf(auth.Identity{}, fmt.Sprint("192.0.2.", 10+i)), "")
	}
	take(requestOf(auth.Identity{}, "192.0.2.99"),
		"Limit of 8 open log streams reached (setting SVC_MAX_LOG_STREAMS); close some, or try again later")
	releases[0]()
	releases[0]() // the second call does nothing
	if l.OpenCount() != 7 {
		t.Errorf("%d are open", l.OpenCount())
	}
	take(ci, "")
	for _, release := range releases {
		release()
	}
	if l.OpenCount() != 0 || len(l.openByCaller) != 0 {
		t.Errorf("%d are open, of %v", l.OpenCount(), l.openByCaller)
	}
	if release, err := (*ConcurrencyLimit)(nil).Acquire(ci); err != nil {
		t.Error(err)
	} else {
		release()
	}
}

// TestFixedConcurrencyLimit: without a setting the refusal names the number alone.
func TestFixedConcurrencyLimit(t *testing.T) {
	l := NewConcurrencyLimit("consoles", "", 2)
	for _, c := range []struct{ caller, want string }{
		{"a", ""},
		{
			"a",
			"You have 1 consoles open, the limit per caller: a quarter of the 2 open in all; close some, or " +
				"try again " +
				"later",
		},
		{"b", ""},
		{"c", "Limit of 2 open consoles reached; close some, or try again later"},
	} {
		got := ""
		if _, err := l.AcquireFor(c.caller); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.caller, got, c.want)
		}
	}
}

// TestRetryAfter: a caller that meets a limit receives a retry delay.
func TestRetryAfter(t *testing.T) {
	l := NewConcurrencyLimit("watches", "SVC_MAX_WATCHES", 0)
	h := Handler([]Route{
		{Pattern: "GET /full", Handle: func(r *Request) (any, error) {
			_, err := l.Acquire(r.Request)
			return nil, err
		}},
		{Pattern: "GET /busy", Handle: func(*Request) (any, error) { return nil, farm.Errorf(farm.CodeBusy, "Busy") }},
		{Pattern: "GET /away", Handle: func(*Request) (any, error) {
			return nil,
				farm.Errorf(farm.CodeUnavailable, "Away")
		}},
	}, slog.New(slog.DiscardHandler))
	for path, want := range map[string]string{"/full": "429 5", "/busy": "429 1", "/away": "503 "} {
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got := fmt.Sprint(a.Code, " ", a.Header().Get("Retry-After")); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
