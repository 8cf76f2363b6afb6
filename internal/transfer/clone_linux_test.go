package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/tools/xfstest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestOnXFS runs what depends on clones where files can be cloned.
func TestOnXFS(t *testing.T) {
	xfstest.Run(t, "TestClonedDisk", "TestCloneContinues", "TestCloneOfChangedDisk", "TestBaseOnAnotherDevice",
		"TestPullOfChains", "TestBeginOfAClone", "TestDamagedLocalDiskIsRemoved", "TestPushOfWhatChanged")
}

// pulledOnto pulls a disk onto its lower layer and checks that it became a separate file.
func (s *shelf) pulledOnto(t *testing.T, o transfer.PullOptions, want []byte) transfer.PullResult {
	t.Helper()
	result, err := s.pull(t.Context(), t, o)
	if err != nil {
		t.Fatal(err)
	}
	if f := result.Files[0]; f.Form != transfer.FormFlat || f.ParentChainID != "" {
		t.Errorf("built %+v", f)
	}
	mustRead(t, diskfile.Disk{Path: filepath.Join(o.Dir, "disk.img")}, want)
	if left, _ := os.ReadDir(o.Dir); len(left) != 2 { // config.json
		t.Errorf("left are %v", left)
	}
	return result
}

// TestClonedDisk: a pull onto a clone of a local disk fetches only the changes, also if it ends earlier or
// later, and leaves the original as it is.
func TestClonedDisk(t *testing.T) {
	if !clones(t) {
		t.Skip("files cannot be cloned here")
	}
	rnd := rand.New(rand.NewPCG(20, 1))
	base := make([]byte, 12<<20)
	noise(rnd, base)
	for _, size := range []int{12 << 20, 10<<20 + 4096, 10<<20 + 77, 14 << 20} {
		after := grow(rnd, base, size)
		s := newShelf(t, base, after)
		held := s.keep(t, 0)
		o := transfer.PullOptions{
			Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]diskfile.Disk{s.tips[0]: held},
		}
		if result := s.pulledOnto(t, o, after); result.TransferredBytes > 7<<20 {
			t.Errorf("%d bytes were moved", result.TransferredBytes)
		}
		mustRead(t, held, base)
	}
}

// TestCloneContinues: an interrupted clone is resumed, and started again if its origin is removed.
func TestCloneContinues(t *testing.T) {
	if !clones(t) {
		t.Skip("files cannot be cloned here")
	}
	rnd := rand.New(rand.NewPCG(21, 1))
	base := make([]byte, 80<<20)
	after := bytes.Clone(base)
	noise(rnd, after[:70<<20])
	for _, gone := range []bool{false, true} {
		s := newShelf(t, base, after)
		o := transfer.PullOptions{Dir: t.TempDir(), LocalContent: map[string]diskfile.Disk{s.tips[0]: s.keep(t, 0)}}
		ctx, cancel := context.WithCancel(t.Context())
		stop := func(r *http.Request) {
			if s.bulk.Load() > 20<<20 {
				cancel()
				panic(http.ErrAbortHandler)
			}
		}
		s.disturb.Store(&stop)
		if _, err := s.pull(ctx, t, o); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		s.disturb.Store(nil)
		if gone {
			o.LocalContent = nil
		}
		result := s.pulledOnto(t, o, after)
		if again := result.TransferredBytes > 69<<20; again != gone {
			t.Errorf("the base is gone: %v; %d bytes were moved again", gone, result.TransferredBytes)
		}
	}
}

// TestCloneOfChangedDisk: a clone of a file that no longer matched its description is not resumed, also if the
// content exists elsewhere by then.
func TestCloneOfChangedDisk(t *testing.T) {
	if !clones(t) {
		t.Skip("files cannot be cloned here")
	}
	rnd := rand.New(rand.NewPCG(23, 1))
	base := grow(rnd, nil, 4<<20)
	after := grow(rnd, base, 4<<20)
	s := newShelf(t, base, after)
	changed := s.keep(t, 0)
	if err := os.WriteFile(changed.Path, make([]byte, len(base)), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("changed")
	o := transfer.PullOptions{
		Dir: t.TempDir(), LocalContent: map[string]diskfile.Disk{s.tips[0]: changed},
		AfterClone: func(tip string) error {
			if tip != s.tips[0] {
				t.Errorf("asked for %s", tip)
			}
			return wrong
		},
	}
	if _, err := s.pull(t.Context(), t, o); !errors.Is(err, wrong) {
		t.Fatal(err)
	}
	o.LocalContent, o.AfterClone = map[string]diskfile.Disk{s.tips[0]: s.keep(t, 0)}, nil
	s.pulledOnto(t, o, after)
}

// TestBaseOnAnotherDevice: a base on another file system is used for an overlay, or not at all.
func TestBaseOnAnotherDevice(t *testing.T) {
	rnd := rand.New(rand.NewPCG(22, 1))
	base := grow(rnd, nil, 4<<20)
	after := grow(rnd, base, 4<<20)
	s := newShelf(t, base, after)
	held := diskfile.Disk{Path: filepath.Join(elsewhere(t), "held")}
	if err := os.WriteFile(held.Path, base, 0o600); err != nil {
		t.Fatal(err)
	}
	o := transfer.PullOptions{
		Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]diskfile.Disk{s.tips[0]: held},
	}
	result, err := s.pull(t.Context(), t, o)
	if err != nil || result.Files[0].Form != transfer.FormOverlay {
		t.Fatalf("%+v, %v", result.Files, err)
	}
	mustRead(t, diskfile.Disk{Path: held.Path, Overlays: []string{filepath.Join(o.Dir, "disk.img")}}, after)
	o.Dir, o.AllowOverlays = t.TempDir(), false
	s.pulledOnto(t, o, after)

	// The whole content is there, but no link leads there.
	o.Dir, o.LocalContent = t.TempDir(), map[string]diskfile.Disk{s.tips[1]: held}
	if err := os.WriteFile(held.Path, after, 0o600); err != nil {
		t.Fatal(err)
	}
	s.pulledOnto(t, o, after)
}

// elsewhere returns a directory on another file system than the other temporary directories of a test.
func elsewhere(t *testing.T) string {
	t.Helper()
	device := func(dir string) uint64 {
		st, err := os.Stat(dir)
		if err != nil {
			return 0
		}
		return st.Sys().(*syscall.Stat_t).Dev
	}
	here := device(t.TempDir())
	for _, dir := range []string{"/dev/shm", "/run", "."} {
		if d := device(dir); d == 0 || d == here {
			continue
		}
		made, err := os.MkdirTemp(dir, "buildyard-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(made) })
		return made
	}
	t.Skip("there is no second file system to write to")
	return ""
}
