package transfer_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
	"github.com/buildyard/buildyard/internal/transfer"
)

// errPower is the error of a failed sync.
var errPower = errors.New("input/output error")

// pulls are two versions of a disk on a common base. A pull of the first one has left all of it in a directory, under
// no name, and then the second one is pulled there.
type pulls struct {
	versions [2]*shelf
	have     map[string]diskfile.Disk
}

func newPulls(t *testing.T, overlay bool) *pulls {
	t.Helper()
	rnd := rand.New(rand.NewPCG(41, 1))
	base := grow(rnd, nil, 1<<20)
	p := &pulls{have: map[string]diskfile.Disk{}}
	for i := range p.versions {
		p.versions[i] = newShelf(t, base, grow(rnd, base, 1<<20))
	}
	if overlay {
		base := diskfile.Disk{Path: filepath.Join(quickDir(t), "base")}
		if err := os.WriteFile(base.Path, p.versions[0].contents[0], 0o600); err != nil {
			t.Fatal(err)
		}
		p.have[p.versions[0].tips[0]] = base
	}
	return p
}

// quickDir returns a directory in memory, if available: syncs there do not reach a disk.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "transfer-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// pull pulls a version and checks the result.
func (p *pulls) pull(t *testing.T, version int, dir string) transfer.PullResult {
	t.Helper()
	o := transfer.PullOptions{Dir: dir, AllowOverlays: true, LocalContent: p.have, Sync: func(*os.File) error {
		return nil
	}}
	result, err := p.versions[version].pull(t.Context(), t, o)
	if err != nil {
		t.Fatal(err)
	}
	p.mustBeWhole(t, version, dir, result)
	if left, _ := os.ReadDir(dir); len(left) != 2 { // config.json
		t.Errorf("left are %v", left)
	}
	return result
}

func (p *pulls) mustBeWhole(t *testing.T, version int, dir string, result transfer.PullResult) {
	t.Helper()
	d := diskfile.Disk{Path: filepath.Join(dir, "disk.img")}
	if result.Files[0].Form == transfer.FormOverlay {
		d = diskfile.Disk{Path: p.have[result.Files[0].ParentChainID].Path, Overlays: []string{d.Path}}
	}
	mustRead(t, d, p.versions[version].contents[1])
	if config, err := os.ReadFile(filepath.Join(dir, "config.json")); err != nil || string(config) != "{}" {
		t.Errorf("the configuration is %q, %v", config, err)
	}
}

// cut pulls the first version up to the sync of its configuration: all of the disk is fetched, and has no final
// name.
func (p *pulls) cut(t *testing.T) (dir string) {
	t.Helper()
	dir = quickDir(t)
	o := transfer.PullOptions{Dir: dir, AllowOverlays: true, LocalContent: p.have, Sync: func(f *os.File) error {
		if filepath.Base(f.Name()) == "config.json" {
			return errPower
		}
		return nil
	}}
	if _, err := p.versions[0].pull(t.Context(), t, o); !errors.Is(err, errPower) {
		t.Fatal(err)
	}
	return dir
}

// indexes is the number of bytes that are fetched when all frames are there.
func (p *pulls) indexes(version int) (n int64) {
	for _, l := range p.versions[version].file.Layers {
		n += l.IndexLength
	}
	return n
}

// TestCrashesOfAPull: whatever a loss of power leaves of a pull, the next one, of either version, ends with the right
// bytes. Frames that were checkpointed are not fetched again, and of a pull that has returned nothing is lost.
func TestCrashesOfAPull(t *testing.T) {
	for _, overlay := range []bool{false, true} {
		t.Run(fmt.Sprintf("overlay %t", overlay), func(t *testing.T) {
			p := newPulls(t, overlay)
			dir := p.cut(t)
			tree, err := crashfs.Watch(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			checkpointed := false
			seen := map[string]bool{}
			crash := func(where string) {
				_, err := os.Stat(filepath.Join(dir, "disk.img.journal"))
				kept := checkpointed && err == nil
				for _, keep := range crashfs.Keeps {
					state, err := tree.Crash(keep)
					if err != nil {
						t.Fatal(err)
					}
					if key := fmt.Sprint(kept && keep.Names, state.Sum); !seen[key] {
						seen[key] = true
						t.Logf("crash before sync of %s: %s", where, keep)
						p.judge(t, state, kept && keep.Names)
					}
				}
			}
			o := transfer.PullOptions{
				Dir: dir, AllowOverlays: true, LocalContent: p.have,
				Sync: func(f *os.File) error {
					name := filepath.Base(f.Name())
					checkpointed = checkpointed || name == "config.json"
					crash(name)
					return tree.Sync(f)
				},
			}
			result, err := p.versions[1].pull(t.Context(), t, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, keep := range crashfs.Keeps {
				state, err := tree.Crash(keep)
				left := filepath.Join(quickDir(t), "left")
				if err := errors.Join(err, state.Write(left)); err != nil {
					t.Fatal(err)
				}
				p.mustBeWhole(t, 1, left, result)
			}
		})
	}
}

// judge pulls each version into the state that a crash has left.
func (p *pulls) judge(t *testing.T, state crashfs.State, kept bool) {
	t.Helper()
	for version := range p.versions {
		dir := filepath.Join(quickDir(t), "left")
		if err := state.Write(dir); err != nil {
			t.Fatal(err)
		}
		result := p.pull(t, version, dir)
		if version == 1 && kept && result.TransferredBytes > p.indexes(1) {
			t.Errorf("%d bytes are fetched again", result.TransferredBytes-p.indexes(1))
		}
	}
}

// TestFailedSyncs: a pull that cannot put something on stable storage fails, and the next one ends with the right
// bytes.
func TestFailedSyncs(t *testing.T) {
	p := newPulls(t, true)
	synced := map[string]bool{}
	for n := 0; ; n++ {
		dir, calls := p.cut(t), 0
		o := transfer.PullOptions{Dir: dir, AllowOverlays: true, LocalContent: p.have, Sync: func(f *os.File) error {
			if calls++; calls <= n {
				return nil
			}
			synced[filepath.Base(f.Name())] = true
			return errPower
		}}
		_, err := p.versions[1].pull(t.Context(), t, o)
		if calls <= n {
			break
		}
		if !errors.Is(err, errPower) {
			t.Errorf("sync %d failed, and the pull ends with %v", n, err)
		}
		p.pull(t, 1, dir)
	}
	want := []string{".", "config.json", "disk.img.journal", "disk.img.partial"}
	if !slices.Equal(slices.Sorted(maps.Keys(synced)), want) {
		t.Errorf("synced are %v", synced)
	}
}
