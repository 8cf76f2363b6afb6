package cache_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// line is a proxy between a node and a registry: it counts the bytes of layers that pass, and cuts the responses
// once they exceed a limit and the node has reported progress.
type line struct {
	*httptest.Server
	passed   atomic.Int64
	limit    atomic.Int64  // bytes that pass; 0: all
	progress chan struct{} // closed when the node has reported progress
	flip     atomic.Bool   // a bit of each answer is flipped
}

func newLine(t *testing.T, registry string) *line {
	t.Helper()
	target, err := url.Parse(registry)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{progress: make(chan struct{})}
	p := httputil.NewSingleHostReverseProxy(target)
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/registry/v2/blob/") {
			w = &counting{ResponseWriter: w, line: l}
			if l.limit.Load() > 0 {
				time.Sleep(reportInterval)
			}
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(l.Close)
	return l
}

// reportInterval is longer than the time in which a pull reports no further progress: the first frame is reported.
const reportInterval = 300 * time.Millisecond

type counting struct {
	http.ResponseWriter
	line *line
}

func (c *counting) Write(p []byte) (int, error) {
	if n, limit := c.line.passed.Add(int64(len(p))), c.line.limit.Load(); limit > 0 && n > limit {
		select {
		case <-c.line.progress:
		case <-time.After(time.Minute):
		}
		panic(http.ErrAbortHandler)
	}
	if c.line.flip.Load() && len(p) > 100 {
		p = bytes.Clone(p)
		p[len(p)/2] ^= 1
	}
	return c.ResponseWriter.Write(p)
}

// TestCutPullOfAChain: a node whose pull of the changes was interrupted, or arrived with flipped
// bits, does not have the version then, and resumes the pull, also as another process.
func TestCutPullOfAChain(t *testing.T) {
	s := newShelf(t, 0)
	base := noise(t, "disk.img", 1, 6)
	disk, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	at := diskfile.Disk{Path: base, Format: "raw"}
	first, tip := s.pushDisk("v1", at, "")
	at.Overlays = append(at.Overlays, overlay(t, disk, 7, 1500))
	_, tip = s.pushDisk("v2", at, tip)
	at.Overlays = append(at.Overlays, overlay(t, disk, 8, 250))
	third, _ := s.pushDisk("v3", at, tip)
	s.fetch(first)

	l := newLine(t, s.server.URL)
	source := cache.NewRegistry(transfer.Options{MaxAttempts: 1}, nil)
	defer source.Close()
	third.Registry = l.URL
	node := func() *cache.Cache {
		return open(t, cache.Options{Dir: s.dir, Source: source, Reserve: bytesize.DiskReserve{Bytes: mib}})
	}
	fails := func(why string, c *cache.Cache, progress func(float64)) {
		t.Helper()
		if err := c.Fetch(t.Context(), third, progress); err == nil || c.Has(third.ContentID) {
			t.Fatalf("%s: the version is there: %v", why, err)
		}
	}
	l.flip.Store(true)
	fails("flipped bits", node(), nil)
	l.flip.Store(false)

	l.passed.Store(0)
	l.limit.Store(2 * mib)
	report := sync.OnceFunc(func() { close(l.progress) })
	fails("a cut line", node(), func(done float64) {
		if done > 0 {
			report()
		}
	})
	cut := l.passed.Swap(0)
	l.limit.Store(0)
	c := node()
	if err := c.Fetch(t.Context(), third, nil); err != nil {
		t.Fatal(err)
	}
	if _, got := diskOf(t, c, third); !bytes.Equal(got, disk) {
		t.Error("it is another disk")
	}
	again := l.passed.Load()
	t.Logf("%d bytes until the cut, %d behind it", cut, again)
	if again > 2*mib { // without what was there it would be more than the line let pass
		t.Errorf("%d bytes were moved behind a cut after %d", again, cut)
	}
}
