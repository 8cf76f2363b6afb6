package peers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/metric"
)

// TestFalseBytes: what a peer sends wrongly reaches no file, and the peer is not used again.
func TestFalseBytes(t *testing.T) {
	w := newWorld(t, 24*mib)
	liar := w.addNode(func(p peers.Provider) peers.Provider {
		return changedProvider{Provider: p, open: func(r io.ReadCloser) (io.ReadCloser, error) {
			b, err := io.ReadAll(r)
			if err == nil {
				b[len(b)/2] ^= 1
			}
			return io.NopCloser(bytes.NewReader(b)), errors.Join(err, r.Close())
		}}
	}, 0)
	w.firstPull(liar)
	victim := w.addNode(nil, 0)
	if err := w.pull(victim); err != nil {
		t.Fatal(err)
	}
	if got := victim.excluded.List(time.Now()); !slices.Equal(got, []string{liar.id}) {
		t.Errorf("excluded are %v", got)
	}
	if victim.excluded.Has(liar.id, time.Now().Add(peers.ExclusionTime)) {
		t.Error("the peer is excluded longer than it should be")
	}
	if w.layers.Load() < w.oneCopy {
		t.Errorf("the registry sent %d bytes of %d", w.layers.Load(), w.oneCopy)
	}
}

// TestHonestPeerAndALiar: with one peer that lies and one that does not, the version comes from the other one.
func TestHonestPeerAndALiar(t *testing.T) {
	w := newWorld(t, 24*mib)
	liar := w.addNode(func(p peers.Provider) peers.Provider {
		return changedProvider{Provider: p, open: func(r io.ReadCloser) (io.ReadCloser, error) {
			b, err := io.ReadAll(r)
			return io.NopCloser(bytes.NewReader(make([]byte, len(b)))), errors.Join(err, r.Close())
		}}
	}, 0)
	w.firstPull(liar)
	honest, victim := w.addNode(nil, 0), w.addNode(nil, 0)
	if err := w.pull(honest); err != nil { // from the registry
		t.Fatal(err)
	}
	before := honest.server.Served()
	if err := w.pull(victim); err != nil {
		t.Fatal(err)
	}
	if honest.server.Served() == before {
		t.Error("nothing was read from the honest peer")
	}
}

// TestBadPeers: peers that answer otherwise than they should cost a bounded time and nothing else.
func TestBadPeers(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request, end <-chan struct{}){
		"status": func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) { w.WriteHeader(http.StatusTeapot) },
		"redirect": func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		},
		"empty": func(http.ResponseWriter, *http.Request, <-chan struct{}) {},
		"truncated": func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
			w.Header().Set("Content-Length", "1048576")
			_, _ = w.Write(make([]byte, 4096))
		},
		"too long": func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
			_, _ = w.Write(make([]byte, 5*mib))
		},
		"hangs":                 func(_ http.ResponseWriter, _ *http.Request, end <-chan struct{}) { <-end },
		"hangs behind a header": func(w http.ResponseWriter, _ *http.Request, end <-chan struct{}) { hang(w, end) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 8*mib)
			end := make(chan struct{})
			var reads atomic.Int64
			bad := w.addFalseNode(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(rw, `{"complete":true}`)
					return
				}
				reads.Add(1)
				answer(rw, r, end)
			}), end)
			victim := w.addNode(nil, 0)
			if err := w.pull(victim); err != nil {
				t.Fatal(err)
			}
			if reads.Load() == 0 {
				t.Error("the peer was not asked")
			}
			if got := victim.excluded.Has(bad.id, time.Now()); got != (name == "too long") {
				t.Errorf("it is excluded as one that sent wrong bytes: %v", got)
			}
		})
	}
}

func hang(w http.ResponseWriter, end <-chan struct{}) {
	w.Header().Set("Content-Length", "1048576")
	_, _ = w.Write(make([]byte, 4096))
	_ = http.NewResponseController(w).Flush()
	<-end
}

