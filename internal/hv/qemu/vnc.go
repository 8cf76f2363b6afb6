package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	loopbackIPv4 = "127.0.0.1"

	// maxVNCConnections limits the connections to one screen, separately for those that have not logged in
	// yet and those that have. QEMU enforces that: it drops the oldest one that has not logged in.
	maxVNCConnections = 8
	vncAcceptTimeout  = 10 * time.Second      // for QEMU to accept a connection
	vncAcceptPause    = 50 * time.Millisecond // between two: slows down guesses of a password
	vncFdName         = "screen"              // QEMU's name of a connection until it is accepted
)

// listenScreen opens the port of a VM's screen on the host. QEMU itself listens nowhere. It returns
// nil when no screen is requested.
func (d *Driver) listenScreen(ctx context.Context, id string, v *hv.VNC) (net.Listener, error) {
	if v == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.Port != 0 {
		l, err := d.listenVNC(ctx, v.Port)
		if err != nil {
			return nil, hv.TakenVNCPortError(v.Port, err)
		}
		d.reservedPorts[v.Port] = id
		return l, nil
	}
	for port := hv.FirstVNCPort; port <= hv.LastVNCPort; port++ {
		if d.reservedPorts[port] != "" {
			continue
		}
		if l, err := d.listenVNC(ctx, port); err == nil {
			d.reservedPorts[port] = id
			return l, nil
		}
	}
	return nil, hv.NoVNCPortError()
}

// listenVNC listens on loopback unless the options have another address.
func (d *Driver) listenVNC(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp4", net.JoinHostPort(cmp.Or(d.opts.VNCListen, loopbackIPv4), strconv.Itoa(port)))
}

// listenerPort returns the port of a listener, 0 for none.
func listenerPort(l net.Listener) int {
	if l == nil {
		return 0
	}
	return l.Addr().(*net.TCPAddr).Port
}

// serveVNC accepts connections to the screen until the run or the driver ends. l is nil when an
// earlier agent had opened the port: if another process has taken the port since then, serveVNC
// retries until it is free.
func (r *run) serveVNC(quit context.Context, l net.Listener, port int) {
	ctx, cancel := context.WithCancel(quit)
	defer cancel()
	go func() {
		select {
		case <-r.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	for warned := false; l == nil; {
		var err error
		if l, err = r.machine.driver.listenVNC(ctx, port); err == nil {
			break
		}
		if !warned && ctx.Err() == nil {
			r.machine.driver.log.Warn("listening for VNC connections failed; retrying", "vm", r.machine.id, "port",
				port, "error", err)
			warned = true
		}
		if sleep(ctx, time.Second) != nil {
			return
		}
	}
	r.mu.Lock()
	r.vncListener = l
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err == nil {
			err = r.passToQEMU(ctx, c)
		}
		if err != nil && ctx.Err() == nil {
			r.machine.driver.log.Warn("VNC connection failed", "vm", r.machine.id, "error", err)
		}
		_ = sleep(ctx, vncAcceptPause)
	}
}

// closeVNC releases the port of the screen.
func (r *run) closeVNC() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vncListener != nil {
		_ = r.vncListener.Close()
	}
}

// passToQEMU passes a connection to QEMU, which asks for the password.
func (r *run) passToQEMU(ctx context.Context, c net.Conn) error {
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, vncAcceptTimeout)
	defer cancel()
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("the VNC connection is not a TCP connection")
	}
	f, err := tcp.File()
	if err != nil {
		return err
	}
	defer f.Close()
	return r.addViewer(ctx, f, askPassword)
}

// vncAccess reports whether a viewer of the screen may skip the password.
type vncAccess bool

const (
	askPassword  vncAccess = false
	skipPassword vncAccess = true
)

// addViewer passes the socket of a viewer to QEMU, one at a time: the name in the QMP command
// refers to the socket that was passed last.
func (r *run) addViewer(ctx context.Context, socket *os.File, a vncAccess) error {
	q, err := r.awaitMonitor(ctx)
	if err != nil {
		return err
	}
	r.viewerMu.Lock()
	defer r.viewerMu.Unlock()
	if err := q.callWithFile(ctx, "getfd", map[string]string{"fdname": vncFdName}, socket); err != nil {
		return err
	}
	return q.call(ctx, "add_client", map[string]any{"protocol": "vnc", "fdname": vncFdName, "skipauth": bool(a)}, nil)
}

var _ hv.ConsoleDriver = (*Driver)(nil)

// Screen returns a viewer's end of a socket pair, of which QEMU has the other end.
func (d *Driver) Screen(ctx context.Context, id string) (_ net.Conn, err error) {
	m, r, err := d.runningMachine(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, vncAcceptTimeout)
	defer cancel()
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("qemu: open console of VM %s: %w", id, err)
	}
	defer theirs.Close()
	a := skipPassword
	if m.spec().VNC != nil {
		a = askPassword
	}
	if err := r.addViewer(ctx, theirs, a); err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("qemu: open console of VM %s: %w", id, err)
	}
	return ours, nil
}

// socketPair returns the two ends of a connection; theirs is for another process.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // nothing is started that would inherit them
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(pair[1]), "viewer")
	mine := os.NewFile(uintptr(pair[0]), "viewer")
	defer mine.Close()
	if ours, err = net.FileConn(mine); err != nil { // which duplicates the descriptor
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// configureMonitor sets what no command line should or can: the screen's password, without which
// QEMU rejects all viewers, and the disconnected cable. It runs on every connection to the monitor.
func (r *run) configureMonitor(ctx context.Context, q *qmpConn) {
	s := r.machine.spec()
	var err error
	if s.VNC != nil {
		err = q.call(ctx, "set_password", map[string]string{"protocol": "vnc", "password": s.VNC.Password}, nil)
	}
	if s.Network == hv.NetworkDisconnected {
		err = errors.Join(err, q.call(ctx, "set_link", map[string]any{"name": "nic0", "up": false}, nil))
	}
	if err != nil && ctx.Err() == nil {
		r.machine.driver.log.Warn("setting up the monitor of a VM failed", "vm", r.machine.id, "error", err)
	}
}
