// Package forward holds the host ports of one VM in a process that outlives the node agent: it
// accepts connections to the VM's port rules and to its screen and joins each to the guest.
//
// It does not know the hypervisor: a Dialer reaches the guest. It forwards TCP only, and it is not
// for hypervisors that forward ports themselves.
//
// Invariant: at most one forwarder runs for a VM's directory, it is the process that its ports file
// names, and it ends with its VM.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

const (
	pollInterval = time.Second // between two looks at the VM
	maxLogBytes  = 1 << 20     // of the log file, which is emptied when it is longer
)

// GuestConn is a connection to a port of the guest. A *net.TCPConn is one, and is copied by the
// kernel where it can.
type GuestConn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Dialer reaches one VM. Its methods may be called from many goroutines and have to end with ctx.
type Dialer interface {
	// DialGuest connects to a TCP port of the guest.
	DialGuest(ctx context.Context, port int) (GuestConn, error)
	// DialScreen connects to the VNC server of the VM and returns its password; "" is none.
	DialScreen(ctx context.Context) (c net.Conn, password string, err error)
	// Running reports whether the VM runs. Once it does not, the forwarder ends.
	Running() bool
}

// Main is the forwarder process of the VM in dir. It opens the ports of its Config, records them,
// and returns when the VM has ended, the process gets SIGTERM or SIGINT, or ctx ends, which are no
// errors. An error before the ports are open is also in the ports file.
func Main(ctx context.Context, dir string, d Dialer, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	lock, err := takeLock(ctx, dir)
	if err != nil {
		return fmt.Errorf("forward ports: %w", err)
	}
	defer lock.Close()
	s, ports, err := open(ctx, dir, d, log)
	if err != nil {
		ports.Error = err.Error()
	}
	if werr := writeJSON(dir, portsFile, ports); werr != nil {
		err = errors.Join(err, werr)
	}
	if err != nil {
		s.closeListeners()
		return fmt.Errorf("forward ports: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		awaitEnd(ctx, dir, d)
	}()
	s.serve(ctx)
	return nil
}

// open reads the settings and opens all ports.
func open(ctx context.Context, dir string, d Dialer, log *slog.Logger) (*server, Ports, error) {
	s := newServer(d, log, maxGuestConns)
	self, err := cliproc.Find(os.Getpid())
	ports := Ports{Process: self}
	if err != nil {
		return s, ports, err
	}
	c, err := readConfig(dir)
	if err != nil {
		return s, ports, err
	}
	if c.VNC != nil {
		if s.viewerPassword, err = readPassword(dir, c.VNC.PasswordFile); err != nil {
			return s, ports, err
		}
	}
	err = s.listen(ctx, c, &ports)
	return s, ports, err
}

// awaitEnd returns when the VM has ended or ctx has. It also keeps the log file short, to which
// this process appends.
func awaitEnd(ctx context.Context, dir string, d Dialer) {
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	for d.Running() {
		name := filepath.Join(dir, logFile)
		if info, err := os.Stat(name); err == nil && info.Size() > maxLogBytes {
			_ = os.Truncate(name, 0)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// serve accepts connections until ctx ends, and returns when all of them are closed.
func (s *server) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, s.closeListeners)
	defer stop()
	var accepting sync.WaitGroup
	for _, l := range s.listeners {
		accepting.Go(func() { s.accept(ctx, l) })
	}
	<-ctx.Done() // also without ports
	accepting.Wait()
	s.open.Wait()
}
