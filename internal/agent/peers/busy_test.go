package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/internal/transfer/peerqueue"
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

// TestSlowPeer: a peer is slow when the registry is much faster. Where the registry is slow too, it is used on.
func TestSlowPeer(t *testing.T) {
	const took = 2200 * time.Millisecond
	w := newWorld(t, 4*mib)
	server := w.addFalseNode(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(rw, `{"complete":true}`)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(took) // what the test is about
		_, _ = rw.Write(make([]byte, mib))
	}), make(chan struct{}))
	for name, c := range map[string]struct {
		registry time.Duration
		want     peerqueue.Availability
	}{
		"unknown registry": {0, peerqueue.AtNoPeer},
		"fast registry":    {took / 4, peerqueue.AtNoPeer},
		"slow registry":    {took, peerqueue.AtPeer},
	} {
		reader := w.addNode(nil, 0)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := peers.OpenReader(t.Context(), peers.ReaderOptions{
				NodeID: reader.id, ContentID: w.ref.ContentID, Identity: reader.identity, Excluded: reader.excluded,
				Logger: slog.New(slog.DiscardHandler), Sources: func(context.Context) ([]api.Peer, error) {
					return []api.Peer{{
						NodeID: server.id, Address: server.address, Key: server.identity.Key(),
						Token: w.token(reader, server, w.ref.ContentID, time.Minute),
					}}, nil
				},
			})
			defer s.Close()
			read := transfer.PeerRead{File: diskName, Runs: []blob.Run{{Len: mib}}, RegistryTime: c.registry}
			err := s.Read(t.Context(), read, make([]byte, mib), func([]byte) error { return nil })
			if got := s.Find(diskName, 0, mib); err != nil || got != c.want {
				t.Errorf("after the read (%v) the peer is %v, want %v", err, got, c.want)
			}
		})
	}
}
