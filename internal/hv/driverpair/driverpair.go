// Package driverpair is the driver of a host with two hypervisors: one for macOS guests, one for all
// others, such as tart and QEMU on a Mac.
//
// It starts nothing itself: it passes every call to the driver that has the VM, or that the spec of a
// new VM needs.
//
// Invariant: a VM is in at most one of its drivers.
package driverpair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

// Driver passes calls to two drivers.
type Driver struct {
	mac, pc hv.Driver
}

var (
	_ hv.Driver        = (*Driver)(nil)
	_ hv.Saver         = (*Driver)(nil)
	_ hv.Restarter     = (*Driver)(nil)
	_ hv.ConsoleDriver = (*Driver)(nil)
	_ hv.DiskMover     = (*Driver)(nil)
	_ hv.FailureLogger = (*Driver)(nil)
	_ hv.LicenseReader = (*Driver)(nil)
	_ io.Closer        = (*Driver)(nil)

	_ hv.ProblemReporter   = (*Driver)(nil)
	_ hv.OtherGuestCounter = (*Driver)(nil)
)

// New returns the driver over one for macOS guests and one for all others.
func New(mac, pc hv.Driver) *Driver { return &Driver{mac: mac, pc: pc} }

// Describe returns the host of the driver for other guests, since suspended guests depend on it, with
// the names and abilities of both, and the license of the driver for macOS guests.
func (d *Driver) Describe(ctx context.Context) (hv.Host, error) {
	mac, err := d.mac.Describe(ctx)
	if err != nil {
		return hv.Host{}, err
	}
	h, err := d.pc.Describe(ctx)
	if err != nil {
		return hv.Host{}, err
	}
	h.Driver, h.Version = mac.Driver+", "+h.Driver, mac.Version+", "+h.Version
	h.LicenseKind, h.LicenseExpires = mac.LicenseKind, mac.LicenseExpires
	h.Capabilities = slices.Concat(mac.Capabilities, h.Capabilities)
	slices.Sort(h.Capabilities)
	h.Capabilities = slices.Compact(h.Capabilities)
	return h, nil
}

// Start starts a VM by the driver that has it, otherwise by the one that its spec needs.
func (d *Driver) Start(ctx context.Context, spec hv.Spec) (hv.VM, error) {
	for _, each := range []hv.Driver{d.mac, d.pc} {
		if _, err := each.Get(ctx, spec.ID); !errors.Is(err, hv.ErrNotFound) {
			return each.Start(ctx, spec)
		}
	}
	if spec.Apple != nil {
		return d.mac.Start(ctx, spec)
	}
	return d.pc.Start(ctx, spec)
}

// Stop passes the call on.
func (d *Driver) Stop(ctx context.Context, id string, how hv.StopMode) error {
	of, err := d.driverOf(ctx, id)
	if err != nil {
		return err
	}
	return of.Stop(ctx, id, how)
}

// Delete removes the VM from both drivers: deleting an unknown VM succeeds.
func (d *Driver) Delete(ctx context.Context, id string) error {
	return errors.Join(d.mac.Delete(ctx, id), d.pc.Delete(ctx, id))
}

// Exec passes the call on.
func (d *Driver) Exec(ctx context.Context, id string, cmd hv.Command) (hv.Result, error) {
	of, err := d.driverOf(ctx, id)
	if err != nil {
		return hv.Result{}, err
	}
	return of.Exec(ctx, id, cmd)
}

// List returns the VMs of both drivers.
func (d *Driver) List(ctx context.Context) ([]hv.VM, error) {
	vms, err := d.mac.List(ctx)
	if err != nil {
		return nil, err
	}
	others, err := d.pc.List(ctx)
	if err != nil {
		return nil, err
	}
	vms = slices.Concat(vms, others)
	slices.SortFunc(vms, func(a, b hv.VM) int { return strings.Compare(a.ID, b.ID) })
	return vms, nil
}

// Get returns the VM of the driver that has it.
func (d *Driver) Get(ctx context.Context, id string) (hv.VM, error) {
	vm, err := d.mac.Get(ctx, id)
	if errors.Is(err, hv.ErrNotFound) {
		return d.pc.Get(ctx, id)
	}
	return vm, err
}

