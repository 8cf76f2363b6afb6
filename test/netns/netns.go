package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// insideSetting marks the process that runs in separate namespaces.
const insideSetting = "BUILDYARD_TEST_NETNS_INSIDE"

// Inside reports whether this process runs in the namespaces that RunInside made.
func Inside() bool { return os.Getenv(insideSetting) != "" }

// RunInside runs this program again with arguments, in namespaces that end with it. It reports whether the program
// ended with the exit status 0; one that failed has printed why.
func RunInside(ctx context.Context, args []string, out io.Writer) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	script := `mount --make-rprivate / && mount -t proc proc /proc && mkdir -p /run/netns && exec "$0" "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, self}, args...)...)
	cmd.Env = append(os.Environ(), insideSetting+"=1")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return false, nil
	}
	return err == nil, err
}

// The network: a bridge in the namespace of this process, and a namespace for each machine.
const (
	bridge     = "hub"
	subnet     = "10.77.0."
	hubHost    = 1
	interface0 = "eth0"
)

// HubAddress is the address of this process on the bridge.
const HubAddress = subnet + "1"

// SetUp makes the bridge. It is called once, inside.
func SetUp(ctx context.Context) error {
	return commands(ctx,
		"mount -t tmpfs tmpfs /run/netns",
		"ip link set lo up",
		"ip link add "+bridge+" type bridge",
		fmt.Sprintf("ip addr add %s%d/24 dev %s", subnet, hubHost, bridge),
		"ip link set "+bridge+" up",
	)
}

// commands runs commands without quotes in them, one after another.
func commands(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if _, err := rig.Output(ctx, "", words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Machine is a namespace with an address on the bridge.
type Machine struct {
	Name    string
	Address string
}

// Add makes a machine; host is the last part of its address, from 2 to 254. A name has at most 11 characters.
func Add(ctx context.Context, name string, host int) (*Machine, error) {
	m := &Machine{Name: name, Address: fmt.Sprintf("%s%d", subnet, host)}
	return m, commands(ctx,
		"ip netns add "+name,
		fmt.Sprintf("ip link add %s type veth peer name %s netns %s", m.link(), interface0, name),
		fmt.Sprintf("ip link set %s master %s up", m.link(), bridge),
		fmt.Sprintf("ip -n %s addr add %s/24 dev %s", name, m.Address, interface0),
		fmt.Sprintf("ip -n %s link set %s up", name, interface0),
		fmt.Sprintf("ip -n %s link set lo up", name),
	)
}

// link is the bridge's end of the machine's link.
func (m *Machine) link() string { return "to-" + m.Name }

// Remove removes the machine.
func (m *Machine) Remove(ctx context.Context) error { return commands(ctx, "ip netns del "+m.Name) }

// Disconnect disconnects the machine from all others.
func (m *Machine) Disconnect(ctx context.Context) error {
	return commands(ctx, "ip link set "+m.link()+" down")
}

// Connect undoes Disconnect.
func (m *Machine) Connect(ctx context.Context) error {
	return commands(ctx, "ip link set "+m.link()+" up")
}

// burst and latency are what the token bucket filter of a link sends without waiting, and how long a packet waits there
// at most.
const (
	burst   = 256 << 10
	latency = 50 * time.Millisecond
)

// limiter is the queue of a link with a rate in bytes a second.
func limiter(rate int64) string {
	return fmt.Sprintf("root tbf rate %dbps burst %d latency %dms", rate, burst, latency.Milliseconds())
}

// Limit limits both directions of the machine's link to a rate in bytes a second, by the kernel's token bucket filter.
func (m *Machine) Limit(ctx context.Context, rate int64) error {
	filter := limiter(rate)
	return commands(ctx,
		fmt.Sprintf("tc qdisc replace dev %s %s", m.link(), filter),
		fmt.Sprintf("tc -n %s qdisc replace dev %s %s", m.Name, interface0, filter),
	)
}

// LimitHub limits what this process sends over the bridge, to all machines together, to a rate in bytes a second.
func LimitHub(ctx context.Context, rate int64) error {
	return commands(ctx, fmt.Sprintf("tc qdisc replace dev %s %s", bridge, limiter(rate)))
}

// HubSent returns how many bytes this process has sent over the bridge, with the headers of their packets.
func HubSent() (int64, error) {
	raw, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return 0, err
	}
	return sentBytes(string(raw), bridge)
}

// sentBytes reads what an interface has sent from the text of /proc/net/dev.
func sentBytes(text, name string) (int64, error) {
	const sent = 8 // of the numbers behind the name
	for line := range strings.Lines(text) {
		of, numbers, _ := strings.Cut(line, ":")
		fields := strings.Fields(numbers)
		if strings.TrimSpace(of) != name || len(fields) <= sent {
			continue
		}
		n, err := strconv.ParseInt(fields[sent], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/net/dev: sent bytes of %s: %w", name, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("/proc/net/dev has no interface %s", name)
}

// Launcher is what runs a command line that follows it on the machine. The process has the ID of the program.
func (m *Machine) Launcher() []string { return []string{"ip", "netns", "exec", m.Name} }

func (m *Machine) command(program string, args []string) []string {
	return slices.Concat(m.Launcher(), []string{program}, args)
}

// Process prepares a program of the machine, which has its name.
func (m *Machine) Process(logs, program string, args ...string) *rig.Process {
	command := m.command(program, args)
	return rig.NewProcess(logs, m.Name, command[0], command[1:]...)
}

// Output runs a program of the machine to its end.
func (m *Machine) Output(ctx context.Context, program string, args ...string) (string, error) {
	command := m.command(program, args)
	return rig.Output(ctx, "", command[0], command[1:]...)
}
