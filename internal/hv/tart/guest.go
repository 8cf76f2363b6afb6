package tart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
	"github.com/buildyard/buildyard/internal/hv/guestssh"
)

const (
	readyTimeout = 5 * time.Second        // for one attempt to reach the guest
	readyDelay   = 100 * time.Millisecond // between the begins of attempts: half of it is added to a start on average
	sshDelay     = time.Second            // the same by SSH, which may take long while the guest boots
	execTimeout  = 30 * 24 * time.Hour
	outputExtra  = 4 << 10 // bytes of an output above hv.MaxOutputBytes: the report of the exit code
	sshPort      = 22
)

var errNoAddress = errors.New("the guest has no address; if DHCP has no free ones, shorten its lease time")

// awaitReady waits until the guest runs commands and, where the spec asks for it, has an address. SSH is tried
// after a second: by then tart has replaced an address that another VM uses, whose guest must not get the password.
func (m *machine) awaitReady(ctx context.Context, s hv.Spec) error {
	var last error // why the guest was not ready in the last whole attempt
	probe := readyProbe{machine: m, nextSSH: time.Now().Add(sshDelay)}
	for {
		begun := time.Now()
		var err error
		if s.MAC, err = m.recordMAC(s); errors.Is(err, hv.ErrRefused) {
			return err
		}
		if err == nil {
			err = probe.reachGuest(ctx)
		}
		if err == nil && s.WaitsForAddress() && !m.driver.leasedAddress(s.MAC).IsValid() {
			err = errNoAddress
		}
		if err == nil {
			_, err = m.recordMAC(s)
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ended := m.endedEarly(); ended != nil {
			return ended
		}
		if waited := sleep(ctx, readyDelay-time.Since(begun)); waited != nil {
			if errors.Is(waited, context.Canceled) {
				return waited
			}
			return last
		}
	}
}

// endedEarly returns why the VM does not run any more, nil while it runs.
func (m *machine) endedEarly() error {
	r, err := m.recordNow()
	if err != nil {
		return err
	}
	if _, running, err := m.isRunning(r); err != nil || running {
		return err
	}
	return m.runFailure()
}

// recordMAC records the address that the guest has, and returns it. tart assigns another one if a VM of
// another program uses it: an address that was requested is then refused.
func (m *machine) recordMAC(s hv.Spec) (mac string, err error) {
	c, err := ReadBundleConfig(m.dir)
	if err != nil || strings.EqualFold(c.MAC, s.MAC) {
		return s.MAC, err
	}
	if s.MAC != hv.DefaultMAC(s.UUID) {
		return s.MAC, hv.RefusalMACInUse.Error(s.MAC, "of another program")
	}
	mac = strings.ToLower(c.MAC)
	return mac, m.updateRecord(func(r *record) { r.Spec.MAC = mac })
}

// leasedAddress returns the address of the guest with a MAC address; not valid if it has none.
func (d *Driver) leasedAddress(mac string) netip.Addr {
	leases, err := readLeases(d.opts.LeasesFile)
	if err != nil {
		d.log.Warn("reading the addresses of guests failed", "error", err)
	}
	return leasedAddress(leases, mac, time.Now())
}

// runInGuest runs a program in the guest and returns an error unless it succeeds.
func (m *machine) runInGuest(ctx context.Context, args []string) error {
	return m.guestRun(ctx, args, strings.NewReader(""), io.Discard, io.Discard)
}

var _ guestscript.Run = (*machine)(nil).guestRun

// guestRun runs a program in the guest: by tart's guest agent, or by SSH in an image without it.
func (m *machine) guestRun(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if m.useSSH.Load() {
		return m.runBySSH(ctx, args, stdin, stdout, stderr)
	}
	c := m.driver.cli.command(execTimeout, append([]string{"exec", "-i", m.id}, args...)...)
	c.Stdin, c.KeepBytes = stdin, hv.MaxOutputBytes+outputExtra
	r, err := cliproc.Run(ctx, c)
	_, outErr := stdout.Write(r.Stdout)
	_, textErr := stderr.Write(r.Stderr)
	return errors.Join(err, outErr, textErr)
}

// runBySSH runs a program in the guest by its SSH server.
func (m *machine) runBySSH(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	r, err := m.recordNow()
	if err != nil {
		return err
	}
	address := m.driver.leasedAddress(r.Spec.MAC)
	if !address.IsValid() {
		return errNoAddress
	}
	return m.ssh().Run(ctx, netip.AddrPortFrom(address, sshPort).String(),
		guestssh.Command{Args: args, Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// ssh returns the client of the guest's SSH server, which keeps a connection.
func (m *machine) ssh() *guestssh.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sshClient == nil {
		o := m.driver.opts
		m.sshClient = guestssh.New(guestssh.Options{User: o.GuestUser, Password: o.GuestPassword})
	}
	return m.sshClient
}

// closeSSH closes the connection to the guest's SSH server if there is one. Its error has no meaning: the
// guest may be gone.
func (m *machine) closeSSH() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sshClient != nil {
		_ = m.sshClient.Close()
		m.sshClient = nil
	}
}

// readyProbe is the attempts to reach a guest that boots.
type readyProbe struct {
	*machine
	nextSSH time.Time // no attempt by SSH before
	sshErr  error     // of the last attempt by SSH
}

// reachGuest finds out how the guest runs commands: by its agent, otherwise by SSH.
func (p *readyProbe) reachGuest(ctx context.Context) error {
	err := p.tryGuest(ctx, false)
	if err == nil {
		return nil
	}
	if now := time.Now(); !now.Before(p.nextSSH) {
		p.nextSSH = now.Add(sshDelay)
		if p.sshErr = p.tryGuest(ctx, true); p.sshErr == nil {
			return nil
		}
	}
	if p.sshErr == nil {
		return err
	}
	return fmt.Errorf("%w; by SSH: %w", err, p.sshErr)
}

// tryGuest runs a program in the guest in one of the two ways, which is used from then on if it succeeds.
func (m *machine) tryGuest(ctx context.Context, bySSH bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	m.useSSH.Store(bySSH)
	err := m.runInGuest(ctx, []string{"/usr/bin/true"})
	if err != nil {
		m.useSSH.Store(false)
	}
	return err
}

// Exec runs a command in the guest as the image's user.
func (d *Driver) Exec(ctx context.Context, id string, cmd hv.Command) (hv.Result, error) {
	if err := cmd.Validate(); err != nil {
		return hv.Result{}, fmt.Errorf("tart: %w", err)
	}
	vm, err := d.Get(ctx, id)
	if err != nil {
		return hv.Result{}, err
	}
	if vm.Status != hv.Running {
		return hv.Result{}, fmt.Errorf("tart: VM %s: %w", id, hv.ErrNotRunning)
	}
	m := d.machine(id)
	result, err := guestscript.Exec(ctx, m.guestRun, cmd)
	if err == nil {
		return result, nil
	}
	if m.endedEarly() != nil {
		err = errors.Join(hv.ErrNotRunning, err)
	}
	return hv.Result{}, fmt.Errorf("tart: run command in VM %s: %w", id, err)
}

// runLog returns what tart run has printed since the last start.
func (m *machine) runLog() runLog { return readRunLog(filepath.Join(m.dir, runLogFile)) }
