package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// The network: a bridge in the namespace of this process, and a namespace for each machine.
const (
	bridge     = "hub"
	subnet     = "10.77.0."
	hubHost    = 1
	interface0 = "eth0"
)

// machine is a namespace with an address and a disk.
type machine struct {
	name    string
	address string
	dir     string // its disk, a file system in memory
}

// setUpNetwork makes the bridge.
func setUpNetwork(ctx context.Context) error {
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

// addMachine makes a machine with a disk of so many MiB.
func addMachine(ctx context.Context, name string, host, diskMiB int, dir string) (*machine, error) {
	m := &machine{name: name, address: fmt.Sprintf("%s%d", subnet, host), dir: dir}
	if err := rig.MakeDir(dir); err != nil {
		return nil, err
	}
	return m, commands(ctx,
		fmt.Sprintf("mount -t tmpfs -o size=%dm,mode=0755 tmpfs %s", diskMiB, dir),
		"ip netns add "+name,
		fmt.Sprintf("ip link add %s type veth peer name %s netns %s", m.link(), interface0, name),
		fmt.Sprintf("ip link set %s master %s up", m.link(), bridge),
		fmt.Sprintf("ip -n %s addr add %s/24 dev %s", name, m.address, interface0),
		fmt.Sprintf("ip -n %s link set %s up", name, interface0),
		fmt.Sprintf("ip -n %s link set lo up", name),
	)
}

// link is the bridge's end of the machine's cable.
func (m *machine) link() string { return "to-" + m.name }

// disconnect cuts the machine off from all others.
func (m *machine) disconnect(ctx context.Context) error {
	return commands(ctx, "ip link set "+m.link()+" down")
}

// connect undoes disconnect.
func (m *machine) connect(ctx context.Context) error {
	return commands(ctx, "ip link set "+m.link()+" up")
}

// command returns a command line that runs a program on the machine. The process has the ID of the program.
func (m *machine) command(program string, args ...string) (string, []string) {
	return "ip", append([]string{"netns", "exec", m.name, program}, args...)
}

// process prepares a program of the machine.
func (m *machine) process(logs, program string, args ...string) *rig.Process {
	bin, args := m.command(program, args...)
	return rig.NewProcess(logs, m.name, bin, args...)
}

// output runs a program of the machine to its end.
func (m *machine) output(ctx context.Context, program string, args ...string) (string, error) {
	bin, args := m.command(program, args...)
	return rig.Output(ctx, "", bin, args...)
}
