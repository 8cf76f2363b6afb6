// Package anka is the hypervisor driver for macOS guests on Macs with Apple silicon that have the
// program anka. It calls the command line for everything: VMs are clones in the library of the user,
// and their ports are anka's. Source: the vendor's documentation of anka 3.5 to 3.9.
//
// It does not install anka, does not use its registry, and neither saves VMs nor shows their screens.
// It leaves VMs alone that it has not made. It was tried against an imitation of anka only, not on a
// Mac.
//
// Invariant: a VM of this driver is named after its ID, and its record exists from before the VM is
// made until after it is removed; so whatever was killed, Start makes it again and Delete removes it.
package anka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// Options of a Driver.
type Options struct {
	Dir     string // absolute; records of the VMs and images
	Program string // path of anka; "" = the installed one
	Bridge  string // interface of the Mac for NetworkBridge; "" = the mode is refused
	VLANs   []int  // of the bridge, that Spec.VLAN may have; in ascending order
	Logger  *slog.Logger
}

// Driver runs VMs in the library of this user.
type Driver struct {
	opts Options
	host hv.Host // without the license
	cli  program
	log  *slog.Logger

	orderlyTimeout time.Duration // for a guest to shut down

	mu       sync.Mutex             // guards the fields below
	license  hv.License             // as last read
	machines map[string]*machine    // VM ID -> its locks
	images   map[string]*sync.Mutex // name of an image -> held while it is imported
}

var (
	_ hv.Driver    = (*Driver)(nil)
	_ hv.Restarter = (*Driver)(nil)
)

// Directories in Options.Dir.
const (
	vmsDir      = "vms"
	imagesDir   = "images"
	failuresDir = "failures" // logs of failed VMs
)

// Open probes anka and removes images whose archives are gone. VMs continue; what an earlier agent has
// left half-made is made again by Start or removed by Delete.
func Open(ctx context.Context, o Options) (*Driver, error) {
	d := &Driver{
		opts: o, log: o.Logger, orderlyTimeout: time.Minute,
		machines: map[string]*machine{}, images: map[string]*sync.Mutex{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("invalid directory %q of the records of VMs: want an absolute path", o.Dir)
	}
	var err error
	if d.cli, err = newProgram(o.Program); err != nil {
		return nil, err
	}
	if d.host, err = d.probe(ctx); err != nil {
		return nil, fmt.Errorf("hypervisor: %w", err)
	}
	if _, err := d.ReadLicense(ctx); err != nil {
		return nil, fmt.Errorf("hypervisor: %w", err)
	}
	for _, name := range []string{vmsDir, imagesDir, failuresDir} {
		if err := os.MkdirAll(filepath.Join(o.Dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("create directory of records: %w", err)
		}
	}
	if err := d.removeUnusedImages(ctx); err != nil {
		d.log.WarnContext(ctx, "removing unused images failed", "error", err)
	}
	return d, nil
}

// Describe returns the result of the probe, with the license that was read last.
func (d *Driver) Describe(context.Context) (hv.Host, error) {
	h := d.host
	d.mu.Lock()
	h.LicenseKind, h.LicenseExpires = d.license.Kind, d.license.Expires
	d.mu.Unlock()
	h.Capabilities, h.VLANs = slices.Clone(h.Capabilities), slices.Clone(h.VLANs)
	return h, nil
}

// List returns the VMs of this driver, ordered by ID.
func (d *Driver) List(ctx context.Context) ([]hv.VM, error) {
	entries, err := os.ReadDir(filepath.Join(d.opts.Dir, vmsDir))
	if err != nil {
		return nil, fmt.Errorf("anka: list VMs: %w", err)
	}
	vms := []hv.VM{}
	for _, e := range entries {
		id, isRecord := strings.CutSuffix(e.Name(), recordSuffix)
		if !isRecord || !hv.ValidID(id) {
			continue
		}
		vm, err := d.machine(id).describe(ctx)
		switch {
		case errors.Is(err, hv.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			vms = append(vms, vm)
		}
	}
	slices.SortFunc(vms, func(a, b hv.VM) int { return strings.Compare(a.ID, b.ID) })
	return vms, nil
}

// Get returns one VM.
func (d *Driver) Get(ctx context.Context, id string) (hv.VM, error) {
	if !hv.ValidID(id) {
		return hv.VM{}, notFoundError(id)
	}
	return d.machine(id).describe(ctx)
}

func notFoundError(id string) error { return fmt.Errorf("anka: %w: %s", hv.ErrNotFound, id) }

// machine returns the VM with an ID, which need not exist.
func (d *Driver) machine(id string) *machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.machines[id]
	if m == nil {
		m = &machine{driver: d, id: id, cli: d.cli, transcript: &transcript{}}
		m.cli.transcript = m.transcript
		d.machines[id] = m
	}
	return m
}

// forget drops the locks of a VM that was removed.
func (d *Driver) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.machines, id)
}
