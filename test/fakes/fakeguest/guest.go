package fakeguest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// ControlFile is the socket of the guest agent in the VM's directory.
const ControlFile = "control.sock"

// The knobs of a guest. Ports are separated by spaces.
const (
	KnobBootDelay      = "boot-delay"      // before the guest's files are there; agent and network count from then on
	KnobAgentDelay     = "agent-delay"     // before the guest agent answers
	KnobNetworkDelay   = "network-delay"   // before the guest has an address and services
	KnobShutdownDelay  = "shutdown-delay"  // length of an orderly shutdown (0.2)
	KnobIgnoreShutdown = "ignore-shutdown" // the guest ignores its shutdown
	KnobSSH            = "ssh"             // ports of SSH servers: password and keyboard-interactive, commands only
	KnobEcho           = "echo-port"       // ports of echo servers
)

// Directories of a running guest, below Path.
const (
	Home = "home" // its files are those of the disk
	tmp  = "tmp"  // empty after a boot
	bin  = "bin"  // the shims
)

const (
	guestDir    = ".guest"
	guestSocket = ".guest/socket" // for requests of the guest's own programs, whatever its agent does
)

// Path returns a directory of the guest that runs in a VM's directory.
func Path(vmDir, sub string) string { return filepath.Join(vmDir, guestDir, sub) }

// Lines that the guest's process writes for the process of its VM.
const (
	LineShutdown = "shutdown"
	LineFault    = "fault " // and why the guest does not run
)

// LineSuspend is the line that the process of the VM writes to the guest's. The end of the input pulls the plug.
const LineSuspend = "suspend"

// Guest is what runs in a VM: its agent, services, and the processes of commands. Its exported fields are set by the
// fake before Serve.
type Guest struct {
	Dir     string // of the VM
	Name    string // of the VM among the knobs
	Knobs   Knobs
	Address string // loopback address on which its services listen
	User    string // of its SSH servers; the password is "admin"

	Load    func(dir string) error     // reads the guest's files at boot
	Store   func(dir string) error     // writes them at shutdown
	Suspend func(archive []byte) error // keeps the files of a guest that is suspended; nil = it cannot be
	Connect func() error               // gets the address; nil = it has it

	mu       sync.Mutex // guards the fields below and the disk; who ends the guest keeps it
	services []net.Listener
}

// Serve is the guest's process: it boots, and ends when the guest shuts down or its input ends.
func (g *Guest) Serve(ctx context.Context) error {
	if err := os.Chdir(g.Dir); err != nil { // for the short path of the control socket
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

// obey follows the process of the VM, and ends the guest without a shutdown when that has ended or wants its state.
func (g *Guest) obey(orders io.Reader) {
	lines := bufio.NewScanner(orders)
	suspend := lines.Scan() && lines.Text() == LineSuspend && g.Suspend != nil
	g.mu.Lock()
	if suspend {
		archive, err := Pack(Path(g.Dir, Home))
		if err == nil {
			err = g.Suspend(archive)
		}
		g.report(LineShutdown, err)
	}
	killDescendants()
	os.Exit(0)
}

// report writes a line for the process of the VM.
func (g *Guest) report(line string, err error) {
	if err != nil {
		line = LineFault + err.Error()
	}
	fmt.Println(line)
}

// boot runs the guest once, and reports whether it wants to boot again. A guest that cannot boot waits for its end, as
// one that shows a black screen.
func (g *Guest) boot(ctx context.Context) (again bool) {
	if err := g.prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		Pause(ctx, 1000*time.Hour)
	}
	requests := make(chan string)
	go g.startNetwork(ctx)
	go g.startAgent(ctx, requests)
	go g.listen(ctx, guestSocket, requests)
	for request := range requests {
		if g.Knobs.IsSet(g.Name, KnobIgnoreShutdown) {
			continue
		}
		Pause(ctx, g.Knobs.Seconds(g.Name, KnobShutdownDelay, 200*time.Millisecond))
		g.mu.Lock()
		killDescendants()
		err := g.Store(Path(g.Dir, Home))
		if request == Reboot && err == nil {
			g.mu.Unlock()
			return true
		}
		g.report(LineShutdown, err)
		os.Exit(0) // with the lock, so that no later request changes the disk
	}
	return false
}

// powerOff closes what listens.
func (g *Guest) powerOff() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.services {
		_ = l.Close()
	}
	g.services = nil
}

// prepare makes the guest's directories and reads its files.
func (g *Guest) prepare(ctx context.Context) error {
	Pause(ctx, g.Knobs.Seconds(g.Name, KnobBootDelay, 0))
	if err := os.RemoveAll(guestDir); err != nil {
		return err
	}
	for _, sub := range []string{Home, tmp, bin} {
		if err := os.MkdirAll(Path(g.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for name := range shims {
		if err := os.Symlink(program, filepath.Join(Path(g.Dir, bin), name)); err != nil {
			return err
		}
	}
	return g.Load(Path(g.Dir, Home))
}

// startAgent listens on the control socket once the guest agent is ready.
func (g *Guest) startAgent(ctx context.Context, requests chan<- string) {
	Pause(ctx, g.Knobs.Seconds(g.Name, KnobAgentDelay, 0))
	g.listen(ctx, ControlFile, requests)
}

// listen answers requests on a socket.
func (g *Guest) listen(ctx context.Context, path string, requests chan<- string) {
	_ = os.Remove(path)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return
	}
	g.mu.Lock()
	g.services = append(g.services, l)
	g.mu.Unlock()
	Accept(ctx, l, func(ctx context.Context, c net.Conn) { g.answer(ctx, &frameConn{Conn: c}, requests) })
}

// startNetwork gets the guest's address and starts its services.
func (g *Guest) startNetwork(ctx context.Context) {
	Pause(ctx, g.Knobs.Seconds(g.Name, KnobNetworkDelay, 0))
	if g.Connect != nil {
		if err := g.Connect(); err != nil {
			fmt.Fprintln(os.Stderr, "guest network:", err)
		}
	}
	for knob, serve := range map[string]func(context.Context, net.Conn){KnobSSH: g.serveSSH, KnobEcho: echo} {
		for _, port := range g.Knobs.Words(g.Name, knob) {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp4", serviceAddress(g.Address, port))
			if err != nil {
				fmt.Fprintln(os.Stderr, "guest service:", err)
				continue
			}
			g.mu.Lock()
			g.services = append(g.services, l)
			g.mu.Unlock()
			go Accept(ctx, l, serve)
		}
	}
}

// Accept serves each connection until the listener is closed.
func Accept(ctx context.Context, l net.Listener, serve func(context.Context, net.Conn)) {
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
