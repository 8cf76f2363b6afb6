package localtemplate_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/reflink"
	"github.com/buildyard/buildyard/internal/transfer"
)

// twoTags returns a registry with a template whose disk differs little between v1 and v2.
func twoTags(t *testing.T) (reg *counting, id string, disks [2][]byte) {
	t.Helper()
	reg = &counting{Registry: serve(t), t: t}
	disks[0] = noise(1, 3*mib)
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, disks[0], 0o600); err != nil {
		t.Fatal(err)
	}
	pushed, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: reg}.Push(t.Context(),
		hv.Disk{Path: path, Format: "raw"},
		localtemplate.Settings{Name: "debian"}, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	here := newLib(t, reg, pushed.ID)
	here.pull("")
	patch(t, here.here(), 8192, []byte("changed"))
	here.push("v2")
	disks[1] = bytes.Clone(disks[0])
	copy(disks[1][8192:], "changed")
	reg.pulls, reg.pulled = 0, 0
	return reg, pushed.ID, disks
}

func (l *lib) tryPull(ctx context.Context, tag string) error {
	_, err := l.Store.Pull(ctx, l.reg,
		localtemplate.PullOptions{Ref: transfer.VersionRef{ID: l.id, Tag: tag}, Shrink: true})
	return err
}

// holding returns the directory of the version with that disk.
func (l *lib) holding(disk []byte) (dir string) {
	l.t.Helper()
	for _, name := range versions(l.t, l.dir, l.id) {
		got, err := os.ReadFile(filepath.Join(l.dir, l.id, name, "disk.img"))
		if err != nil {
			l.t.Fatal(err)
		}
		if bytes.Equal(got, disk) {
			dir = filepath.Join(l.dir, l.id, name)
		}
	}
	if dir == "" {
		l.t.Fatal("no version has the disk")
	}
	return dir
}

// TestPullSparesChangedDisks: a pull does not lose what the owner wrote to a disk; it is refused
// when it would replace the disk.
func TestPullSparesChangedDisks(t *testing.T) {
	reg, id, disks := twoTags(t)
	for _, tag := range []string{"v1", "v2"} {
		there := newLib(t, reg, id)
		there.pull("v1")
		patch(t, there.here(), 0, []byte("own"))
		if vm, err := there.Find("debian"); err != nil || vm.ContentID != "" {
			t.Errorf("a changed disk is shown as %+v, %v", vm, err)
		}
		if err := there.tryPull(t.Context(), tag); farm.CodeOf(err) != farm.CodeRefused {
			t.Errorf("a pull of %s over changes: %v", tag, err)
		}
		there.mustHold(append([]byte("own"), disks[0][3:]...))
	}
}

// TestPullSparesOtherVersions: a changed version that is not the current one is neither used as the
// registry's nor removed.
func TestPullSparesOtherVersions(t *testing.T) {
	reg, id, disks := twoTags(t)
	there := newLib(t, reg, id)
	there.pull("v2")
	there.pull("v1")
	patch(t, there.holding(disks[1]), 0, []byte("own"))
	own := append([]byte("own"), disks[1][3:]...)
	for _, tag := range []string{"v1", "v2"} {
		if err := there.tryPull(t.Context(), tag); err != nil {
			t.Fatal(err)
		}
		there.holding(own)
	}
	there.holding(disks[1])
	if vm, err := there.Find("debian"); err != nil || vm.Tag != "v2" || vm.ContentID == "" {
		t.Errorf("current is %+v, %v", vm, err)
	}
}

// TestPullFetchesWhatIsMissing: a version whose disk was removed is pulled again.
func TestPullFetchesWhatIsMissing(t *testing.T) {
	reg, id, disks := twoTags(t)
	there := newLib(t, reg, id)
	there.pull("v2")
	if err := os.Remove(filepath.Join(there.here(), "disk.img")); err != nil {
		t.Fatal(err)
	}
	there.pull("v2")
	there.mustHold(disks[1])
}

