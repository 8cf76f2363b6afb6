package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// mac is a node that is a fake Mac.
type mac struct {
	*site
	name  string
	id    string // of the node
	data  string // data directory of the node
	own   string // directory of the rest of the Mac
	agent *rig.Process
}

// launchScript mounts a separate /var for a program, with the DHCP leases of the Mac, and becomes that program.
const launchScript = `mount --bind "$1" /var && shift && exec "$@"`

// macCapacity is more than the guests that Apple's license permits, which the cloud has to know itself.
const macCapacity = 4

// addMac makes a Mac and joins it to the cloud.
func (x *site) addMac(ctx context.Context, name string) (*mac, error) {
	return x.joinMac(ctx, name, rig.NodeOptions{})
}

// joinMac is addMac with options.
func (x *site) joinMac(ctx context.Context, name string, o rig.NodeOptions) (*mac, error) {
	if strings.HasPrefix(x.stage.dir, "/var/") {
		return nil, fmt.Errorf("the directory %s is below /var, which a Mac replaces; set TMPDIR", x.stage.dir)
	}
	m := &mac{site: x, name: name, data: filepath.Join(x.dir, name), own: filepath.Join(x.dir, name+"-own")}
	for _, dir := range []string{"var/db", "var/tmp", "home", "tmp"} {
		if err := rig.MakeDir(filepath.Join(m.own, dir)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(m.set("", "leases-file", "/var/db/dhcpd_leases"), m.set("", "slots-dir", m.slots()))
	if err != nil {
		return nil, err
	}
	o.Name, o.Capacity, o.Driver = name, macCapacity, "tart"
	o.Launcher = []string{"unshare", "--mount", "sh", "-c", launchScript, "sh", filepath.Join(m.own, "var")}
	o.Settings = map[string]string{
		"PATH": x.fakes + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"HOME": filepath.Join(m.own, "home"), "TMPDIR": filepath.Join(m.own, "tmp"),
	}
	m.agent, err = x.cloud.Join(ctx, o)
	return m, err
}

// home is TART_HOME of the node.
func (m *mac) home() string { return filepath.Join(m.data, "tart") }

// userHome is the directory of tart that the user of the node has.
func (m *mac) userHome() string { return filepath.Join(m.own, "home", ".tart") }

// otherHome is TART_HOME of another user of the same Mac.
func (m *mac) otherHome() string { return filepath.Join(m.own, "other") }

// knobs is the directory of the knobs of the fake program; see its package comment.
func (m *mac) knobs() string { return filepath.Join(m.data, "tart-knobs") }

// slots is the directory in which the fake program counts the running guests of the Mac.
func (m *mac) slots() string { return filepath.Join(m.data, "tart-slots") }

// set sets a knob for one VM, or with "" for all.
func (m *mac) set(vm, knob, value string) error {
	path := filepath.Join(m.knobs(), vm, knob)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(value), 0o600)
}

// permanentKnobs are those that belong to the Mac.
var permanentKnobs = map[string]bool{"leases-file": true, "slots-dir": true}

// unsetAll removes all knobs of cases.
func (m *mac) unsetAll() error {
	entries, err := os.ReadDir(m.knobs())
	for _, e := range entries {
		if !permanentKnobs[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(m.knobs(), e.Name())))
		}
	}
	return err
}

// awaitActive waits until the cloud may use the node.
func (m *mac) awaitActive(ctx context.Context) error {
	return await(ctx, m.name+" to be active", func() (bool, error) {
		if !m.agent.Running() {
			return false, fmt.Errorf("its agent has ended: %s", m.agent.Tail())
		}
		state, err := m.nodeState(ctx)
		return state == "Active", err
	})
}

// nodeState returns the state of the node, and notes its ID.
func (m *mac) nodeState(ctx context.Context) (string, error) {
	nodes, err := m.api.Nodes(ctx, client.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, n := range nodes {
		if n.NodeName == m.name {
			m.id = n.NodeID
			return n.State, nil
		}
	}
	return "", fmt.Errorf("the cloud has no node %s", m.name)
}

// killAgent ends the agent as kill -9 does.
func (m *mac) killAgent() error { return m.agent.Kill() }

// restartAgent starts the agent again.
func (m *mac) restartAgent(ctx context.Context) error {
	if err := m.agent.Start(); err != nil {
		return err
	}
	return m.awaitActive(ctx)
}

// close ends the agent and what it or a guest has left.
func (m *mac) close() error {
	err := m.agent.End()
	for _, p := range m.processes() {
		err = errors.Join(err, p.Kill())
	}
	return err
}
