package transfer_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// smallDisk mounts a file system of so many bytes.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestPullOntoAFullDisk: a pull reports that the disk is full, and succeeds when there is space again.
func TestPullOntoAFullDisk(t *testing.T) {
	content := make([]byte, 6<<20)
	noise(rand.New(rand.NewPCG(51, 1)), content)
	s, dir := newShelf(t, content), smallDisk(t, "8m")
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pull(t.Context(), t, transfer.PullOptions{Dir: dir}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("onto a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pull(t.Context(), t, transfer.PullOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	mustRead(t, diskfile.Disk{Path: filepath.Join(dir, "disk.img")}, content)
}

// TestFullRegistry: a client returns the registry's message immediately, and the same push resumes when there
// is space again.
func TestFullRegistry(t *testing.T) {
	base := smallDisk(t, "64m")
	s := serve(t, base)
	filler := filepath.Join(base, "filler")
	// Every part waits until the disk is full: no part is written, and fails, while the filler is written.
	fill := sync.OnceValue(func() error { return os.WriteFile(filler, make([]byte, 60<<20), 0o600) })
	var sent sync.Map // parts by their URL
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPut {
			if err := fill(); err != nil {
				t.Error(err)
			}
			if _, again := sent.LoadOrStore(r.URL.String(), true); again {
				t.Errorf("sent again to a full disk: %s", r.URL)
			}
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	f := write(t, "disk.img", api.FileDisk, "raw", 20<<20, map[int64]int{0: 20 << 20})
	// With the usual limit, as a busy machine fills the disk in more than the 2 s of other tests.
	c, err := transfer.New(transfer.Options{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = c.Push(t.Context(), pushOptions("v1", f))
	if farm.CodeOf(err) != farm.CodeUnavailable || err.Error() != "The registry's disk is full" {
		t.Fatalf("push onto a full disk: %v", err)
	}
	s.disturb.Store(nil)
	huge := write(t, "disk.img", api.FileDisk, "raw", 1, nil)
	if err := os.Truncate(huge.Path, 100<<30); err != nil {
		t.Fatal(err)
	}
	_, err = c.Push(t.Context(), pushOptions("v2", huge))
	if err == nil || !strings.HasPrefix(err.Error(), "The registry's disk is full: the push has up to 102400 MiB ") {
		t.Errorf("a push that cannot fit: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	mustPush(t, c, pushOptions("v1", f))
	mustPull(t, c, "v1", t.TempDir(), []file{f})
}