// driverOf returns the driver that has a VM, otherwise the one for other guests, which reports that it
// does not have it either.
func (d *Driver) driverOf(ctx context.Context, id string) (hv.Driver, error) {
	_, err := d.mac.Get(ctx, id)
	switch {
	case err == nil:
		return d.mac, nil
	case errors.Is(err, hv.ErrNotFound):
		return d.pc, nil
	}
	return nil, err
}

// driverAs returns the driver of a VM as what implements an ability.
func driverAs[T any](ctx context.Context, d *Driver, id, what string) (T, error) {
	var none T
	of, err := d.driverOf(ctx, id)
	if err != nil {
		return none, err
	}
	part, ok := of.(T)
	if !ok {
		return none, hv.RefusedError("the hypervisor of VM %s cannot %s", id, what)
	}
	return part, nil
}

// Save passes the call on.
func (d *Driver) Save(ctx context.Context, id string, spec hv.SaveSpec) (hv.SaveResult, error) {
	saver, err := driverAs[hv.Saver](ctx, d, id, "save VMs")
	if err != nil {
		return hv.SaveResult{}, err
	}
	return saver.Save(ctx, id, spec)
}

// Restart passes the call on.
func (d *Driver) Restart(ctx context.Context, id string, edit func(*hv.Spec)) (hv.VM, error) {
	restarter, err := driverAs[hv.Restarter](ctx, d, id, "restart VMs")
	if err != nil {
		return hv.VM{}, err
	}
	return restarter.Restart(ctx, id, edit)
}

// SocketUser returns that of the driver for other guests: disks of macOS guests are not served.
func (d *Driver) SocketUser(id string) (processFile string, group int) {
	if mover, ok := d.pc.(hv.DiskMover); ok {
		return mover.SocketUser(id)
	}
	return "", -1
}

// UseFile passes the call on.
func (d *Driver) UseFile(ctx context.Context, id string, disk int) error {
	mover, err := driverAs[hv.DiskMover](ctx, d, id, "start before their disks are complete")
	if err != nil {
		return err
	}
	return mover.UseFile(ctx, id, disk)
}

// Screen passes the call on.
func (d *Driver) Screen(ctx context.Context, id string) (net.Conn, error) {
	console, err := driverAs[hv.ConsoleDriver](ctx, d, id, "show the screens of VMs")
	if err != nil {
		return nil, err
	}
	return console.Screen(ctx, id)
}

// FailureLog returns the log of the first driver that has one.
func (d *Driver) FailureLog(id string) ([]byte, error) {
	for _, each := range []hv.Driver{d.mac, d.pc} {
		logger, ok := each.(hv.FailureLogger)
		if !ok {
			continue
		}
		if log, err := logger.FailureLog(id); log != nil || err != nil {
			return log, err
		}
	}
	return nil, nil
}

// Problem returns the problem of the first driver that has one.
func (d *Driver) Problem() string {
	for _, each := range []hv.Driver{d.mac, d.pc} {
		if reporter, ok := each.(hv.ProblemReporter); ok && reporter.Problem() != "" {
			return reporter.Problem()
		}
	}
	return ""
}

// OtherMacOSGuests returns the count of the driver for macOS guests.
func (d *Driver) OtherMacOSGuests() int {
	if counter, ok := d.mac.(hv.OtherGuestCounter); ok {
		return counter.OtherMacOSGuests()
	}
	return 0
}

// ReadLicense returns the license of the driver for macOS guests.
func (d *Driver) ReadLicense(ctx context.Context) (hv.License, error) {
	if reader, ok := d.mac.(hv.LicenseReader); ok {
		return reader.ReadLicense(ctx)
	}
	h, err := d.mac.Describe(ctx)
	return hv.License{Kind: h.LicenseKind, Expires: h.LicenseExpires}, err
}

// Close closes both drivers; VMs continue.
func (d *Driver) Close() error {
	var errs []error
	for _, each := range []hv.Driver{d.mac, d.pc} {
		if c, ok := each.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close drivers: %w", err)
	}
	return nil
}
