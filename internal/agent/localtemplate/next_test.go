package localtemplate_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2/qcow2test"
	"github.com/buildyard/buildyard/internal/transfer"
)

// counting counts the bytes of pulls and pushes, and cancels a pull after its first step if cancel
// is set.
type counting struct {
	localtemplate.Registry
	t      *testing.T
	pulled int64
	pulls  int
	sent   int64 // bytes of layers that pushes added
	cancel context.CancelFunc
	// pulling and pulledNow, when not nil, are called before a pull and as soon as one has ended.
	pulling   func(transfer.PullOptions)
	pulledNow func(transfer.PullOptions) error
	sending   func() // called before a push is committed
	alone     bool   // pulls get no local content
}

func (c *counting) Pull(ctx context.Context, o transfer.PullOptions) (transfer.PullResult, error) {
	if c.alone {
		o.LocalContent = nil
	}
	if c.pulling != nil {
		c.pulling(o)
	}
	r, err := c.Registry.Pull(ctx, o)
	c.pulled += r.TransferredBytes
	c.pulls++
	if c.cancel != nil {
		c.cancel()
	}
	if c.pulledNow != nil && err == nil {
		err = c.pulledNow(o)
	}
	return r, err
}

func (c *counting) Push(ctx context.Context, o transfer.PushOptions) (api.PushResult, error) {
	if ready := o.BeforePublish; c.sending != nil {
		o.BeforePublish = func() error { c.sending(); return ready() }
	}
	r, err := c.Registry.Push(ctx, o)
	if err != nil {
		return r, err
	}
	d, err := c.Registry.(*transfer.Client).TemplateDetail(ctx, r.ID)
	if err != nil {
		c.t.Fatal(err)
	}
	c.sent = d.Versions[len(d.Versions)-1].Increment
	return r, nil
}

// noise returns bytes that do not compress.
func noise(seed byte, n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

// patch overwrites a part of the only disk of a local version.
func patch(t *testing.T, dir string, off int64, data []byte) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.img"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	f, err := os.OpenFile(found[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, off); err != nil {
		t.Fatal(err)
	}
}

// lib is a store with one template that was pulled, or that is pushed.
type lib struct {
	*localtemplate.Store
	t   *testing.T
	dir string
	id  string
	reg *counting
}

func newLib(t *testing.T, reg *counting, id string) *lib {
	l, dir := open(t)
	return &lib{Store: l, t: t, dir: dir, id: id, reg: reg}
}

