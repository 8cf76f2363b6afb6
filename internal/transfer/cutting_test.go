package transfer_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/transfer"
)

// cutter is a proxy between client and registry that cuts every connection after a number of bytes in both
// directions.
type cutter struct {
	net.Listener
	to    string
	limit int64
	moved atomic.Int64
	cuts  atomic.Int64
	wg    sync.WaitGroup
}

func cutAfter(t *testing.T, to string, limit int64) *cutter {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, to: to, limit: limit}
	c.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.relay(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.wg.Wait() })
	return c
}

func (c *cutter) relay(near net.Conn) {
	far, err := net.Dial("tcp", c.to)
	if err != nil {
		_ = near.Close()
		return
	}
	left := c.limit
	var mu sync.Mutex
	var once sync.Once
	end := func(cut bool) {
		once.Do(func() {
			if cut {
				c.cuts.Add(1)
			}
			_, _ = near.Close(), far.Close()
		})
	}
	pass := func(to io.Writer, from io.Reader) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			c.moved.Add(int64(n))
			mu.Lock()
			left -= int64(n)
			over := left <= 0
			mu.Unlock()
			if over {
				end(true)
				return
			}
			if _, writeErr := to.Write(buf[:n]); writeErr != nil || err != nil {
				end(false)
				return
			}
		}
	}
	c.wg.Go(func() { pass(far, near) })
	pass(near, far)
}

// TestCutEveryFiveMegabytes: push and pull complete despite the cuts, and little is sent twice. A connection that
// the server ends carries bytes too, so that there may be fewer cuts than five megabytes fit into the disk.
func TestCutEveryFiveMegabytes(t *testing.T) {
	const size = 20 << 20 // one part, so that the bytes sent before a cut count
	s := serve(t, t.TempDir())
	content := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{12})
	_, _ = rnd.Read(content)
	line := cutAfter(t, s.Listener.Addr().String(), 5_000_000)
	c, err := transfer.New(transfer.Options{BaseURL: "http://" + line.Addr().String(), IdleTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pushDisk(t, c, "v1", writeFile(t, "disk", content), nil)
	pushed, cuts := line.moved.Swap(0), line.cuts.Swap(0)
	t.Logf("push: %d MiB in %d connections that were cut", pushed>>20, cuts)
	if extra := pushed - size; extra > size || cuts < 2 {
		t.Errorf("push: %d bytes more than the disk has, %d cuts", extra, cuts)
	}
	d, result := pullDisk(t, c, "v1", nil)
	pulled, cuts := line.moved.Load(), line.cuts.Load()
	t.Logf("pull: %d MiB in %d connections that were cut", pulled>>20, cuts)
	if extra := pulled - result.TransferredBytes; extra > size || cuts < 2 {
		t.Errorf("pull: %d bytes more than needed, %d cuts", extra, cuts)
	}
	got, err := os.ReadFile(filepath.Clean(d.Path))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the disk differs: %d bytes, %v", len(got), err)
	}
}

// sparse makes a raw disk that has data in one place only.
func sparse(t *testing.T, size, at int64, data []byte) diskfile.Disk {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := errors.Join(err, f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	return diskfile.Disk{Path: f.Name()}
}

// TestLongIndexOnACutLine: an index that exceeds the bytes of one connection arrives, in chunks, and its last
// one may be sent again.
func TestLongIndexOnACutLine(t *testing.T) {
	const size, cut, piece = 13 << 25, 100_000, 64 << 10
	s := serve(t, t.TempDir())
	base := sparse(t, size, 0, []byte("a"))
	tip := pushDisk(t, s.client(t), "v1", base, nil)
	b := qcow2.NewBuilder(size)
	for off := int64(0); off < size; off += 2 * qcow2.SubclusterBytes {
		if err := b.Add(qcow2.Range{Off: off, Len: qcow2.SubclusterBytes, Kind: qcow2.Zero}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "overlay"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(l.FileSize()), l.Finish(f)); err != nil {
		t.Fatal(err)
	}
	var pieces atomic.Int64
	loseOnce := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.URL.Query().Has("of") && pieces.Add(1) == 2 {
			h.ServeHTTP(httptest.NewRecorder(), r) // the answer is lost
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&loseOnce)
	line := cutAfter(t, s.Listener.Addr().String(), cut)
	c, err := transfer.New(transfer.Options{BaseURL: "http://" + line.Addr().String(), IdleTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	transfer.SetIndexPiece(c, piece)
	d := base
	d.Overlays = []string{f.Name()}
	pushDisk(t, c, "v2", d, &transfer.PushParent{ChainID: tip, FileCount: 1})
	m, err := s.client(t).Manifest(t.Context(), transfer.VersionRef{ID: templateID, Tag: "v2"})
	if err != nil || len(m.Files[0].Layers) != 2 || m.Files[0].Layers[1].IndexLength < cut {
		t.Fatalf("%+v, %v", m.Files, err)
	}
	if line.cuts.Load() == 0 || pieces.Load() < 3 {
		t.Errorf("%d pieces, %d cuts", pieces.Load(), line.cuts.Load())
	}
}