// TestPullLooksAgain: a disk that is changed while its successor is pulled is not removed.
func TestPullLooksAgain(t *testing.T) {
	reg, id, disks := twoTags(t)
	there := newLib(t, reg, id)
	there.pull("v1")
	reg.alone, reg.pulledNow = true,
		func(transfer.PullOptions) error { patch(t, there.here(), 0, []byte("own")); return nil }
	if err := there.tryPull(t.Context(), "v2"); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("a pull over changes: %v", err)
	}
	there.mustHold(append([]byte("own"), disks[0][3:]...))
}

// twin returns a local template that has the disk; the store continues with the other one.
func (l *lib) twin(disk []byte) (dir string) {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), "disk.img")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		l.t.Fatal(err)
	}
	twin, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: l.reg}.Push(l.t.Context(),
		hv.Disk{Path: path, Format: "raw"},
		localtemplate.Settings{Name: "twin"}, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		l.t.Fatal(err)
	}
	id := l.id
	defer func() { l.id = id }()
	l.id = twin.ID
	l.pull("")
	return l.here()
}

// TestPullRefusesChangedBases: no disk is made from one that was changed after it was found,
// whether as the whole content or as a part.
func TestPullRefusesChangedBases(t *testing.T) {
	reg, id, disks := twoTags(t)
	for i, tag := range []string{"v2", "v1"} {
		there := newLib(t, reg, id)
		base := there.twin(disks[0])
		change := func(o transfer.PullOptions) error {
			if len(o.LocalContent) != 1 {
				t.Errorf("here are %v", o.LocalContent)
			}
			patch(t, base, mib, []byte("own"))
			return nil
		}
		if i == 0 {
			reg.pulling = func(o transfer.PullOptions) { _ = change(o) }
		} else {
			reg.pulledNow = change
		}
		if err := there.tryPull(t.Context(), tag); farm.CodeOf(err) != farm.CodeRefused {
			t.Fatalf("a pull of %s onto a disk that was changed: %v", tag, err)
		}
		reg.pulling, reg.pulledNow = nil, nil
		there.pull(tag)
		there.mustHold(disks[1-i])
	}
}

// TestWholeDiskIsCloned: a disk whose whole content is local uses no more space where files can be
// cloned.
func TestWholeDiskIsCloned(t *testing.T) {
	reg, id, disks := twoTags(t)
	there := newLib(t, reg, id)
	base := there.twin(disks[0])
	there.pull("v1")
	there.mustHold(disks[0])
	own := slices.Max(slices.Collect(maps.Values(host.ExclusiveBytes(there.here()))))
	to := filepath.Join(t.TempDir(), "clone")
	err := reflink.CloneFile(filepath.Join(base, "disk.img"), to)
	if clones := !errors.Is(err, errors.ErrUnsupported); clones != (own < mib) {
		t.Errorf("%d bytes are the version's own; files can be cloned here: %v", own, clones)
	}
	patch(t, there.here(), 0, []byte("own"))
	if got, err := os.ReadFile(filepath.Join(base, "disk.img")); err != nil || !bytes.Equal(got, disks[0]) {
		t.Errorf("the other template's disk was changed: %v", err)
	}
}

// cut pulls v2 over v1, or into an empty store, and interrupts it after its first step.
func cut(t *testing.T, reg *counting, id string, onto bool) *lib {
	t.Helper()
	there := newLib(t, reg, id)
	if onto {
		there.pull("v1")
	}
	ctx, cancel := context.WithCancel(t.Context())
	reg.cancel = cancel
	if err := there.tryPull(ctx, "v2"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a pull that was cut: %v", err)
	}
	reg.cancel = nil
	return there
}

// left returns a path in the directory of an interrupted pull.
func (l *lib) left(path ...string) string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, ".pull-*"))
	if err != nil || len(found) != 1 {
		l.t.Fatalf("left over: %v, %v", found, err)
	}
	return filepath.Join(append(found, path...)...)
}

