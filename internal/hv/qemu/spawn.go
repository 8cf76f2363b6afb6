package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// inheritedFiles collects the files that QEMU gets. Their numbers in QEMU begin at 3.
type inheritedFiles []*os.File

func (f *inheritedFiles) add(file *os.File) int {
	*f = append(*f, file)
	return 2 + len(*f)
}

func (f inheritedFiles) close() {
	for _, file := range f {
		_ = file.Close()
	}
}

// spawn starts QEMU for a VM that does not run. After each step, Open can recover the VM: see adopt
// and recordMissedEnd.
func (m *machine) spawn(ctx context.Context, spec hv.Spec, avoid map[int]bool) (*run, error) {
	if err := m.driver.ensureIsolation(ctx); err != nil {
		return nil, err
	}
	if err := m.saveLock.lock(ctx); err != nil {
		return nil, err
	}
	defer m.saveLock.unlock()
	var files inheritedFiles
	defer func() { files.close() }()
	lock, err := lockWithin(ctx, m.dir, lockTimeout)
	if err != nil {
		return nil, err
	}
	files.add(lock)
	if err := m.endSaveOfStopped(); err != nil {
		return nil, err
	}
	l := launchSpec{
		awaitsState: m.resumes(spec), spec: spec, host: m.driver.host, sandbox: runtime.GOOS == "linux",
		platform: m.driver.platform, firmware: m.driver.platform.firmwareFile(), noFlush: m.driver.opts.UnsafeCache,
	}
	if l.awaitsState { // an earlier attempt may have written
		if err := m.removeOverlays(0); err != nil {
			return nil, err
		}
	}
	if err := m.openFiles(ctx, &files, &l); err != nil {
		return nil, err
	}
	m.driver.releasePorts(m.id)
	if l.ports, err = m.driver.choosePorts(ctx, m.id, spec.Ports, avoid); err != nil {
		return nil, err
	}
	if l.vncListener, err = m.driver.listenScreen(ctx, m.id, spec.VNC); err != nil {
		return nil, err
	}
	r, err := m.launch(l, files)
	if r == nil && l.vncListener != nil {
		_ = l.vncListener.Close()
	}
	return r, err
}

// launch starts QEMU with all inherited files.
func (m *machine) launch(l launchSpec, files inheritedFiles) (*run, error) {
	if err := m.recordStart(l); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(m.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return m.execQEMU(l, files, log)
}

// openFiles opens the disks and sockets. QEMU itself could open none of them: it runs as another
// user, and only this process's user can access the directory.
func (m *machine) openFiles(ctx context.Context, files *inheritedFiles, l *launchSpec) error {
	for i := range l.spec.Disks {
		d, err := m.openDisk(ctx, i, *l, files)
		if err != nil {
			return farm.MarkFailure(err, "", farm.StepCreateDisk)
		}
		l.disks = append(l.disks, d)
	}
	if l.spec.Network == hv.NetworkBridge {
		f, err := m.driver.plugGuest(l.spec)
		if err != nil {
			return farm.MarkFailure(err, farm.FailureNetwork, "")
		}
		l.tapFd = files.add(f)
	}
	for name, number := range map[string]*int{qmpSocket: &l.qmpFd, qgaSocket: &l.qgaFd} {
		f, err := listenSocket(m.dir, name)
		if err != nil {
			return err
		}
		*number = files.add(f)
	}
	return nil
}

// openDisk opens the layers of disk i and the overlays of this VM on them.
func (m *machine) openDisk(ctx context.Context, i int, l launchSpec, files *inheritedFiles) (d diskFiles, err error) {
	var size int64
	disk := l.spec.Disks[i]
	images := []hv.Disk{{Path: disk.Path, Format: disk.Format}}
	for _, path := range disk.Deltas {
		images = append(images, hv.Disk{Path: path, Format: "qcow2"})
	}
	if disk.Socket != "" {
		size, images = disk.Bytes, images[1:]
		d.layers = append(d.layers, layerFile{blockNode: layerName(i, 0), socket: disk.Socket})
	}
	for _, image := range images {
		f, n, err := openBase(image)
		if err != nil {
			return d, farm.MarkFailure(err, farm.FailureTemplate, "")
		}
		size = n
		d.layers = append(d.layers,
			layerFile{blockNode: layerName(i, len(d.layers)), format: image.Format, fd: files.add(f)})
	}
	generations := m.generations()
	last := len(generations) - 1
	for _, g := range generations[:last] {
		f, err := os.Open(m.overlayPath(i, g))
		if err != nil {
			return d, err
		}
		d.layers = append(d.layers, layerFile{blockNode: overlayName(i, g), format: "qcow2", fd: files.add(f)})
	}
	d.generation = generations[last]
	path := m.overlayPath(i, d.generation)
	if i == 0 && !l.awaitsState { // growDisk grows the disk of a guest that continues
		size = max(size, diskBytes(l.spec))
	}
	_, missing := os.Stat(path)
	if errors.Is(missing, fs.ErrNotExist) && last == 0 {
		err = CreateOverlay(ctx, path, size)
	} else {
		err = growOverlay(ctx, path, size)
	}
	if err != nil {
		return d, err
	}
	m.driver.stepHook("start: overlay")
	for mode, number := range map[int]*int{os.O_RDWR: &d.rwFd, os.O_RDONLY: &d.roFd} {
		f, err := os.OpenFile(path, mode, 0)
		if err != nil {
			return d, err
		}
		*number = files.add(f)
	}
	return d, nil
}

// recordStart records what is about to be started and drops the last run.
func (m *machine) recordStart(l launchSpec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cfg := m.config
	cfg.Spec, cfg.Ports, cfg.VNCPort = l.spec.Clone(), l.ports, listenerPort(l.vncListener)
	cfg.Machine, cfg.CPU = l.host.Machine, l.host.CPU
	cfg.Accelerator, cfg.Version = l.host.Accelerator, l.host.Version
	cfg.Layout = m.driver.requirementsOf(l.spec).Layout
	if err := writeJSON(m.dir, configFile, cfg); err != nil {
		return err
	}
	m.config = cfg
	for _, name := range []string{pidFile, endFile, serialFile} {
		if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.proc, m.lastEnd = process{}, runEnd{}
	m.driver.stepHook("start: begun")
	return nil
}

// execQEMU runs QEMU in its own session, so that no signal to this process reaches it.
func (m *machine) execQEMU(l launchSpec, files inheritedFiles, log *os.File) (*run, error) {
	cmd := exec.Command(m.driver.opts.Binary, commandLine(l)...) //nolint:noctx // it outlives every context
	cmd.ExtraFiles = files
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env, cmd.Dir = toolEnv(), "/"
	cmd.SysProcAttr = m.driver.processAttributes()
	release, err := m.driver.cgroups.createFor(cmd.SysProcAttr, l.spec)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	m.driver.stepHook("start: forked")
	p := process{PID: cmd.Process.Pid, UUID: l.spec.UUID, StartedAt: time.Now()}
	if ticks, err := startTicks(p.PID); err == nil { // otherwise it has already ended, which watch detects
		p.StartTicks = ticks
	}
	m.mu.Lock()
	m.proc = p
	m.mu.Unlock()
	exited := make(chan string, 1)
	go func() { exited <- exitStatus(cmd) }()
	r := m.attach(exited, l.vncListener)
	if err := writeJSON(m.dir, pidFile, p); err != nil {
		return r, err
	}
	m.driver.stepHook("start: pid")
	return r, nil
}

// processAttributes of a QEMU process: its own session, an unprivileged user.
func (d *Driver) processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Credential: d.qemuCredential}
}
