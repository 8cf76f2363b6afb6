package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	firstVNCPort = 5900
	lastVNCPort  = firstHostPort - 1

	// maxScreens bounds the connections to one screen, those that have not logged
	// in yet and those that have, each for itself. QEMU sees to that: it drops
	// the oldest one that has not logged in.
	maxScreens = 8
	screenTime = 10 * time.Second      // for QEMU to take a connection over
	screenRest = 50 * time.Millisecond // between two: guesses of a password take their time
	screenFd   = "screen"              // what QEMU calls a connection until it is taken over
)

// listenScreen opens the port of a VM's screen on the host. QEMU itself listens
// nowhere. It answers nil when no screen is asked for.
func (d *Driver) listenScreen(ctx context.Context, id string, v *hv.VNC) (net.Listener, error) {
	if v == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.Port != 0 {
		l, err := listenVNC(ctx, v.Port)
		if err != nil {
			return nil, fmt.Errorf("VNC port %d of the host cannot be used; leave it out or ask for another: %w", v.Port, err)
		}
		d.reserved[v.Port] = id
		return l, nil
	}
	for port := firstVNCPort; port <= lastVNCPort; port++ {
		if d.reserved[port] != "" {
			continue
		}
		if l, err := listenVNC(ctx, port); err == nil {
			d.reserved[port] = id
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free VNC port from %d to %d", firstVNCPort, lastVNCPort)
}

func listenVNC(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp4", net.JoinHostPort(anyIPv4, strconv.Itoa(port)))
}

// portOf answers the port of a listener, 0 for none.
func portOf(l net.Listener) int {
	if l == nil {
		return 0
	}
	return l.Addr().(*net.TCPAddr).Port
}

// showScreen takes connections to the screen until the run or the driver ends.
// l is nil when an agent before this one had opened the port: whoever has taken
// it meanwhile is waited for.
func (r *run) showScreen(quit context.Context, l net.Listener, port int) {
	ctx, cancel := context.WithCancel(quit)
	defer cancel()
	go func() {
		select {
		case <-r.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	for warned := false; l == nil; {
		var err error
		if l, err = listenVNC(ctx, port); err == nil {
			break
		}
		if !warned && ctx.Err() == nil {
			r.m.d.log.Warn("cannot listen for VNC again; still trying", "vm", r.m.id, "port", port, "error", err)
			warned = true
		}
		if pause(ctx, time.Second) != nil {
			return
		}
	}
	r.mu.Lock()
	r.screen = l
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
			err = r.handOver(ctx, c)
		}
		if err != nil && ctx.Err() == nil {
			r.m.d.log.Warn("a VNC connection came to nothing", "vm", r.m.id, "error", err)
		}
		_ = pause(ctx, screenRest)
	}
}

// closeScreen gives the port of the screen back.
func (r *run) closeScreen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.screen != nil {
		_ = r.screen.Close()
	}
}

// handOver gives a connection to QEMU, which asks for the password.
func (r *run) handOver(ctx context.Context, c net.Conn) error {
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, screenTime)
	defer cancel()
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("it is no TCP connection")
	}
	f, err := tcp.File()
	if err != nil {
		return err
	}
	defer f.Close()
	q, err := r.monitorWithin(ctx)
	if err != nil {
		return err
	}
	if err := q.pass(ctx, "getfd", map[string]string{"fdname": screenFd}, f); err != nil {
		return err
	}
	return q.call(ctx, "add_client", map[string]any{"protocol": "vnc", "fdname": screenFd, "skipauth": false}, nil)
}

// equip tells QEMU what no command line should or can: the screen's password,
// without which it lets nobody in, and that the cable is out. It is done on
// every connection to the monitor.
func (r *run) equip(ctx context.Context, q *qmpConn) {
	s := r.m.spec()
	var err error
	if s.VNC != nil {
		err = q.call(ctx, "set_password", map[string]string{"protocol": "vnc", "password": s.VNC.Password}, nil)
	}
	if s.Network == hv.NetworkDisconnected {
		err = errors.Join(err, q.call(ctx, "set_link", map[string]any{"name": "nic0", "up": false}, nil))
	}
	if err != nil && ctx.Err() == nil {
		r.m.d.log.Warn("a VM is not equipped as it should be", "vm", r.m.id, "error", err)
	}
}
