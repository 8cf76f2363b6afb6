package lazyfill

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/nbd"
)

const (
	processTime = 30 * time.Second // for a VM's process to be named in its file
	processPoll = 20 * time.Millisecond
	maxVMs      = 64
	maxConns    = 4 // at the same time, of a socket: QEMU has one, and another one when it connects again
)

// servedVM has the sockets of a VM.
type servedVM struct {
	VM
	listeners map[string]*net.UnixListener // by the name of a disk
	disks     map[string]nbd.Disk          // valid when ready is closed
	ready     chan struct{}
	once      sync.Once
	reads     readClock
}

// readClock measures how long the reads of a VM wait.
type readClock struct {
	mu      sync.Mutex
	running int
	since   time.Time // since when none was answered, while some run
}

func (c *readClock) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running++; c.running == 1 {
		c.since = time.Now()
	}
}

func (c *readClock) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.since = time.Now()
}

// waitsSince returns since when no read was answered; false when none waits.
func (c *readClock) waitsSince() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.running > 0
}

// timedDisk is a disk whose reads are measured.
type timedDisk struct {
	nbd.Disk
	reads *readClock
}

func (d timedDisk) ReadAt(ctx context.Context, p []byte, off int64) (zero bool, err error) {
	d.reads.begin()
	defer d.reads.end()
	return d.Disk.ReadAt(ctx, p, off)
}

// open makes the disks readable.
func (v *servedVM) open(disks map[string]nbd.Disk) {
	v.once.Do(func() {
		v.disks = disks
		close(v.ready)
	})
}

// addVM opens sockets for a VM: those that it had, or new ones. A VM that is served has its sockets.
func (p *process) addVM(ctx context.Context, id string, vm VM) error {
	v := &servedVM{VM: vm, listeners: map[string]*net.UnixListener{}, ready: make(chan struct{})}
	for disk, path := range vm.Sockets {
		l, err := p.listenDisk(path)
		if err != nil {
			v.close()
			return fmt.Errorf("socket of VM %s: %w", id, err)
		}
		v.listeners[disk] = l
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		v.close()
		return errors.New("the process ends")
	}
	p.vms[id] = v
	if p.disks != nil {
		v.open(p.disks)
	}
	for disk, l := range v.listeners {
		p.serving.Go(func() { p.accept(ctx, v, disk, l) })
	}
	return nil
}

// newSockets names a socket for each disk. They have random names: a VM can connect to those that it was told only.
func (p *process) newSockets() (map[string]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disks == nil {
		return nil, errors.New("the disks cannot be read yet")
	}
	sockets := map[string]string{}
	for disk := range p.disks {
		var name [12]byte
		_, _ = rand.Read(name[:])
		sockets[disk] = filepath.Join(p.order.SocketDir, hex.EncodeToString(name[:])+".sock")
	}
	return sockets, nil
}

// listenDisk opens a socket that the group of VMs may connect to.
func (p *process) listenDisk(path string) (*net.UnixListener, error) {
	if filepath.Dir(path) != filepath.Clean(p.order.SocketDir) {
		return nil, fmt.Errorf("%s is not in %s", path, p.order.SocketDir)
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if p.order.SocketGroup >= 0 {
		if err := os.Chown(path, -1, p.order.SocketGroup); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// listenUnix opens a socket in place of one that a killed process left.
func listenUnix(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// accept serves the connections of a socket.
func (p *process) accept(ctx context.Context, v *servedVM, disk string, l *net.UnixListener) {
	slots := make(chan struct{}, maxConns)
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.log.Warn("accepting a connection of a VM failed", "disk", disk, "error", err)
			time.Sleep(processPoll)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		p.serving.Go(func() {
			defer func() { <-slots }()
			if err := p.serveDisk(ctx, v, disk, conn); err != nil && ctx.Err() == nil {
				p.log.Warn("serving a disk of a VM ended", "disk", disk, "error", err)
			}
		})
	}
}

// serveDisk serves a disk to the process of its VM.
func (p *process) serveDisk(ctx context.Context, v *servedVM, disk string, conn *net.UnixConn) error {
	if err := checkPeer(ctx, conn, v.ProcessFile); err != nil {
		return errors.Join(err, conn.Close())
	}
	select {
	case <-v.ready:
	case <-ctx.Done():
		return conn.Close()
	}
	d := v.disks[disk]
	if d == nil {
		return errors.Join(fmt.Errorf("the version has no disk %s that is read before it is here", disk), conn.Close())
	}
	return nbd.Serve(ctx, conn, timedDisk{d, &v.reads}, p.log)
}

// checkPeer refuses a connection of another process than that in the file, which is written soon after the process
// began.
func checkPeer(ctx context.Context, conn *net.UnixConn, processFile string) error {
	peer, err := peerPID(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, processTime)
	defer cancel()
	for {
		var vm struct {
			PID int `json:"pid"`
		}
		err := readJSON(processFile, &vm)
		if err == nil && vm.PID == peer {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("process %d is not the VM's, which is %d", peer, vm.PID), err)
		case <-time.After(processPoll):
		}
	}
}

// removeVM closes the sockets of a VM, and removes them.
func (p *process) removeVM(id string) {
	p.mu.Lock()
	v := p.vms[id]
	delete(p.vms, id)
	left := len(p.vms)
	p.mu.Unlock()
	if v != nil {
		v.close()
	}
	if left == 0 {
		p.unusedOnce.Do(func() { close(p.unused) })
	}
}

func (v *servedVM) close() {
	for _, l := range v.listeners {
		_ = l.Close()
	}
}

// stop ends the service of all VMs. A process that continues later makes their sockets again.
func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	for _, v := range p.vms {
		v.close()
	}
	p.mu.Unlock()
	p.serving.Wait()
}
