package peers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/transfer"
)

// TestBusyPeer: a pull does not wait for a peer that pulls too, shows parts and answers each read with 429.
func TestBusyPeer(t *testing.T) {
	w := newWorld(t, 24*mib)
	holding, err := json.Marshal(transfer.Holding{Files: map[string][]byte{diskName: bytes.Repeat([]byte{0xff}, 2)}})
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int64
	busy := w.addFalseNode(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = rw.Write(holding)
			return
		}
		reads.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		rw.WriteHeader(http.StatusTooManyRequests)
	}), make(chan struct{}))
	busy.claimsAll = false
	busy.pulling.Store(true)
	if err := w.pull(w.addNode(nil, 0)); err != nil {
		t.Fatal(err)
	}
	if reads.Load() == 0 {
		t.Error("the peer was not asked")
	}
}

// TestSlowRefusals: a peer that refuses each read after a long time is not used again and again.
func TestSlowRefusals(t *testing.T) {
	w := newWorld(t, 24*mib)
	var reads atomic.Int64
	w.addFalseNode(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(rw, `{"complete":true}`)
			return
		}
		reads.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(2 * time.Second) // what the test is about
		rw.WriteHeader(http.StatusTooManyRequests)
	}), make(chan struct{}))
	if err := w.pull(w.addNode(nil, 0)); err != nil {
		t.Fatal(err)
	}
	if n := reads.Load(); n == 0 || n > 6 {
		t.Errorf("%d reads", n)
	}
}
