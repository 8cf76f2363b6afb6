package localtemplate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

const mib = 1 << 20

// plain treats images as plain bytes, so that these tests need no hypervisor; the
// commands' tests run the real tool.
type plain struct{ fail error }

func (plain) Format() string { return "qcow2" }

func (p plain) Check(_ context.Context, d hv.Disk) (int64, error) {
	info, err := os.Stat(d.Path)
	if err != nil {
		return 0, err
	}
	return info.Size(), p.fail
}

func (plain) Create(_ context.Context, d hv.Disk, bytes int64) error {
	f, err := os.Create(d.Path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(bytes), f.Close())
}

func (plain) Convert(_ context.Context, from, to hv.Disk) error {
	in, err := os.Open(from.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to.Path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func open(t *testing.T) (*localtemplate.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "library")
	l, err := localtemplate.Open(dir, plain{})
	if err != nil {
		t.Fatal(err)
	}
	return l, dir
}

// image writes a disk image: data, then a hole, then data.
func image(t *testing.T, name string) (hv.Disk, []byte) {
	t.Helper()
	data := make([]byte, 10*mib)
	copy(data, "begin")
	copy(data[len(data)-3:], "end")
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	format, err := localtemplate.ImageFormat(path, "")
	if err != nil {
		t.Fatal(err)
	}
	return hv.Disk{Path: path, Format: format}, data
}

func TestImport(t *testing.T) {
	for _, name := range []string{"disk.qcow2", "disk.img"} {
		t.Run(name, func(t *testing.T) {
			l, dir := open(t)
			from, data := image(t, name)
			var last, total int64
			vm, err := l.Import(t.Context(), from, localtemplate.Settings{Name: "debian"},
				func(d, all int64) { last, total = d, all })
			if err != nil {
				t.Fatal(err)
			}
			if total == 0 || last != total {
				t.Errorf("progress ended at %d of %d", last, total)
			}
			if vm.CPUs != 2 || vm.MemoryMB != 4096 || vm.NetworkMode != "shared" || vm.Firmware != "bios" ||
				len(vm.Ports) != 1 || vm.Ports[0] != localtemplate.SSHRule || len(vm.Disks) != 1 ||
				vm.Disks[0].Format != "qcow2" || vm.Arch == "" {
				t.Errorf("defaults: %+v", vm)
			}
			got, err := os.ReadFile(filepath.Join(dir, vm.ID, "local", vm.Disks[0].FileName))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("the disk is another one: %d bytes, %v", len(got), err)
			}
			if name == "disk.qcow2" && vm.Disks[0].SizeBytes > 9*mib {
				t.Errorf("the copy of a sparse file takes %d bytes", vm.Disks[0].SizeBytes)
			}
		})
	}
}

