package tart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/forward"
)

const (
	passwordFile = "vnc-password" // of Spec.VNC
	dialTimeout  = 5 * time.Second
	loopback     = "127.0.0.1"

	forwarderDelay = 10 * time.Second // between two restarts of a VM's forwarder
)

// startForwarder starts the process that holds the ports of the VM, if it has any.
func (m *machine) startForwarder(ctx context.Context, s hv.Spec) error {
	if len(s.Ports) == 0 && s.VNC == nil {
		return nil
	}
	c := forward.Config{Rules: s.Ports}
	if s.VNC != nil {
		c.VNC = &forward.VNCConfig{Listen: m.driver.opts.VNCListen, Port: s.VNC.Port, PasswordFile: passwordFile}
		err := os.WriteFile(filepath.Join(m.dir, passwordFile), []byte(s.VNC.Password), 0o600)
		if err != nil {
			return fmt.Errorf("write VNC password: %w", err)
		}
	}
	if err := forward.WriteConfig(m.dir, c); err != nil {
		return err
	}
	o := m.driver.opts
	_, err := forward.Start(ctx, forward.StartOptions{
		Dir: m.dir, Env: m.driver.cli.env,
		Program: append(slices.Clone(o.Forwarder), o.Home, m.driver.cli.path, o.LeasesFile, m.id),
	})
	return err
}

// maintain keeps the log of a VM that runs short, and its forwarder running.
func (m *machine) maintain() {
	if err := trimRunLog(filepath.Join(m.dir, runLogFile)); err != nil {
		m.driver.log.Warn("shortening the log of a VM failed", "vm", m.id, "error", err)
	}
	m.restartForwarder()
}

// restartForwarder starts the forwarder of a VM whose forwarder was killed, with the same ports.
func (m *machine) restartForwarder() {
	if !m.busy.TryLock() {
		return // a call is changing the VM, or another one restarts it
	}
	defer m.busy.Unlock()
	r, err := m.recordNow()
	if err != nil || !r.Ready || r.StopRequested || len(r.Spec.Ports) == 0 && r.Spec.VNC == nil {
		return
	}
	if _, running, err := m.isRunning(r); err != nil || !running {
		return
	}
	last, err := forward.ReadPorts(m.dir)
	if !errors.Is(err, forward.ErrNotRunning) {
		return
	}
	s := r.Spec.Clone()
	if len(last.Rules) == len(s.Ports) {
		s.Ports = last.Rules
	}
	if s.VNC != nil {
		s.VNC.Port = last.VNCPort
	}
	if time.Now().Before(m.nextForwarder) {
		return
	}
	m.nextForwarder = time.Now().Add(forwarderDelay)
	m.driver.log.Warn("the port forwarder of a VM has ended and is started again", "vm", m.id)
	if err := m.startForwarder(context.Background(), s); err != nil {
		m.driver.log.Error("starting the port forwarder of a VM failed", "vm", m.id, "error", err)
	}
}

// stopForwarder ends that process, so that its ports are free.
func (m *machine) stopForwarder(ctx context.Context) error {
	if _, err := os.Stat(m.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return forward.Stop(context.WithoutCancel(ctx), m.dir)
}

// forwardedPorts returns the ports of a VM that runs: those in effect, otherwise those of its spec.
func (m *machine) forwardedPorts(r record) (rules []hv.PortRule, vncPort int) {
	ports, err := forward.ReadPorts(m.dir)
	if err != nil {
		return slices.Clone(r.Spec.Ports), 0
	}
	return ports.Rules, ports.VNCPort
}

// ForwarderArgs is the number of arguments of Forward.
const ForwarderArgs = 4

// Forward is the process that the driver starts as Options.Forwarder with these arguments: Home, the
// path of tart, the file of leases and the ID of a VM. It returns when the VM has ended.
func Forward(ctx context.Context, args []string, log *slog.Logger) error {
	if len(args) != ForwarderArgs || !hv.ValidID(args[3]) {
		return fmt.Errorf("invalid arguments %q: want the directory of tart, its program, the file of DHCP leases "+
			"and the ID of a VM; only the node agent starts this command", args)
	}
	d := &Driver{
		opts: Options{Home: args[0], Program: args[1], LeasesFile: args[2]}, log: log, machines: map[string]*machine{},
	}
	var err error
	if d.cli, err = newProgram(d.opts); err != nil {
		return err
	}
	m := d.machine(args[3])
	return forward.Main(ctx, m.dir, dialer{m}, log)
}

// dialer reaches a VM for its forwarder.
type dialer struct{ *machine }

var _ forward.Dialer = dialer{}

// Running reports whether the VM runs; also when that cannot be told.
func (d dialer) Running() bool {
	r, err := d.recordNow()
	if errors.Is(err, hv.ErrNotFound) {
		return false
	}
	if err != nil {
		return true
	}
	_, running, err := d.isRunning(r)
	return running || err != nil
}

// DialScreen connects to tart's VNC server.
func (d dialer) DialScreen(ctx context.Context) (net.Conn, string, error) { return d.dialScreen(ctx) }

// DialGuest connects to a port of the guest: directly, or through its agent where macOS keeps this
// process off the local network or the guest has no address that the host knows.
func (d dialer) DialGuest(ctx context.Context, port int) (forward.GuestConn, error) {
	r, err := d.recordNow()
	if err != nil {
		return nil, err
	}
	address := d.driver.leasedAddress(r.Spec.MAC)
	if !address.IsValid() {
		return d.dialByAgent(ctx, port)
	}
	direct := net.Dialer{Timeout: dialTimeout}
	c, err := direct.DialContext(ctx, "tcp4", net.JoinHostPort(address.String(), strconv.Itoa(port)))
	switch {
	case err == nil:
		return c.(*net.TCPConn), nil
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), os.IsTimeout(err):
		return d.dialByAgent(ctx, port)
	}
	return nil, err
}