func (l *lib) pull(tag string) {
	l.t.Helper()
	if _, err := l.Store.Pull(l.t.Context(), l.reg,
		localtemplate.PullOptions{Ref: transfer.VersionRef{ID: l.id, Tag: tag}}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lib) push(tag string) {
	l.t.Helper()
	if _, err := l.Store.Push(l.t.Context(), l.reg, l.id, localtemplate.PushOptions{Tag: tag}); err != nil {
		l.t.Fatal(err)
	}
}

// here returns the directory of the only version.
func (l *lib) here() string {
	l.t.Helper()
	list := versions(l.t, l.dir, l.id)
	if len(list) != 1 {
		l.t.Fatalf("%d versions are here", len(list))
	}
	return filepath.Join(l.dir, l.id, list[0])
}

func (l *lib) mustHold(want []byte) {
	l.t.Helper()
	got, err := os.ReadFile(filepath.Join(l.here(), "disk.img"))
	if err != nil || !bytes.Equal(got, want) {
		l.t.Fatalf("the disk is another one: %d bytes, %v", len(got), err)
	}
}

// TestNextTagCostsWhatChanged: a disk that was pulled, changed in place and pushed, and is pulled
// elsewhere over its predecessor, costs only the changes in each direction.
func TestNextTagCostsWhatChanged(t *testing.T) {
	const small = 3 * mib / 2
	reg := &counting{Registry: serve(t), t: t}
	disk := noise(1, 12*mib+8192)
	clear(disk[4*mib : 6*mib])
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: reg}.Push(t.Context(),
		hv.Disk{Path: path, Format: "raw"},
		localtemplate.Settings{Name: "debian"}, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	here, there := newLib(t, reg, first.ID), newLib(t, reg, first.ID)
	here.pull("")
	there.pull("")
	for i, tag := range []string{"v2", "v3"} {
		for off, data := range map[int64][]byte{
			int64(mib*i + 4096): noise(byte(2+i), 4096), int64(i*9000 + 4*mib + 77): noise(byte(3+i), 400000),
			9 * mib: make([]byte, 100*(i+1)<<10), 12*mib + 8191: {byte(i)},
		} {
			patch(t, here.here(), off, data)
			copy(disk[off:], data)
		}
		here.push(tag)
		if reg.sent > small {
			t.Errorf("%s: %d bytes were sent", tag, reg.sent)
		}
		reg.pulled = 0
		there.pull("")
		there.mustHold(disk)
		if reg.pulled > small {
			t.Errorf("%s: %d bytes were moved", tag, reg.pulled)
		}
	}
	here.mustHold(disk)

	// The same disk is named by its digest and not sent again, also in a chain.
	here.push("v4")
	if reg.sent != 0 {
		t.Errorf("an unchanged disk costs %d bytes", reg.sent)
	}
	v3, err := reg.PeekManifest(t.Context(), transfer.VersionRef{ID: first.ID, Tag: "v3"})
	v4, err4 := reg.PeekManifest(t.Context(), transfer.VersionRef{ID: first.ID, Tag: "v4"})
	if err != nil || err4 != nil || v3.ContentID != v4.ContentID || len(v4.Files[0].Layers) != 3 {
		t.Errorf("%+v\n%+v\n%v %v", v3, v4, err, err4)
	}
	// Pulled files are not shared: changing one does not change other versions.
	there.pull("v3")
	patch(t, there.here(), 0, []byte("own"))
	here.mustHold(disk)

	// Another registry does not have the layers below, and gets the whole disk.
	reg = &counting{Registry: serve(t), t: t}
	here.reg = reg
	here.push("v5")
	fresh := newLib(t, reg, first.ID)
	fresh.pull("")
	fresh.mustHold(disk)
}

// TestPullContinuesWithItsSecondStep: pulled files are not fetched again when a pull is interrupted
// while the disks are made.
func TestPullContinuesWithItsSecondStep(t *testing.T) {
	reg := &counting{Registry: serve(t), t: t}
	disk := noise(1, 3*mib)
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	pushed, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: reg}.Push(t.Context(),
		hv.Disk{Path: path, Format: "raw"},
		localtemplate.Settings{Name: "debian"}, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	here, there := newLib(t, reg, pushed.ID), newLib(t, reg, pushed.ID)
	here.pull("")
	there.pull("")
	copy(disk, "changed")
	patch(t, here.here(), 0, []byte("changed"))
	here.push("v2")
	ctx, cancel := context.WithCancel(t.Context())
	reg.cancel, reg.pulls = cancel, 0
	if _, err := there.Store.Pull(ctx, reg,
		localtemplate.PullOptions{Ref: transfer.VersionRef{ID: pushed.ID}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a pull that was cut: %v", err)
	}
	there.pull("")
	there.mustHold(disk)
	if reg.pulls != 1 {
		t.Errorf("the registry was asked %d times", reg.pulls)
	}
	if left, _ := filepath.Glob(filepath.Join(there.dir, ".*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestPushOntoAnotherTemplateSendsWhatDiffers: an independent template is pushed as the next tag of
// a pulled one.
func TestPushOntoAnotherTemplateSendsWhatDiffers(t *testing.T) {
	reg := &counting{Registry: serve(t), t: t}
	l, dir := open(t)
	disk := noise(1, 4*mib)
	ids := map[string]string{}
	for _, name := range []string{"old", "new"} {
		vm, err := l.Import(t.Context(), hv.Disk{Path: qcow2test.Image(t, nil, disk), Format: "qcow2"},
			localtemplate.Settings{Name: name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = vm.ID
		copy(disk[2*mib:], "another")
	}
	if _, err := l.Push(t.Context(), reg, ids["old"], localtemplate.PushOptions{Tag: "v1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Push(t.Context(), reg, ids["new"],
		localtemplate.PushOptions{Tag: "v2", TargetTemplate: ids["old"]}); err != nil {
		t.Fatal(err)
	}
	if reg.sent > 100<<10 {
		t.Errorf("%d bytes were sent", reg.sent)
	}
	if sums, _ := filepath.Glob(filepath.Join(dir, ids["new"], "*", ".sums-*")); len(sums) != 1 {
		t.Errorf("remembered: %v", sums)
	}
	there := newLib(t, reg, ids["old"])
	there.pull("")
	there.mustHold(disk)
}