// TestBadHoldings: what a peer claims to have does no harm, whatever it is.
func TestBadHoldings(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "{", "null": "null", "long": `{"files":{"` + strings.Repeat("x", 5*mib) + `":"AA=="}}`,
		"other": `{"files":{"../disk.img":"/////w=="}}`, "short": `{"files":{"disk.img":"/w=="}}`,
		"array": `[1]`, "number": `{"files":{"disk.img":7}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 8*mib)
			w.addFalseNode(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					rw.WriteHeader(http.StatusNotFound)
					return
				}
				_, _ = io.WriteString(rw, text)
			}), make(chan struct{}))
			if err := w.pull(w.addNode(nil, 0)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// addFalseNode adds a node whose port a handler answers; end is closed before its server ends.
func (w *world) addFalseNode(h http.Handler, end chan struct{}) *node {
	w.t.Helper()
	n := w.addNode(nil, 0)
	server := httptest.NewUnstartedServer(h)
	server.TLS = peers.ServerTLS(n.identity)
	server.StartTLS()
	w.t.Cleanup(func() {
		close(end)
		server.Close()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	n.address, n.claimsAll = server.Listener.Addr().String(), true
	return n
}

// TestPeerEnds: a peer that is killed in the middle of a response costs nothing but that response.
func TestPeerEnds(t *testing.T) {
	w := newWorld(t, 48*mib)
	var reads atomic.Int64
	var killed *node
	killed = w.addNode(func(p peers.Provider) peers.Provider {
		return changedProvider{Provider: p, open: func(r io.ReadCloser) (io.ReadCloser, error) {
			if reads.Add(1) < 3 {
				return r, nil
			}
			killed.stop()
			return io.NopCloser(io.LimitReader(r, 100)), nil
		}}
	}, 0)
	w.firstPull(killed)
	if err := w.pull(w.addNode(nil, 0)); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutSums: of a version that a program without decoded sums pushed, nodes read from each other what is not
// compressed, and the rest from the registry.
func TestWithoutSums(t *testing.T) {
	w := newWorldWith(t, 24*mib, false)
	first, second := w.addNode(nil, 0), w.addNode(nil, 0)
	w.firstPull(first)
	if err := w.pull(second); err != nil {
		t.Fatal(err)
	}
	if first.server.Served() == 0 || w.layers.Load() == 0 {
		t.Errorf("%d bytes from the other node, %d from the registry", first.server.Served(), w.layers.Load())
	}
}

// TestExclusions: an exclusion lasts for its time, whatever another process reports in between, and is counted once.
func TestExclusions(t *testing.T) {
	var e peers.Exclusions
	now := time.Unix(1_800_000_000, 0)
	e.Note(now, "a")
	e.Note(now.Add(peers.ExclusionTime/2), "a", "b")
	if got := e.List(now.Add(peers.ExclusionTime - 1)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("before the end of the first: %v", got)
	}
	if got := e.List(now.Add(peers.ExclusionTime)); !slices.Equal(got, []string{"b"}) {
		t.Errorf("at the end of the first: %v", got)
	}
	e.Families()[0].Read(&metric.Series{Value: func(n float64, _ ...string) {
		if n != 2 {
			t.Errorf("%v exclusions", n)
		}
	}})
	many := make([]string, 1000)
	for i := range many {
		many[i] = strings.Repeat("x", i+1)
	}
	e.Note(now, many...)
	if n := len(e.List(now)); n > 100 {
		t.Errorf("%d peers are remembered", n)
	}
	if !e.Has("b", now) || e.Has("c", now) {
		t.Error("other peers are excluded")
	}
}

// TestReadersOfANode: one node does not get all reads that another one answers.
func TestReadersOfANode(t *testing.T) {
	w := newWorld(t, 8*mib)
	opened, end := make(chan struct{}), make(chan struct{})
	server := w.addNode(func(p peers.Provider) peers.Provider {
		return changedProvider{Provider: p, open: func(r io.ReadCloser) (io.ReadCloser, error) {
			opened <- struct{}{}
			<-end
			return r, nil
		}}
	}, 0)
	greedy, other := w.addNode(nil, 0), w.addNode(nil, 0)
	w.firstPull(server)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read := func(n *node) int {
		code, _ := request(t, n, server, "POST", "/peer/v1/versions/"+w.ref.ContentID+"/read",
			w.token(n, server, w.ref.ContentID, time.Minute), `{"file":"disk.img","runs":[[0,4096]]}`)
		return code
	}
	codes := make(chan int)
	start := func(n *node) {
		go func() { codes <- read(n) }()
		select {
		case <-opened:
		case <-ctx.Done():
			t.Error("a read was not answered")
		}
	}
	for range 3 {
		start(greedy)
	}
	if code := read(greedy); code != http.StatusTooManyRequests {
		t.Errorf("a fourth read of one node: %d", code)
	}
	start(other)
	if code := read(other); code != http.StatusTooManyRequests {
		t.Errorf("a fifth read: %d", code)
	}
	close(end)
	for range 4 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("an answered read: %d", code)
		}
	}
}
