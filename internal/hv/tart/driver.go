// Package tart is the hypervisor driver for macOS guests on Macs with Apple silicon. It builds the
// directories of its VMs itself, in a separate TART_HOME, and calls the command-line program tart
// to run, stop and reach them. Source: tart 2.28 to 2.35.
//
// It does not install tart, does not pull from or push to tart's registries, runs no Linux guests,
// and does not save the memory of guests. It was tried against an imitation of tart only, not on a Mac.
//
// Invariant: whether a VM runs is read from the lock that tart holds on the VM's configuration, so
// that it is right whatever was killed.
package tart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/hv"
)

// Options of a Driver.
type Options struct {
	Home          string      // absolute; TART_HOME of the driver, on the volume of the template cache
	FailureLogDir string      // "" = failures in Home
	Program       string      // path of tart; "" = FindProgram
	LeasesFile    string      // "" = DefaultLeasesFile
	Bridge        string      // interface of the Mac for NetworkBridge; "" = the mode is refused
	GuestUser     string      // of the guest's SSH server; "" = "admin"
	GuestPassword auth.Secret // "" = "admin"
	VNCListen     string      // address of the host for screens with a password; "" = loopback
	Forwarder     []string    // the program that calls Forward, and arguments before those of Forward
	Logger        *slog.Logger
}

// Driver runs the VMs of one TART_HOME.
type Driver struct {
	opts Options
	host hv.Host
	cli  program
	log  *slog.Logger

	limit guestLimit

	background sync.WaitGroup // restarts of forwarders

	mu       sync.Mutex          // guards the field below
	machines map[string]*machine // VM ID -> its locks; one that was ever asked for
}

var (
	_ hv.Driver = (*Driver)(nil)
	_ io.Closer = (*Driver)(nil)
)

// Close waits for what the driver does in the background and closes its connections to guests. VMs and
// forwarders continue.
func (d *Driver) Close() error {
	d.background.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.machines {
		m.closeSSH()
	}
	return nil
}

// Directories in Home.
const (
	vmsDir     = "vms"
	stagingDir = "buildyard-new"     // VM directories that are being made; tart cleans its own tmp/
	removedDir = "buildyard-removed" // VM directories that are being removed
	failureDir = "buildyard-failures"
)

// Open probes tart and finishes what an earlier agent did not: it removes directories that were being
// made or removed. VMs continue.
func Open(ctx context.Context, o Options) (*Driver, error) {
	d := &Driver{opts: o, log: o.Logger, machines: map[string]*machine{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	for _, s := range []struct {
		setting *string
		value   string
	}{
		{&d.opts.FailureLogDir, filepath.Join(o.Home, failureDir)},
		{&d.opts.LeasesFile, DefaultLeasesFile},
		{&d.opts.VNCListen, loopback},
		{&d.opts.GuestUser, "admin"},
	} {
		if *s.setting == "" {
			*s.setting = s.value
		}
	}
	if d.opts.GuestPassword.Reveal() == "" {
		d.opts.GuestPassword = auth.NewSecret("admin")
	}
	if !filepath.IsAbs(o.Home) {
		return nil, fmt.Errorf("invalid directory %q of tart's VMs: want an absolute path", o.Home)
	}
	var err error
	if d.cli, err = newProgram(d.opts); err != nil {
		return nil, err
	}
	if d.host, err = d.probe(ctx); err != nil {
		return nil, err
	}
	for _, name := range []string{vmsDir, stagingDir, removedDir} {
		if err := os.MkdirAll(filepath.Join(o.Home, name), 0o700); err != nil {
			return nil, fmt.Errorf("create directory of tart's VMs: %w", err)
		}
	}
	for _, name := range []string{stagingDir, removedDir} {
		if err := removeContents(filepath.Join(o.Home, name)); err != nil {
			return nil, fmt.Errorf("remove unfinished VM directories: %w", err)
		}
	}
	return d, nil
}

// removeContents removes everything in a directory.
func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// Describe returns the result of the probe.
func (d *Driver) Describe(context.Context) (hv.Host, error) {
	h := d.host
	h.Capabilities = slices.Clone(h.Capabilities)
	return h, nil
}

// List returns the VMs of this driver, ordered by ID. VMs that other programs made in its TART_HOME
// have no record and are left out.
func (d *Driver) List(context.Context) ([]hv.VM, error) {
	entries, err := os.ReadDir(filepath.Join(d.opts.Home, vmsDir))
	if err != nil {
		return nil, fmt.Errorf("tart: list VMs: %w", err)
	}
	vms := []hv.VM{}
	for _, e := range entries {
		if !hv.ValidID(e.Name()) {
			continue
		}
		m := d.machine(e.Name())
		vm, err := m.describe()
		switch {
		case errors.Is(err, hv.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case vm.Status == hv.Running:
			d.background.Go(m.maintain)
		}
		vms = append(vms, vm)
	}
	slices.SortFunc(vms, func(a, b hv.VM) int { return strings.Compare(a.ID, b.ID) })
	return vms, nil
}

// Get returns one VM.
func (d *Driver) Get(_ context.Context, id string) (hv.VM, error) {
	if !hv.ValidID(id) {
		return hv.VM{}, fmt.Errorf("tart: %w: %s", hv.ErrNotFound, id)
	}
	if !exists(filepath.Join(d.opts.Home, vmsDir, id)) {
		return hv.VM{}, fmt.Errorf("tart: %w: %s", hv.ErrNotFound, id)
	}
	return d.machine(id).describe()
}

// machine returns the VM with an ID, which need not exist.
func (d *Driver) machine(id string) *machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.machines[id]
	if m == nil {
		m = &machine{driver: d, id: id, dir: filepath.Join(d.opts.Home, vmsDir, id)}
		if r, err := m.readRecord(); err == nil {
			m.useSSH.Store(r.BySSH) // as an earlier agent has found out
		}
		d.machines[id] = m
	}
	return m
}

// forget drops the locks of a VM that was removed, and its connection.
func (d *Driver) forget(m *machine) {
	m.closeSSH()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.machines, m.id)
}

// Delete ends a VM by force and removes its directory.
func (d *Driver) Delete(ctx context.Context, id string) error {
	if !hv.ValidID(id) {
		return nil
	}
	m := d.machine(id)
	m.busy.Lock()
	defer m.busy.Unlock()
	if err := m.end(ctx, hv.StopForce); err != nil && !errors.Is(err, hv.ErrNotFound) {
		return err
	}
	if err := m.stopForwarder(ctx); err != nil {
		return err
	}
	gone := filepath.Join(d.opts.Home, removedDir, id+"-"+newSuffix())
	switch err := os.Rename(m.dir, gone); {
	case errors.Is(err, fs.ErrNotExist):
		d.forget(m)
		return nil
	case err != nil:
		return fmt.Errorf("tart: delete VM %s: %w", id, err)
	}
	d.forget(m)
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("tart: delete VM %s: %w", id, err)
	}
	return nil
}

// recordTime is the time for records: without a monotonic part, in UTC.
func recordTime() time.Time { return time.Now().UTC().Round(0) }
