// Package qemu runs real VMs: one QEMU process each, steered through its
// machine protocol (QMP) and the guest agent (QGA) over unix sockets.
//
// It is not a general QEMU front end: one machine layout, unprivileged,
// sandboxed, and QEMU gets its disks and sockets as open files, never as paths.
//
// Invariant: a QEMU process has its VM's lock file locked from before it exists until it is gone. A
// VM whose lock is free does not run, and one whose lock is taken is found again by its machine
// UUID, even if the agent or QEMU was killed in between.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// Options configure a Driver.
type Options struct {
	// Dir contains one directory per VM. Only one Driver may use it at a time.
	Dir string
	// RunAs is the user QEMU runs as when this process is root: a name, by default "buildyard"
	// where that user exists, otherwise a number that nothing else uses. The firewall keeps it off
	// the host's own services: do not name a user that runs anything else. Without root it must be
	// empty; QEMU then runs as this user.
	RunAs string
	// RequireIsolation refuses to start a VM that could reach services of this host. Without it,
	// such VMs are started and a warning is logged.
	RequireIsolation bool
	// CgroupParent is a directory of a cgroup v2 tree in which each VM gets a cgroup. By default
	// the driver creates one at the top of the host's tree, which needs root. A configured one must
	// be delegated: this process may write to it and to what it shares with its own cgroup, and no
	// process is in it.
	CgroupParent string
	// Binary is the QEMU program, by default the one for guests of this host's architecture. Programs
	// whose name contains aarch64 are for arm64, all others for amd64.
	Binary string
	// Accelerator overrides the probe: "kvm", "hvf" or "tcg".
	Accelerator string
	// StopTimeout limits an orderly stop before it is forced; 0 = 30 s.
	StopTimeout time.Duration
	// Bridge is the bridge of this host that guests in the network mode "bridge"
	// are put on. Empty: that mode is refused. It needs root.
	Bridge string
	// VLANs are those that guests may be in: the bridge of this host for each ID, or "" for one
	// that the driver creates over Uplink while guests use it. It needs root.
	VLANs map[int]string
	// Uplink is the network device of this host that carries the VLANs, as a rule a
	// network card that the switch sends tagged frames to.
	Uplink string
	// VNCListen is the IPv4 address of this host on which the screens of VMs are served; "" =
	// 127.0.0.1. Consoles of the portal do not need it.
	VNCListen string
	// UnsafeCache ignores flushes of the guest: data is lost when the host crashes. It is for tests
	// that do not measure the disk.
	UnsafeCache bool
	// FailureLogDir is a directory for the logs of failed starts: the newest 50, at most 8 MiB. ""
	// means a directory named "failed" next to Dir.
	FailureLogDir string
	// Logger receives what no caller sees: adoption, processes that ended. nil = none.
	Logger *slog.Logger

	nftProgram       string        // program of nftables; "" = looked for
	firewallInterval time.Duration // how often the firewall's rules are restored; 0 = 30 s

	vlanTagger vlanTagger // nil = newVLANLink

	allowWeakCgroups bool // create cgroups also where they cannot have limits
}

// Driver is the QEMU driver of one directory. Close releases it.
type Driver struct {
	opts           Options
	log            *slog.Logger
	qemuCredential *syscall.Credential // nil = as this process
	platform       platform            // of all VMs
	host           hv.Host
	usb            usbHost

	vlanMu sync.Mutex // held while bridges of VLANs are made, joined and removed

	firewall    *firewall // nil if not available
	firewallErr error     // and why that is so
	cgroups     *cgroups  // nil if not available

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	watchers sync.WaitGroup // the watchers of running VMs

	mu            sync.Mutex          // guards the fields below
	machines      map[string]*machine // VM id -> machine
	reservedPorts map[int]string      // host port -> VM id, from choice to the end of that run

	// stepHook is called before each durable step of a start, a save or a removal; tests kill the
	// process there.
	stepHook func(name string)
}

var _ hv.Driver = (*Driver)(nil)

