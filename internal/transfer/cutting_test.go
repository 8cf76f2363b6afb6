package transfer_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/transfer"
)

// cutter is a line between client and registry on which every connection is cut after so many bytes of both
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

// TestCutEveryFiveMegabytes: whatever is cut, push and pull come to their end, and little is sent twice.
func TestCutEveryFiveMegabytes(t *testing.T) {
	const (
		size  = 96 << 20
		twice = 4 * (32 << 20) // parts in flight, and the most bytes of one
	)
	s := serve(t, t.TempDir())
	content := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{12})
	_, _ = rnd.Read(content)
	line := cutAfter(t, s.Listener.Addr().String(), 5_000_000)
	c, err := transfer.New(transfer.Options{BaseURL: "http://" + line.Addr().String(), Idle: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pushDisk(t, c, "v1", writeFile(t, "disk", content), nil)
	pushed, cuts := line.moved.Swap(0), line.cuts.Swap(0)
	t.Logf("push: %d MB in %d connections that were cut", pushed>>20, cuts)
	if extra := pushed - size; extra > twice || cuts < size/5_000_000 {
		t.Errorf("push: %d bytes more than the disk has, %d cuts", extra, cuts)
	}
	d, result := pullDisk(t, c, "v1", nil)
	pulled, cuts := line.moved.Load(), line.cuts.Load()
	t.Logf("pull: %d MB in %d connections that were cut", pulled>>20, cuts)
	if extra := pulled - result.Bytes; extra > twice || cuts < size/5_000_000 {
		t.Errorf("pull: %d bytes more than needed, %d cuts", extra, cuts)
	}
	got, err := os.ReadFile(filepath.Clean(d.Path))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the disk differs: %d bytes, %v", len(got), err)
	}
}