// TestPullAfterAKill: whatever a killed pull left, the next one makes a complete version of it.
func TestPullAfterAKill(t *testing.T) {
	reg, id, disks := twoTags(t)
	for name, kill := range map[string]func(*lib) error{
		"while it moved its result": func(l *lib) error {
			return errors.Join(os.RemoveAll(l.left("whole")), os.Remove(l.left("parts", "config.json")))
		},
		"with a disk gone": func(l *lib) error {
			return errors.Join(os.RemoveAll(l.left("whole")), os.Remove(l.left("parts", "disk.img")))
		},
		"with a disk of something else": func(l *lib) error {
			return errors.Join(os.Remove(l.left("built.json")),
				os.WriteFile(l.left("whole", "disk.img"), disks[0], 0o600))
		},
	} {
		for _, onto := range []bool{true, false} {
			there := cut(t, reg, id, onto)
			_ = os.Mkdir(there.left("whole"), 0o700) // it may not exist yet
			if err := kill(there); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s: %v", name, err)
			}
			there.pull("v2")
			there.mustHold(disks[1])
			if _, err := os.Stat(filepath.Join(there.here(), "config.json")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestOldPulls: an old pull that no command resumes is removed with its lock, and one in progress
// is not.
func TestOldPulls(t *testing.T) {
	_, dir := open(t)
	old := time.Now().Add(-8 * 24 * time.Hour)
	for name, locked := range map[string]bool{"00": false, "11": true} {
		path := filepath.Join(dir, ".pull-"+name)
		if err := os.MkdirAll(filepath.Join(path, "parts"), 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := datadir.LockFile(path+".lock", errors.New("busy"))
		if err != nil {
			t.Fatal(err)
		}
		if !locked {
			lock.Release()
		} else {
			defer lock.Release()
		}
		if err := errors.Join(os.Chtimes(path, old, old), os.Chtimes(path+".lock", old, old)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".new-file", ".gone-file", ".pull-22.lock"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := localtemplate.Open(dir, plain{}); err != nil {
		t.Fatal(err)
	}
	var left []string
	list, _ := os.ReadDir(dir)
	for _, item := range list {
		left = append(left, item.Name())
	}
	if want := []string{".gone-file", ".new-file", ".pull-11", ".pull-11.lock"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// TestCutSumsAreNotTrusted: missing checksums are not taken for zeros.
func TestCutSumsAreNotTrusted(t *testing.T) {
	reg, id, disks := twoTags(t)
	here := newLib(t, reg, id)
	here.pull("v2")
	found, _ := filepath.Glob(filepath.Join(here.here(), ".sums-*"))
	if len(found) != 1 {
		t.Fatalf("remembered: %v", found)
	}
	if err := os.Truncate(found[0], 4096); err != nil {
		t.Fatal(err)
	}
	patch(t, here.here(), 2*mib, make([]byte, 4096))
	clear(disks[1][2*mib : 2*mib+4096])
	here.push("v3")
	there := newLib(t, reg, id)
	there.pull("")
	there.mustHold(disks[1])
}

// TestPushOfADiskThatIsWritten: no version is made from a disk that was changed while it was read.
func TestPushOfADiskThatIsWritten(t *testing.T) {
	reg, id, disks := twoTags(t)
	here := newLib(t, reg, id)
	here.pull("v2")
	patch(t, here.here(), mib, []byte("more"))
	reg.sending = func() { patch(t, here.here(), 0, []byte("own")) }
	if _, err := here.Store.Push(t.Context(), reg,
		id, localtemplate.PushOptions{Tag: "v3"}); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("pushed: %v", err)
	}
	reg.sending = nil
	there := newLib(t, reg, id)
	there.pull("")
	there.mustHold(disks[1])
	copy(disks[1], "own")
	copy(disks[1][mib:], "more")
	here.push("v3")
	there.pull("")
	there.mustHold(disks[1])
}