// Open probes the host, finds the VMs of earlier agents below opt.Dir and
// connects to those that run.
func Open(ctx context.Context, opt Options) (*Driver, error) {
	p := platformOf(opt.Binary, runtime.GOARCH, isInstalled)
	if opt.Binary == "" {
		opt.Binary = p.binary
	}
	if opt.StopTimeout == 0 {
		opt.StopTimeout = 30 * time.Second
	}
	if opt.firewallInterval == 0 {
		opt.firewallInterval = 30 * time.Second
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.vlanTagger == nil {
		opt.vlanTagger = newVLANLink
	}
	d := &Driver{
		opts: opt, log: opt.Logger, platform: p, usb: linuxUSB,
		machines: map[string]*machine{}, reservedPorts: map[int]string{},
		stepHook: func(string) {},
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := d.open(ctx); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("qemu: %w", err)
	}
	return d, nil
}

func (d *Driver) open(ctx context.Context) (err error) {
	if d.opts.Dir, err = filepath.Abs(d.opts.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.opts.Dir, 0o700); err != nil {
		return err
	}
	if d.opts.FailureLogDir == "" {
		d.opts.FailureLogDir = filepath.Join(filepath.Dir(d.opts.Dir), "failed")
	}
	if d.qemuCredential, err = credential(d.opts.RunAs); err != nil {
		return err
	}
	if d.host, err = d.probe(ctx); err != nil {
		return err
	}
	d.detectIsolation(ctx)
	d.host.VLANs = d.findVLANs(ctx)
	return d.adoptAll(ctx)
}

// adoptAll loads every VM directory and removes what an interrupted creation or removal left behind.
func (d *Driver) adoptAll(ctx context.Context) error {
	entries, err := os.ReadDir(d.opts.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(d.opts.Dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		case e.IsDir() && hv.ValidID(e.Name()):
			if err := d.adoptVM(ctx, e.Name()); err != nil {
				return fmt.Errorf("VM %s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

// Close ends the connections. The VMs continue. A closed driver starts nothing and waits for nothing.
func (d *Driver) Close() error {
	d.cancel()
	d.watchers.Wait()
	return nil
}

// Describe returns the result of the probe at Open.
func (d *Driver) Describe(context.Context) (hv.Host, error) {
	h := d.host
	h.Capabilities, h.VLANs = slices.Clone(h.Capabilities), slices.Clone(h.VLANs)
	return h, nil
}

// List returns every VM, ordered by ID.
func (d *Driver) List(context.Context) ([]hv.VM, error) {
	d.mu.Lock()
	all := make([]*machine, 0, len(d.machines))
	for _, m := range d.machines {
		all = append(all, m)
	}
	d.mu.Unlock()
	out := make([]hv.VM, 0, len(all))
	for _, m := range all {
		m.trimLog()
		out = append(out, m.describeVM())
	}
	slices.SortFunc(out, func(a, b hv.VM) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Get returns one VM.
func (d *Driver) Get(_ context.Context, id string) (hv.VM, error) {
	m, err := d.findMachine(id)
	if err != nil {
		return hv.VM{}, err
	}
	return m.describeVM(), nil
}

func (d *Driver) findMachine(id string) (*machine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.machines[id]
	if !ok {
		return nil, fmt.Errorf("qemu: %w: %s", hv.ErrNotFound, id)
	}
	return m, nil
}

// isRunning reports whether a VM with this ID runs.
func (d *Driver) isRunning(id string) bool {
	m, err := d.findMachine(id)
	return err == nil && m.currentRun() != nil
}

// runningMachine returns a machine and the process that runs it.
func (d *Driver) runningMachine(id string) (*machine, *run, error) {
	m, err := d.findMachine(id)
	if err != nil {
		return nil, nil, err
	}
	r := m.currentRun()
	if r == nil {
		return nil, nil, fmt.Errorf("qemu: VM %s: %w", id, hv.ErrNotRunning)
	}
	return m, r, nil
}

// Delete kills the process and removes the directory. The directory is renamed first, which needs
// no free space on a full disk, so that an interrupted removal is finished at the next Open.
func (d *Driver) Delete(ctx context.Context, id string) error {
	m, err := d.findMachine(id)
	if errors.Is(err, hv.ErrNotFound) {
		return nil
	}
	m.cancelForDelete()
	if r := m.currentRun(); r != nil {
		if err := m.killRun(ctx, r, runEnd{StopRequested: true}); err != nil {
			return err
		}
	}
	if err := m.saveLock.lock(ctx); err != nil {
		return fmt.Errorf("qemu: delete VM %s: %w", id, err)
	}
	defer m.saveLock.unlock()
	trash := filepath.Join(d.opts.Dir, tempPrefix+"deleted-"+id)
	if err := os.RemoveAll(trash); err != nil { // of an earlier VM of this ID
		return fmt.Errorf("qemu: delete VM %s: %w", id, err)
	}
	d.stepHook("delete: move")
	err = os.Rename(m.dir, trash)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("qemu: delete VM %s: %w", id, err)
	}
	d.mu.Lock()
	delete(d.machines, id)
	d.mu.Unlock()
	d.stepHook("delete: remove")
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("qemu: delete VM %s: %w", id, err)
	}
	return nil
}

// addCapability adds an ability that was found while the driver was opened.
func (d *Driver) addCapability(c hv.Capability) {
	d.host.Capabilities = append(d.host.Capabilities, c)
	slices.Sort(d.host.Capabilities)
}

func (d *Driver) baseCapabilities() []hv.Capability {
	out := append(hv.PCCapabilities(), hv.CanForward, hv.CanBoot, hv.CanPersist, hv.CanSave, hv.CanSuspend,
		hv.CanRestart)
	out = append(out, hv.CanResize, hv.CanVNC, hv.CanConsole)
	if runtime.GOOS == "linux" {
		out = append(out, hv.CanSandbox, hv.CanUSB)
	}
	if isBridge(d.opts.Bridge) && os.Geteuid() == 0 {
		out = append(out, hv.CanBridge)
	}
	out = slices.DeleteFunc(out, func(c hv.Capability) bool { return slices.Contains(d.platform.lacks, c) })
	slices.Sort(out)
	return out
}

var errClosed = errors.New("the hypervisor driver is closed")
