package fault

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestWatch: the events of a stream are in the history, a stream that ends is opened again, and
// nonsense ends one.
func TestWatch(t *testing.T) {
	opened := 0
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch opened++; opened {
		case 1:
			_, _ = io.WriteString(w, `{"type":"set","instance":{"instance_id":"a","vm":{"instance_state":"Started","node_id":"n"}}}
{"type":"synced"}
{"type":"ping"}
{"type":"gone","instance_id":"a"}
`)
		case 2:
			_, _ = io.WriteString(w, "nonsense\n"+`{"type":"gone","instance_id":"b"}`+"\n")
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			cancel()
		}
	}))
	defer server.Close()
	c := newClient(server.URL, newHistory())
	if synced := c.watch(ctx); synced != 1 || opened != 4 {
		t.Errorf("%d of %d streams were whole", synced, opened)
	}
	got := c.history.all()
	if len(got) != 2 || got[0].State != "Started" || got[0].Node != "n" || got[0].Stream != 1 || !got[0].Acked ||
		got[1].State != notFound || got[1].Instances[0] != "a" {
		t.Errorf("the history has %+v", got)
	}
}

// TestStorm: the load follows the clock, also when there are no responses, and begins no more jobs
// than it may.
func TestStorm(t *testing.T) {
	block := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(block)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newClient(server.URL, newHistory())
	begun := time.Now()
	load := startStorm(ctx, c, stormOptions{Rate: 200, Jobs: 5, Longest: time.Second, Seed: 1})
	for len(c.history.all()) < 20 && time.Since(begun) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	most := int(time.Since(begun).Seconds()*200) + 200 // what came while it was stopped
	cancel()
	load.wait()
	refused, began := 0, 0
	for _, entry := range c.history.all() {
		switch {
		case entry.Op != opCreate: // a list, after a second
		case entry.Message == errNoPlace.Error():
			refused++
		default:
			began++
		}
	}
	if began != 5 || refused < 20 || refused > most {
		t.Errorf("%d jobs began and %d found no place", began, refused)
	}
}
