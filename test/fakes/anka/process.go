package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// Hidden commands: the process that is a running VM, and that of its guest.
const (
	vmVerb    = "fake-vm"
	guestVerb = "fake-guest"
)

const (
	guestUser = "anka"
	lineReady = "ready"
)

// startVM starts the process of a VM and returns once it runs.
func startVM(ctx context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	if err := v.start(ctx); err != nil {
		return nil, err
	}
	if v, err = c.read(v.UUID); err != nil {
		return nil, err
	}
	return v.show(), nil
}

func (v *vm) start(ctx context.Context) error {
	switch v.status() {
	case running:
		return nil
	case failed:
		return v.failedError()
	}
	log, err := os.OpenFile(filepath.Join(v.dir(), "vm.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, vmVerb, v.UUID) //nolint:gosec // itself
	cmd.Args[0] = "anka"
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	line, _ := bufio.NewReader(output).ReadString('\n')
	if line = strings.TrimSpace(line); line != lineReady {
		return fail(codeFailure, "%s: %s", v.Name, line)
	}
	return nil
}

// machine is a running VM: this process.
type machine struct {
	*vm
	guest *fakeguest.Process
}

// serveVM is the process of a VM. Its first line is lineReady or why the VM does not start.
func serveVM(ctx context.Context, c *call) (any, error) {
	v, err := c.read(c.operand(0))
	if err != nil {
		return nil, err
	}
	m := &machine{vm: v}
	lock, err := m.takeLock()
	if err == nil {
		defer lock.Close()
		err = m.begin(ctx)
	}
	if err != nil {
		fmt.Println(err)
		return noAnswer{}, nil
	}
	fmt.Println(lineReady)
	_ = os.Stdout.Close()
	return noAnswer{}, m.watch(ctx)
}

// takeLock takes the lock that says that the VM runs, unless too many others do.
func (m *machine) takeLock() (*os.File, error) {
	guard, err := os.Open(m.library.dir)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	all, err := m.library.all()
	if err != nil {
		return nil, err
	}
	others := 0
	for _, v := range all {
		if v.UUID != m.UUID && v.pid() != 0 {
			others++
		}
	}
	if others >= m.library.knobs.Number("", knobLimit, 2) {
		return nil, errors.New("maximum number of running instances exceeded")
	}
	f, err := os.OpenFile(m.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return cliproc.TakeLock(m.lockFile())
}

// begin opens the host's ports and starts the guest.
func (m *machine) begin(ctx context.Context) error {
	if !m.library.licenseIsValid() {
		return errors.New("license is not valid")
	}
	if _, err := os.Stat(m.image()); err != nil {
		return errors.New("failed to start: image not found")
	}
	address := m.library.knobs.Address(m.Network.MAC)
	if m.library.knobs.IsSet(m.Name, knobNoChild) || m.openPorts(ctx, address) != nil {
		return errors.New("failed to start: No child processes")
	}
	m.State, m.Started, m.Stopped, m.Orderly, m.SuspendEnd = running, time.Now().UTC(), time.Time{}, false, false
	if err := m.write(); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(m.dir(), fakeguest.ControlFile))
	env := append(fakeguest.Environment(m.dir(), address, guestUser), envHome+"="+m.library.home)
	var err error
	m.guest, err = fakeguest.Start(ctx, []string{guestVerb, m.UUID}, env)
	return err
}

// watch waits for the end of the guest, a signal, or a knob that ends it, and writes the state after that.
func (m *machine) watch(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for begin := time.Now(); ; {
		select {
		case line := <-m.guest.Lines:
			return m.end(line != fakeguest.LineShutdown)
		case <-signals:
			return m.end(false)
		case <-ticks.C:
			if m.library.knobs.IsSet(m.Name, knobCrash) &&
				time.Since(begin) >= m.library.knobs.Seconds(m.Name, knobCrash, 0) {
				return m.end(true)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end ends the guest. The commands that stop a VM have written into its configuration in the meantime.
func (m *machine) end(hasFailed bool) error {
	m.guest.PowerOff()
	v, err := m.library.read(m.UUID)
	if err != nil {
		return err
	}
	v.State, v.Stopped = stopped, time.Now().UTC()
	switch {
	case hasFailed:
		v.State = failed
	case v.SuspendEnd:
		v.State = suspended
	}
	return v.write()
}

// serveGuest is the guest's process.
func serveGuest(ctx context.Context, c *call) (any, error) {
	v, err := c.read(c.operand(0))
	if err != nil {
		return nil, err
	}
	g := &fakeguest.Guest{
		Dir: v.dir(), Name: v.Name, Knobs: c.knobs, Address: fakeguest.AddressInGuest(), User: guestUser,
		Load: func(dir string) error {
			image, err := os.Open(v.image())
			if err != nil {
				return err
			}
			defer image.Close()
			return fakeguest.Unpack(image, dir)
		},
		Store: v.store,
	}
	return noAnswer{}, g.Serve(ctx)
}

// store replaces the image by the files of a directory.
func (v *vm) store(dir string) error {
	if v.library.knobs.IsSet(v.Name, knobDiskFull) {
		return fmt.Errorf("write %s: %w", v.Image, syscall.ENOSPC)
	}
	archive, err := fakeguest.Pack(dir)
	if err != nil {
		return err
	}
	part := v.image() + ".part"
	if err := os.WriteFile(part, archive, 0o600); err != nil {
		return err
	}
	return os.Rename(part, v.image())
}
