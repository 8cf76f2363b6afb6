package driverpair

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// testDriver remembers its VMs by their IDs.
type testDriver struct {
	hv.Driver // the methods that no test calls

	host    hv.Host
	vms     []string
	problem string
	others  int
}

func (d *testDriver) Describe(context.Context) (hv.Host, error) { return d.host, nil }

func (d *testDriver) Problem() string { return d.problem }

func (d *testDriver) OtherMacOSGuests() int { return d.others }

func (d *testDriver) Get(_ context.Context, id string) (hv.VM, error) {
	if !slices.Contains(d.vms, id) {
		return hv.VM{}, hv.ErrNotFound
	}
	return hv.VM{ID: id, Version: d.host.Version}, nil
}

func (d *testDriver) Start(ctx context.Context, s hv.Spec) (hv.VM, error) {
	if !slices.Contains(d.vms, s.ID) {
		d.vms = append(d.vms, s.ID)
	}
	return d.Get(ctx, s.ID)
}

// saver is a testDriver that saves VMs.
type saver struct{ *testDriver }

func (saver) Save(context.Context, string, hv.SaveSpec) (hv.SaveResult, error) {
	return hv.SaveResult{State: "saved"}, nil
}

// silent is a driver without the optional methods.
type silent struct{ hv.Driver }

func newPair() (d *Driver, mac, pc *testDriver) {
	mac = &testDriver{host: hv.Host{Driver: "tart", Version: "2", LicenseKind: "k", Capabilities: []hv.Capability{
		hv.CanMacOS, hv.CanRestart,
	}}}
	pc = &testDriver{host: hv.Host{Driver: "qemu", Version: "9", Machine: "m", Capabilities: []hv.Capability{
		hv.CanPC, hv.CanRestart, hv.CanSave, hv.CanSuspend,
	}}}
	return New(mac, saver{pc}), mac, pc
}

// TestDescribe: the host has the names and abilities of both drivers, each one once.
func TestDescribe(t *testing.T) {
	d, _, _ := newPair()
	h, err := d.Describe(t.Context())
	want := []hv.Capability{hv.CanMacOS, hv.CanPC, hv.CanRestart, hv.CanSave, hv.CanSuspend}
	slices.Sort(want)
	if err != nil || h.Driver != "tart, qemu" || h.Version != "2, 9" || h.Machine != "m" || h.LicenseKind != "k" ||
		!slices.Equal(h.Capabilities, want) {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestStart: a new VM is started by the driver that its spec needs, an existing one by the driver that has it.
func TestStart(t *testing.T) {
	d, mac, pc := newPair()
	pc.vms = []string{"old"}
	for _, s := range []hv.Spec{
		{ID: "mac", Apple: &hv.Apple{}}, {ID: "pc"}, {ID: "old", Apple: &hv.Apple{}}, {ID: "mac"},
	} {
		if vm, err := d.Start(t.Context(), s); err != nil || vm.ID != s.ID {
			t.Errorf("%s: %+v, %v", s.ID, vm, err)
		}
	}
	if !slices.Equal(mac.vms, []string{"mac"}) || !slices.Equal(pc.vms, []string{"old", "pc"}) {
		t.Errorf("VMs %v and %v", mac.vms, pc.vms)
	}
}

// TestSave: what one driver can do is refused for a VM of the other.
func TestSave(t *testing.T) {
	d, mac, pc := newPair()
	mac.vms, pc.vms = []string{"mac"}, []string{"pc"}
	if r, err := d.Save(t.Context(), "pc", hv.SaveSpec{}); err != nil || r.State != "saved" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := d.Save(t.Context(), "mac", hv.SaveSpec{}); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("a VM of the driver without saves: %v", err)
	}
}

// TestOtherMacOSGuests: the count of the driver for macOS guests counts; another one has none.
func TestOtherMacOSGuests(t *testing.T) {
	d, mac, pc := newPair()
	mac.others, pc.others = 2, 9
	if n := d.OtherMacOSGuests(); n != 2 {
		t.Errorf("%d guests", n)
	}
	if n := New(silent{}, pc).OtherMacOSGuests(); n != 0 {
		t.Errorf("%d guests of a driver that counts none", n)
	}
}

// TestProblem: the problem of either driver is one of the host.
func TestProblem(t *testing.T) {
	d, mac, pc := newPair()
	if p := d.Problem(); p != "" {
		t.Errorf("problem %q", p)
	}
	pc.problem = "second"
	if p := d.Problem(); p != "second" {
		t.Errorf("problem %q", p)
	}
	mac.problem = "first"
	if p := d.Problem(); p != "first" {
		t.Errorf("problem %q", p)
	}
}
