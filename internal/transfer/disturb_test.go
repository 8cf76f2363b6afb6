package transfer_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
)

// cutting breaks connections after a random number of bytes in both directions.
func cutting(limit int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 1))
	return func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		mu.Lock()
		left := rnd.Int64N(limit)
		mu.Unlock()
		r.Body = io.NopCloser(&cutReader{r: r.Body, left: left})
		h.ServeHTTP(&cutWriter{ResponseWriter: w, left: left}, r)
	}
}

type cutReader struct {
	r    io.Reader
	left int64
}

func (c *cutReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF // as the server sees it
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	n := min(int64(len(p)), c.left)
	c.left -= n
	if _, err := c.ResponseWriter.Write(p[:n]); err != nil {
		return 0, err
	}
	if c.left <= 0 {
		panic(http.ErrAbortHandler)
	}
	return len(p), nil
}

func TestCutConnectionsComplete(t *testing.T) {
	s := serve(t, t.TempDir())
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, IdleTimeout: 2 * time.Second, MaxAttempts: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	disturb := cutting(12 << 20)
	s.disturb.Store(&disturb)
	files := threeFiles(t)
	mustPush(t, c, pushOptions("v1", files...))
	disturb = cutting(3 << 20)
	s.disturb.Store(&disturb)
	mustPull(t, c, "v1", t.TempDir(), files)
}

// flipping damages one bit of every n-th bulk body.
func flipping(n int64, requests *atomic.Int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if isBulk(r) && requests.Add(1)%n == 0 {
			r.Body = io.NopCloser(&flipReader{r: r.Body})
			w = &flipWriter{ResponseWriter: w}
		}
		h.ServeHTTP(w, r)
	}
}

type flipReader struct {
	r io.Reader
	n int64
}

func (f *flipReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	flip(p[:n], f.n)
	f.n += int64(n)
	return n, err
}

type flipWriter struct {
	http.ResponseWriter
	n int64
}

func (f *flipWriter) Write(p []byte) (int, error) {
	p = bytes.Clone(p)
	flip(p, f.n)
	f.n += int64(len(p))
	return f.ResponseWriter.Write(p)
}

// flip changes byte 5000 of a stream, which is at off.
func flip(p []byte, off int64) {
	if at := 5000 - off; at >= 0 && at < int64(len(p)) {
		p[at] ^= 4
	}
}

func TestFlippedBits(t *testing.T) {
	s := serve(t, t.TempDir())
	files := threeFiles(t)
	var requests atomic.Int64
	always := flipping(1, &requests)
	s.disturb.Store(&always)
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, MaxAttempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Push(t.Context(), pushOptions("v1", files...)); err == nil {
		t.Fatal("a damaged push succeeded")
	}
	sometimes := flipping(3, &requests)
	s.disturb.Store(&sometimes)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	mustPull(t, s.client(t), "v1", t.TempDir(), files)

	s.disturb.Store(&always)
	dir := t.TempDir()
	if _, err := c.Pull(t.Context(),
		transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID}, Dir: dir}); err == nil {
		t.Fatal("a damaged pull succeeded")
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(dir, f.Name)); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s has its final name: %v", f.Name, err)
		}
	}
}

// TestBitFlippedInTheStore damages a layer file on the registry's disk: no pull may finish.
func TestBitFlippedInTheStore(t *testing.T) {
	base := t.TempDir()
	s := serve(t, base)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 1 << 20})
	mustPush(t, s.client(t), pushOptions("v1", f))
	layers, _ := filepath.Glob(filepath.Join(base, "images_dir", "*.ank"))
	if len(layers) != 1 {
		t.Fatal(layers)
	}
	raw, err := os.ReadFile(layers[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[100] ^= 1
	if err := os.WriteFile(layers[0], raw, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, MaxAttempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Pull(t.Context(),
		transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID}, Dir: t.TempDir()}); err == nil {
		t.Fatal("a damaged layer was pulled")
	}
}
