package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver is an endpoint; answer defines the response to a request.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(w http.ResponseWriter, body string) bool // whether it was delivered
	got    []string
	ids    []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: func(http.ResponseWriter, string) bool { return true }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s of %s", req.Method, req.Header.Get("Content-Type"))
		}
		r.mu.Lock()
		answer := r.answer
		r.mu.Unlock()
		if answer(w, string(body)) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.got, r.ids = append(r.got, string(body)), append(r.ids, req.Header.Get("X-Event-Id"))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) set(answer func(w http.ResponseWriter, body string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func pushTo(t *testing.T, url string) *HTTPSink {
	t.Helper()
	p, err := NewHTTPSink(url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// events returns n events of each of some subjects, one after the other.
func events(n int, subjects ...string) (list []EncodedEvent) {
	for i := range n {
		for _, s := range subjects {
			list = append(list,
				EncodedEvent{ID: fmt.Sprint(s, i), Subject: s, Record: fmt.Appendf(nil, `{"of":"%s","n":%03d}`, s, i)})
		}
	}
	return list
}

func TestPush(t *testing.T) {
	r := newReceiver(t)
	list := events(30, "a", "b", "c", "d", "e")
	arrived, err := pushTo(t, r.URL+"/x?y=z").Send(t.Context(), list)
	if err != nil || slices.Contains(arrived, false) {
		t.Fatal(err, arrived)
	}
	last := map[string]string{}
	for _, body := range r.all() {
		of, n, _ := strings.Cut(body, ",")
		if n <= last[of] {
			t.Errorf("%s comes after %s", body, last[of])
		}
		last[of] = n
	}
	if len(r.all()) != len(list) || !slices.Contains(r.ids, "a0") {
		t.Errorf("%d of %d came", len(r.all()), len(list))
	}
}

// TestPushFails has an endpoint that fails in many ways: earlier events of the subject are
// delivered, later ones are not sent, other subjects are not affected.
func TestPushFails(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, body string) bool{
		"error": func(w http.ResponseWriter, _ string) bool { w.WriteHeader(500); return false },
		"busy":  func(w http.ResponseWriter, _ string) bool { w.WriteHeader(429); return false },
		"redirect": func(w http.ResponseWriter, _ string) bool {
			w.Header().Set("Location", "/")
			w.WriteHeader(302)
			return false
		},
		"closes":  func(http.ResponseWriter, string) bool { panic(http.ErrAbortHandler) },
		"refuses": func(w http.ResponseWriter, _ string) bool { w.WriteHeader(422); return false },
	} {
		r := newReceiver(t)
		r.set(func(w http.ResponseWriter, body string) bool {
			if body == `{"of":"a","n":002}` {
				return answer(w, body)
			}
			return true
		})
		list := events(5, "a", "b")
		arrived, err := pushTo(t, r.URL).Send(t.Context(), list)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		for i, event := range list {
			if want := event.Subject == "b" || event.ID < "a2"; arrived[i] != want {
				t.Errorf("%s: %s arrived: %t", name, event.ID, arrived[i])
			}
		}
	}
}

// TestALaneContinues: after an event that fails, others of its lane are sent, but an endpoint that
// refuses all events does not receive every one.
func TestALaneContinues(t *testing.T) {
	var subjects []string
	for i := range 200 {
		subjects = append(subjects, fmt.Sprintf("s%03d", i))
	}
	r, list := newReceiver(t), events(2, subjects...)
	r.set(func(w http.ResponseWriter, body string) bool {
		if strings.Contains(body, "s007") {
			w.WriteHeader(500)
			return false
		}
		return true
	})
	arrived, err := pushTo(t, r.URL).Send(t.Context(), list)
	if err == nil {
		t.Error("no error")
	}
	for i, event := range list {
		if arrived[i] != (event.Subject != "s007") {
			t.Errorf("%s arrived: %t", event.ID, arrived[i])
		}
	}
	asked := 0
	r.set(func(w http.ResponseWriter, _ string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		asked++
		w.WriteHeader(503)
		return false
	})
	if _, err := pushTo(t, r.URL).Send(t.Context(), list); err == nil || asked > lanes*failures {
		t.Errorf("%d calls, %v", asked, err)
	}
}

func TestPushWithoutReceiver(t *testing.T) {
	r := newReceiver(t)
	p := pushTo(t, strings.Replace(r.URL, "http://", "http://me:sesame@", 1))
	if _, err := p.Send(t.Context(), events(1, "a")); err != nil {
		t.Fatal(err)
	}
	r.Close()
	arrived, err := p.Send(t.Context(), events(2, "a"))
	if err == nil || slices.Contains(arrived, true) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v, %v", arrived, err)
	}
}

// TestPushHangs has an endpoint that does not respond: the call ends with its context.
func TestPushHangs(t *testing.T) {
	r := newReceiver(t)
	hang := make(chan struct{})
	defer close(hang)
	r.set(func(http.ResponseWriter, string) bool { <-hang; return false })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	arrived, err := pushTo(t, r.URL).Send(ctx, events(3, "a", "b"))
	if !errors.Is(err, context.DeadlineExceeded) || slices.Contains(arrived, true) ||
		time.Since(begun) > 5*time.Second {
		t.Errorf("%v, %v after %s", arrived, err, time.Since(begun))
	}
}

// TestPushSkipsARefusedEvent has an endpoint that always refuses one event: it does not delay the others of
// its subject indefinitely.
func TestPushSkipsARefusedEvent(t *testing.T) {
	r := newReceiver(t)
	r.set(func(w http.ResponseWriter, body string) bool {
		if strings.Contains(body, "001") {
			w.WriteHeader(http.StatusBadRequest)
			return false
		}
		return true
	})
	p, list := pushTo(t, r.URL), events(3, "a")
	for try := range refusals {
		arrived, err := p.Send(t.Context(), list[1:])
		if last := try == refusals-1; (err == nil) != last || arrived[1] != last {
			t.Errorf("try %d: %v %v", try, arrived, err)
		}
	}
	if len(p.refused) > 0 {
		t.Error("a refusal is remembered:", p.refused)
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "host", "ftp://host/", "http://", "http://a b:secret@h", "://x"} {
		if _, err := NewHTTPSink(bad, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestRows(t *testing.T) {
	var got string
	fail := errors.New("full")
	rows := LogSink{Write: func(_ context.Context, rows [][]byte) error {
		got = string(Array(rows))
		return fail
	}}
	if arrived, err := rows.Send(t.Context(), events(1, "a", "b")); !errors.Is(err, fail) ||
		slices.Contains(arrived, true) {
		t.Errorf("%v %v", arrived, err)
	}
	fail = nil
	if arrived, err := rows.Send(t.Context(), events(1, "a", "b")); err != nil || slices.Contains(arrived, false) {
		t.Errorf("%v %v", arrived, err)
	}
	if got != `[{"of":"a","n":000},{"of":"b","n":000}]` {
		t.Error(got)
	}
}
