package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// TestPushContinues cuts a push permanently, restarts the registry and pushes again: what arrived is not sent again.
func TestPushContinues(t *testing.T) {
	base := t.TempDir()
	s := serve(t, base)
	files := threeFiles(t)
	var parts atomic.Int64
	var two sync.WaitGroup
	two.Add(2)
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.URL.Query().Has("off") {
			if parts.Add(1) > 2 {
				two.Wait()
				panic(http.ErrAbortHandler)
			}
			defer two.Done()
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Push(t.Context(), pushOptions("v1", files...)); err == nil {
		t.Fatal("the push was not cut")
	}
	c.Close()
	s.stop()

	s = serve(t, base)
	var sent atomic.Int64
	count := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.URL.Query().Has("off") {
			sent.Add(1)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&count)
	mustPush(t, s.client(t), pushOptions("v1", files...))
	first, all := sent.Load(), int64(0)
	sent.Store(0)
	o := pushOptions("v2", files...)
	o.Request.ID = "22222222-2222-4333-8444-555555555555"
	mustPush(t, s.client(t), o)
	if all = sent.Load(); first != all-2 {
		t.Fatalf("sent %d parts of %d, 2 were there", first, all)
	}
	mustPull(t, s.client(t), "v1", t.TempDir(), files)
}

// TestPullContinues cancels a pull in the middle and continues in the same directory.
func TestPullContinues(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	content := make([]byte, 84<<20) // more than five ranges
	noise(rand.New(rand.NewPCG(61, 1)), content)
	path := writeFile(t, "disk.img", content).Path
	files := []file{{
		PushFile: transfer.PushFile{Name: "disk.img", Path: path, Kind: api.FileDisk, Format: "raw"},
		sum:      sum(t, path),
	}}
	result := mustPush(t, c, pushOptions("v1", files...))
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var blobs atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		// The index and one range for each of four connections; one more means that a range is done.
		if isBulk(r) && blobs.Add(1) == 6 {
			cancel()
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	if _, err := c.Pull(ctx, transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID}, Dir: dir}); !errors.Is(err,
		context.Canceled) {
		t.Fatal(err)
	}
	s.disturb.Store(nil)
	if _, err := os.Stat(filepath.Join(dir, "disk.img")); err == nil {
		t.Fatal("the file has its name before it is whole")
	}
	pulled := mustPull(t, c, "v1", dir, files)
	if pulled.TransferredBytes >= result.Size*95/100 {
		t.Fatalf("%d of %d bytes moved again", pulled.TransferredBytes, result.Size)
	}
}

// TestIdleConnectionIsLeft blocks one request: the client cancels it and retries.
func TestIdleConnectionIsLeft(t *testing.T) {
	s := serve(t, t.TempDir())
	c, err := transfer.New(transfer.Options{BaseURL: s.URL, IdleTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var bulk atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if isBulk(r) && bulk.Add(1) == 2 {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 1 << 20})
	mustPush(t, c, pushOptions("v1", f))
	bulk.Store(0)
	mustPull(t, c, "v1", t.TempDir(), []file{f})
	if bulk.Load() < 3 {
		t.Fatalf("%d bulk requests: none was repeated", bulk.Load())
	}
}

// journalKey is what begins the journal of a flat file that is built from one layer.
func journalKey(t *testing.T, layer string) []byte {
	t.Helper()
	root, err := hex.DecodeString(layer)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append([]byte("flat  0\n"), root...))
	return sum[:]
}

// TestLeftoversOfOtherPulls: whatever files are in the directory, a pull ends with the right bytes. Files that
// had their final names before a crash are not fetched again.
func TestLeftoversOfOtherPulls(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 3<<20, map[int64]int{0: 2 << 20})
	mustPush(t, c, pushOptions("v1", f))
	m, err := c.Manifest(t.Context(), transfer.VersionRef{ID: templateID})
	if err != nil {
		t.Fatal(err)
	}
	key := journalKey(t, m.Files[0].Layers[0].Root)
	whole, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	indexBytes := m.Files[0].Layers[0].IndexLength // is requested each time
	ones := bytes.Repeat([]byte{0xff}, 4<<20)
	for name, test := range map[string]struct {
		left  map[string][]byte
		moves bool
	}{
		"partial without a journal": {map[string][]byte{"disk.img.partial": ones}, true},
		"journal without a file":    {map[string][]byte{"disk.img.journal": append(key[:32:32], 3)}, true},
		"journal of another layer": {
			map[string][]byte{"disk.img.partial": ones, "disk.img.journal": append(make([]byte, 32), 3)}, true,
		},
		"journal of another length": {
			map[string][]byte{"disk.img.partial": ones, "disk.img.journal": append(key[:32:32], 3, 3)}, true,
		},
		"cut journal": {
			map[string][]byte{"disk.img.partial": ones, "disk.img.journal": key[:7]}, true,
		},
		"older file of that name": {map[string][]byte{"disk.img": ones}, true},
		"older file and partial": {map[string][]byte{
			"disk.img": ones, "disk.img.partial": whole, "disk.img.journal": append(key[:32:32], 3),
		}, false},
		"all written, none renamed": {
			map[string][]byte{"disk.img.partial": whole, "disk.img.journal": append(key[:32:32], 3)}, false,
		},
		"renamed, journal not removed": {
			map[string][]byte{"disk.img": whole, "disk.img.journal": append(key[:32:32], 3)}, false,
		},
		"bits of frames there are none": {
			map[string][]byte{"disk.img.partial": whole, "disk.img.journal": append(key[:32:32], 0xff)}, false,
		},
	} {
		dir := t.TempDir()
		for file, data := range test.left {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Log(name)
		if pulled := mustPull(t, c, "v1", dir, []file{f}); (pulled.TransferredBytes > indexBytes) != test.moves {
			t.Errorf("%s: %d bytes moved", name, pulled.TransferredBytes)
		}
	}
}
