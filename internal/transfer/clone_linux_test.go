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

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/tools/xfstest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestOnXFS runs what depends on clones where files can be cloned.
func TestOnXFS(t *testing.T) {
	xfstest.Run(t, "TestClonedDisk", "TestCloneContinues", "TestCloneOfChangedDisk", "TestBaseOnAnotherDevice",
		"TestPullOfChains", "TestBeginOfAClone", "TestClone", "TestDamagedLocalDiskIsRemoved", "TestPushOfWhatChanged")
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
	mustRead(t, transfer.Disk{Path: filepath.Join(o.Dir, "disk.img")}, want)
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
			Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]transfer.Disk{s.tips[0]: held},
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
		o := transfer.PullOptions{Dir: t.TempDir(), LocalContent: map[string]transfer.Disk{s.tips[0]: s.keep(t, 0)}}
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
		Dir: t.TempDir(), LocalContent: map[string]transfer.Disk{s.tips[0]: changed},
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
	o.LocalContent, o.AfterClone = map[string]transfer.Disk{s.tips[0]: s.keep(t, 0)}, nil
	s.pulledOnto(t, o, after)
}

// TestBaseOnAnotherDevice: a base on another file system is used for an overlay, or not at all.
func TestBaseOnAnotherDevice(t *testing.T) {
	rnd := rand.New(rand.NewPCG(22, 1))
	base := grow(rnd, nil, 4<<20)
	after := grow(rnd, base, 4<<20)
	s := newShelf(t, base, after)
	held := transfer.Disk{Path: filepath.Join(elsewhere(t), "held")}
	if err := os.WriteFile(held.Path, base, 0o600); err != nil {
		t.Fatal(err)
	}
	o := transfer.PullOptions{
		Dir: t.TempDir(), AllowOverlays: true, LocalContent: map[string]transfer.Disk{s.tips[0]: held},
	}
	result, err := s.pull(t.Context(), t, o)
	if err != nil || result.Files[0].Form != transfer.FormOverlay {
		t.Fatalf("%+v, %v", result.Files, err)
	}
	mustRead(t, transfer.Disk{Path: held.Path, Overlays: []string{filepath.Join(o.Dir, "disk.img")}}, after)
	o.Dir, o.AllowOverlays = t.TempDir(), false
	s.pulledOnto(t, o, after)

	// The whole content is there, but no link leads there.
	o.Dir, o.LocalContent = t.TempDir(), map[string]transfer.Disk{s.tips[1]: held}
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

// TestRefusedClones: errors for files that cannot be cloned map to errors.ErrUnsupported, other errors do not.
func TestRefusedClones(t *testing.T) {
	for no, refused := range map[syscall.Errno]bool{
		unix.EXDEV: true, unix.EOPNOTSUPP: true, unix.EINVAL: true, unix.ENOTTY: true, unix.ENOSYS: true,
		unix.EPERM:  true,
		unix.ENOSPC: false, unix.EIO: false, unix.EDQUOT: false, unix.EROFS: false,
	} {
		err := transfer.Cloned(os.NewSyscallError("ioctl", no))
		if errors.Is(err, errors.ErrUnsupported) != refused || !refused && !errors.Is(err, no) {
			t.Errorf("%v became %v", no, err)
		}
	}
	if err := transfer.Cloned(nil); err != nil {
		t.Error(err)
	}
}

// TestClone: a clone has the bytes of its file and keeps them when that is written. A file that cannot be
// cloned is an error.
func TestClone(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	content := bytes.Repeat([]byte("content "), 4096)
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{from + "x", to}, {from, filepath.Join(dir, "none", "to")}} {
		if err := transfer.CloneFile(c[0], c[1]); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s as %s: %v", c[0], c[1], err)
		}
	}
	err := transfer.CloneFile(from, to)
	if !clones(t) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		return
	}
	if err := errors.Join(err, os.WriteFile(from, []byte("another"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the clone has %d bytes, %v", len(got), err)
	}
}

// TestNoPlaceForAClone: a file that cannot be made is an error, and no file system that cannot clone.
func TestNoPlaceForAClone(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	from, err := dir.Create("from")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := transfer.CloneAt(from, dir, "none/to"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
