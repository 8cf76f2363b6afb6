package transfer_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/transfer"
)

// noisy is a disk that does not compress away, the same for the same size.
func noisy(t *testing.T, size int) file {
	return write(t, "disk.img", api.FileDisk, "raw", int64(size), map[int64]int{0: size})
}

// TestTwoPushesOfOneTag: of concurrent pushes of one tag one wins, and the others report the conflict; a pull
// yields the winner's complete version.
func TestTwoPushesOfOneTag(t *testing.T) {
	for _, same := range []bool{false, true} {
		s := serve(t, t.TempDir())
		files := []file{noisy(t, 5<<20), noisy(t, 6<<20)}
		if same {
			files[1] = files[0] // both complete one layer
		}
		errs := make([]error, len(files))
		var wg sync.WaitGroup
		for i, f := range files {
			c, o := s.client(t), pushOptions("v1", f)
			o.Request.ResumeKey = string(rune('a' + i)) // two senders
			wg.Go(func() { _, errs[i] = c.Push(t.Context(), o) })
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won < 0:
				won = i
			case err == nil:
				t.Error("both pushes of one tag have won")
			case farm.CodeOf(err) != farm.CodeRefused:
				t.Errorf("the other one is told: %v", err)
			}
		}
		if won < 0 {
			t.Fatalf("nobody has won: %v", errs)
		}
		mustPull(t, s.client(t), "v1", t.TempDir(), files[won:won+1])
	}
}

// TestPullOfARevertedVersion: a version is reverted, and everything collected that may be, while a client pulls it.
// The pull ends with the disk, or with one sentence and without one.
func TestPullOfARevertedVersion(t *testing.T) {
	for name, deleted := range map[string]bool{"reverted": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			s := serve(t, base)
			c := s.client(t)
			f := noisy(t, 20<<20)
			mustPush(t, c, pushOptions("v1", f))
			end := func() error {
				if deleted {
					return s.reg.Delete(t.Context(), templateID)
				}
				return s.reg.Revert(t.Context(), registry.VersionRef{ID: templateID, Tag: "v1"})
			}
			var once sync.Once
			disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
				if strings.HasPrefix(r.URL.Path, "/registry/v2/blob/") && r.Header.Get("Range") != "" {
					once.Do(func() {
						if err := end(); err != nil {
							t.Errorf("revert: %v", err)
						}
						if _, err := s.reg.GC(t.Context(), registry.GCOptions{EmptyTrash: true}); err != nil {
							t.Errorf("collect: %v", err)
						}
					})
				}
				h.ServeHTTP(w, r)
			}
			s.disturb.Store(&disturb)
			mustPull(t, c, "v1", t.TempDir(), []file{f}) // its layers were promised to it

			// A pull that begins now fails, and writes nothing.
			dir := t.TempDir()
			_, err := c.Pull(t.Context(),
				transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID, Tag: "v1"}, Dir: dir})
			if code := farm.CodeOf(err); code != farm.CodeNoVersion && code != farm.CodeNotFound {
				t.Errorf("a pull behind it: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// TestPullWhoseLayersAreRemoved: a restarted registry has forgotten its leases. The pull reports the error and
// leaves no disk under its final name.
func TestPullWhoseLayersAreRemoved(t *testing.T) {
	base := t.TempDir()
	s := serve(t, base)
	c := s.client(t)
	f := noisy(t, 40<<20)
	mustPush(t, c, pushOptions("v1", f))
	var ranges atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if strings.HasPrefix(r.URL.Path, "/registry/v2/blob/") && ranges.Add(1) > 1 {
			http.Error(w, `{"status":"FAIL","message":"Not found"}`, http.StatusNotFound)
			return
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	dir := t.TempDir()
	_, err := c.Pull(t.Context(), transfer.PullOptions{Ref: transfer.VersionRef{ID: templateID, Tag: "v1"}, Dir: dir})
	if farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("the pull ends with: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "disk.img")); len(left) > 0 {
		t.Error("there is a disk of a pull that failed")
	}
}
