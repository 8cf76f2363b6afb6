package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guestVerb is the hidden command of the guest's process, which run starts.
const guestVerb = "fake-guest"

// Directories of a running guest, below guestDir in the VM's directory.
const (
	guestDir    = ".guest"
	guestSocket = ".guest/socket" // for requests of the guest's own programs, whatever its agent does
	guestHome   = "home"          // its files are those of disk.img
	guestTmp    = "tmp"           // empty after a boot
	guestBin    = "bin"           // the shims
)

func guestPath(vmDir, sub string) string { return filepath.Join(vmDir, guestDir, sub) }

// Lines that the guest's process writes for run.
const (
	lineShutdown = "shutdown"
	lineFault    = "fault " // and why the guest does not run
)

// Lines that run writes to the guest's process. The end of the input pulls the plug.
const lineSuspend = "suspend"

// guest is what runs in a VM: its agent, services, and the processes of commands.
type guest struct {
	*vm
	address string

	mu       sync.Mutex // guards the fields below and the disk; who ends the guest keeps it
	services []net.Listener
}

// serveGuest is the guest's process: it boots, and ends when the guest shuts down or its input ends.
func serveGuest(ctx context.Context, c *call) error {
	g := &guest{vm: c.vm(c.name()), address: os.Getenv(envAddress)}
	if err := os.Chdir(g.dir); err != nil { // for the short path of the control socket
		return err
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	go g.obey(os.Stdin)
	for g.boot(ctx) {
		g.powerOff()
	}
	return nil
}

// obey follows run, and ends the guest without a shutdown when run has ended or wants its state.
func (g *guest) obey(orders io.Reader) {
	lines := bufio.NewScanner(orders)
	suspend := lines.Scan() && lines.Text() == lineSuspend
	g.mu.Lock()
	if suspend {
		archive, err := pack(guestPath(g.dir, guestHome))
		if err == nil {
			err = os.WriteFile(stateFile, archive, 0o600)
		}
		g.report(lineShutdown, err)
	}
	killDescendants()
	os.Exit(0)
}

// report writes a line for run.
func (g *guest) report(line string, err error) {
	if err != nil {
		line = lineFault + err.Error()
	}
	fmt.Println(line)
}

// boot runs the guest once, and reports whether it wants to boot again. A guest that cannot boot waits for its end, as
// one that shows a black screen.
func (g *guest) boot(ctx context.Context) (again bool) {
	if err := g.prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		pause(ctx, 1000*time.Hour)
	}
	requests := make(chan string)
	go g.startNetwork(ctx)
	go g.startAgent(ctx, requests)
	go g.listen(ctx, guestSocket, requests)
	for request := range requests {
		if g.knobs.isSet(g.name, knobIgnoreShutdown) {
			continue
		}
		pause(ctx, g.knobs.seconds(g.name, knobShutdownDelay, 200*time.Millisecond))
		g.mu.Lock()
		killDescendants()
		err := storeTree(g.vm, guestPath(g.dir, guestHome))
		if request == kindReboot && err == nil {
			g.mu.Unlock()
			return true
		}
		g.report(lineShutdown, err)
		os.Exit(0) // with the lock, so that no later request changes the disk
	}
	return false
}

// powerOff closes what listens.
func (g *guest) powerOff() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.services {
		_ = l.Close()
	}
	g.services = nil
}

// prepare makes the guest's directories, with the files of the disk or of the suspended state.
func (g *guest) prepare(ctx context.Context) error {
	pause(ctx, g.knobs.seconds(g.name, knobBootDelay, 0))
	if err := os.RemoveAll(guestDir); err != nil {
		return err
	}
	for _, sub := range []string{guestHome, guestTmp, guestBin} {
		if err := os.MkdirAll(guestPath(g.dir, sub), 0o700); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for name := range shims {
		if err := os.Symlink(program, filepath.Join(guestPath(g.dir, guestBin), name)); err != nil {
			return err
		}
	}
	if err := bootFirmware(g.vm); err != nil {
		return err
	}
	if state, err := os.Open(stateFile); err == nil {
		defer state.Close()
		_ = os.Remove(stateFile)
		return unpack(state, guestPath(g.dir, guestHome))
	}
	return loadTree(g.vm, guestPath(g.dir, guestHome))
}

// startAgent listens on the control socket once the guest agent is ready.
func (g *guest) startAgent(ctx context.Context, requests chan<- string) {
	pause(ctx, g.knobs.seconds(g.name, knobAgentDelay, 0))
	g.listen(ctx, controlFile, requests)
}

// listen answers requests on a socket.
func (g *guest) listen(ctx context.Context, path string, requests chan<- string) {
	_ = os.Remove(path)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return
	}
	g.mu.Lock()
	g.services = append(g.services, l)
	g.mu.Unlock()
	accept(ctx, l, func(ctx context.Context, c net.Conn) { g.answer(ctx, &frameConn{Conn: c}, requests) })
}

// startNetwork gets the guest's lease and starts its services.
func (g *guest) startNetwork(ctx context.Context) {
	pause(ctx, g.knobs.seconds(g.name, knobNetworkDelay, 0))
	config, err := g.config()
	if err == nil {
		err = g.addLease(config.MACAddress)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest network:", err)
	}
	for knob, serve := range map[string]func(context.Context, net.Conn){knobSSH: g.serveSSH, knobEcho: echo} {
		for _, port := range g.knobs.words(g.name, knob) {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(g.address, port))
			if err != nil {
				fmt.Fprintln(os.Stderr, "guest service:", err)
				continue
			}
			g.mu.Lock()
			g.services = append(g.services, l)
			g.mu.Unlock()
			go accept(ctx, l, serve)
		}
	}
}

func accept(ctx context.Context, l net.Listener, serve func(context.Context, net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(ctx, c)
	}
}

func echo(_ context.Context, c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.Close()
}

// killDescendants ends all processes of the guest's commands, also those in other sessions.
func killDescendants() {
	for range 200 {
		pids := descendants(os.Getpid())
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// descendants returns the processes whose ancestor is root.
func descendants(root int) (out []int) {
	parent := parents()
	for pid := range parent {
		for up := parent[pid]; up > 1; up = parent[up] {
			if up == root {
				out = append(out, pid)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// guestEnvironment is the environment of all processes of a guest.
func guestEnvironment(v *vm, address string) []string {
	path := []string{
		guestPath(v.dir, guestBin), "/bin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin",
	}
	return []string{
		"PATH=" + strings.Join(path, ":"), "HOME=" + guestPath(v.dir, guestHome),
		"TMPDIR=" + guestPath(v.dir, guestTmp), "USER=admin", "LOGNAME=admin", "SHELL=/bin/sh",
		"TART_HOME=" + v.home.dir, "TART_KNOBS=" + string(v.knobs), envVM + "=" + v.dir, envAddress + "=" + address,
	}
}