func TestFormatGoesByName(t *testing.T) {
	for path, want := range map[string]string{"a.qcow2": "qcow2", "A.QCOW2": "qcow2", "a.img": "raw", "b.raw": "raw"} {
		if got, err := localtemplate.ImageFormat(path, ""); err != nil || got != want {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	if got, err := localtemplate.ImageFormat("disk", "raw"); err != nil || got != "raw" {
		t.Errorf("named: %s, %v", got, err)
	}
	for _, path := range []string{"disk", "a.vmdk"} {
		if _, err := localtemplate.ImageFormat(path, ""); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := localtemplate.ImageFormat("a.img", "vdi"); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("vdi: %v", err)
	}
	if _, err := localtemplate.ImageFormat("a.img", "anka"); farm.CodeOf(err) != farm.CodeInvalid ||
		!strings.Contains(err.Error(), "--anka") {
		t.Errorf("anka: %v", err)
	}
}

func TestFailedImportLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	l, err := localtemplate.Open(dir, plain{fail: hv.RefusedError("it refers to another file")})
	if err != nil {
		t.Fatal(err)
	}
	from, _ := image(t, "disk.img")
	if _, err := l.Import(t.Context(), from, localtemplate.Settings{Name: "x"}, nil); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("got %v", err)
	}
	ok, err := localtemplate.Open(dir, plain{})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	from, _ = image(t, "disk.qcow2")
	if _, err := ok.Import(cancelled, from, localtemplate.Settings{Name: "x"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

func TestSettings(t *testing.T) {
	l, _ := open(t)
	vm, err := l.Create(t.Context(), 8*mib, localtemplate.Settings{
		Name: "small", CPUs: 1, MemoryMB: 512, Arch: "arm64", NetworkMode: "nat", Firmware: "uefi",
		Ports: []api.ConfigPort{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if vm.CPUs != 1 || vm.MemoryMB != 512 || vm.Arch != "arm64" || vm.NetworkMode != "nat" || vm.Firmware != "uefi" ||
		len(vm.Ports) != 0 {
		t.Errorf("created %+v", vm)
	}
	web, err := localtemplate.ParsePorts([]string{"ssh", "web:80:8080"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Modify(vm.ID, localtemplate.Settings{CPUs: 4, Ports: web}); err != nil {
		t.Fatal(err)
	}
	if vm, err = l.Find("small"); err != nil || vm.CPUs != 4 || vm.MemoryMB != 512 || len(vm.Ports) != 2 {
		t.Errorf("modified %+v, %v", vm, err)
	}
	if _, err := l.Modify(vm.ID, localtemplate.Settings{Name: "large"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Find("small"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("the old name: %v", err)
	}
	for field, s := range map[string]localtemplate.Settings{
		"arch": {Arch: "mips"}, "cpu": {CPUs: -1}, "ram": {MemoryMB: 1}, "network": {NetworkMode: "x"},
		"firmware": {Firmware: "x"},
		"name":     {Name: "a\nb"},
	} {
		if _, err := l.Modify(vm.ID, s); farm.CodeOf(err) != farm.CodeInvalid ||
			!strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := l.Create(t.Context(), mib, localtemplate.Settings{}); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("without a name: %v", err)
	}
}

func TestFindAndDelete(t *testing.T) {
	l, dir := open(t)
	var ids []string
	for range 2 {
		vm, err := l.Create(t.Context(), mib, localtemplate.Settings{Name: "twin"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, vm.ID)
	}
	if _, err := l.Find("twin"); farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), ids[0]) {
		t.Errorf("an ambiguous name: %v", err)
	}
	if vm, err := l.Find(strings.ToUpper(ids[0])); err != nil || vm.ID != ids[0] {
		t.Errorf("by id: %+v, %v", vm, err)
	}
	lock, err := datadir.LockFile(filepath.Join(dir, ids[0], "lock"), errors.New("busy"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(ids[0]); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("deleting a template in use: %v", err)
	}
	lock.Release()
	if err := l.Delete(ids[0]); err != nil {
		t.Fatal(err)
	}
	if list, err := l.List(); err != nil || len(list) != 1 || list[0].ID != ids[1] {
		t.Errorf("left are %+v, %v", list, err)
	}
}

func TestLeftoversAndDamage(t *testing.T) {
	l, dir := open(t)
	vm, err := l.Create(t.Context(), mib, localtemplate.Settings{Name: "good"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".new-x", ".gone-y", ".pull-z", "01890000-0000-7000-8000-00000000000a"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "local"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busy, err := datadir.LockFile(filepath.Join(dir, ".new-x", "lock"), errors.New("busy"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := localtemplate.Open(dir, plain{})
	if err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{".new-x": true, ".gone-y": false, ".pull-z": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %v", name, err, stays)
		}
	}
	busy.Release()
	list, err := again.List()
	if err == nil || len(list) != 1 || list[0].ID != vm.ID {
		t.Errorf("with a damaged template beside it: %+v, %v", list, err)
	}
	if _, err := again.Find("good"); err != nil {
		t.Errorf("a damaged template hides a whole one: %v", err)
	}
}
