package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// The machines of a cloud.
const (
	replicas      = 3 // etcd members, and controllers
	nodeCount     = 3
	slotsPerNode  = 6
	etcdHost      = 11 // the first of each kind
	controlHost   = 21
	registryHost  = 31
	proxyHost     = 41
	nodeHost      = 51
	etcdDiskMiB   = 400
	smallDiskMiB  = 160
	nodeDiskMiB   = 96
	reserve       = "16MB" // that a node leaves free on its small disk
	metricsPort   = "2112"
	clockFileName = "clock" // on a machine's disk: the offset of its clock in seconds
)

// member is a machine with the program that runs there.
type member struct {
	*machine
	*rig.Process
	ready string // address whose /readyz reports that it works; empty: it has none
}

// cloud is all machines.
type cloud struct {
	programs programs
	dir      string // of logs and disks
	etcd     []*member
	control  []*member
	registry *member
	proxy    *member
	nodes    []*member
	template string
}

// programs are the programs of a cloud.
type programs struct {
	rig.Programs
	etcd string // path of the etcd server
}

// buildCloud makes the machines and starts the programs.
func buildCloud(ctx context.Context, p programs, dir string) (c *cloud, err error) {
	c = &cloud{programs: p, dir: dir}
	if err := rig.MakeDir(dir); err != nil {
		return c, err
	}
	for _, step := range []func(context.Context) error{
		c.startEtcd, c.startRegistry, c.startControllers, c.startProxy, c.startNodes,
	} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cloud) machine(ctx context.Context, name string, host, diskMiB int) (*machine, error) {
	return addMachine(ctx, name, host, diskMiB, filepath.Join(c.dir, name))
}

// start starts a program on a machine, with its clock file.
func (c *cloud) start(m *machine, ready, program string, args ...string) (*member, error) {
	p := m.Process(c.dir, program, args...)
	p.Set(map[string]string{clockFileSetting: filepath.Join(m.dir, clockFileName)})
	return &member{m, p, ready}, p.Start()
}

func (c *cloud) startEtcd(ctx context.Context) error {
	var machines []*machine
	var cluster []string
	for i := range replicas {
		m, err := c.machine(ctx, fmt.Sprintf("etcd%d", i), etcdHost+i, etcdDiskMiB)
		if err != nil {
			return err
		}
		machines = append(machines, m)
		cluster = append(cluster, fmt.Sprintf("%s=http://%s:2380", m.Name, m.Address))
	}
	for _, m := range machines {
		member, err := c.start(m, "", c.programs.etcd, "--name", m.Name, "--data-dir", filepath.Join(m.dir, "data"),
			"--listen-peer-urls", "http://"+m.Address+":2380",
			"--initial-advertise-peer-urls", "http://"+m.Address+":2380",
			"--listen-client-urls", "http://"+m.Address+":2379", "--advertise-client-urls", "http://"+m.Address+":2379",
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new",
			"--auto-compaction-mode", "periodic", "--auto-compaction-retention", "5m", "--log-level", "warn")
		if err != nil {
			return err
		}
		c.etcd = append(c.etcd, member)
	}
	return nil
}

// endpoints are the addresses of the etcd members.
func (c *cloud) endpoints() string {
	var all []string
	for _, m := range c.etcd {
		all = append(all, "http://"+m.Address+":2379")
	}
	return strings.Join(all, ",")
}

func (c *cloud) startRegistry(ctx context.Context) error {
	m, err := c.machine(ctx, "registry", registryHost, smallDiskMiB)
	if err != nil {
		return err
	}
	c.registry, err = c.start(m, "http://"+m.Address+":8089", c.programs.Path("buildyard"), "registry",
		"--listen-addr", m.Address+":8089", "--local-listen-addr", "none", "--base-path", filepath.Join(m.dir, "data"))
	if err != nil {
		return err
	}
	return c.registry.await(ctx)
}

func (c *cloud) startControllers(ctx context.Context) error {
	for i := range replicas {
		m, err := c.machine(ctx, fmt.Sprintf("control%d", i), controlHost+i, smallDiskMiB)
		if err != nil {
			return err
		}
		member, err := c.start(m, "http://"+m.Address+":8090", c.programs.Path("buildyard"), "controller",
			"--listen-addr", m.Address+":8090", "--data-dir", c.dataDir(m), "--registry", c.registry.ready,
			"--etcd-endpoints", c.endpoints(), "--instance-time-out", "1s", "--enable-metrics",
			"--metrics-port", metricsPort)
		if err != nil {
			return err
		}
		c.control = append(c.control, member)
		if err := member.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *cloud) dataDir(m *machine) string { return filepath.Join(m.dir, "data") }

func (c *cloud) startProxy(ctx context.Context) error {
	m, err := c.machine(ctx, "proxy", proxyHost, smallDiskMiB)
	if err != nil {
		return err
	}
	p := m.Process(c.dir, "haproxy", "-db", "-f",
		filepath.Join(c.programs.Root(), "packaging", "haproxy", "haproxy.cfg"))
	settings := map[string]string{
		"BUILDYARD_BIND": m.Address + ":8090", "BUILDYARD_ADMIN_SOCKET": c.adminSocket(m),
	}
	for i, control := range c.control {
		settings[fmt.Sprintf("BUILDYARD_CONTROLLER_%d", i+1)] = control.Address + ":8090"
	}
	p.Set(settings)
	c.proxy = &member{m, p, "http://" + m.Address + ":8090"}
	if err := p.Start(); err != nil {
		return err
	}
	return c.proxy.await(ctx)
}

func (c *cloud) adminSocket(m *machine) string { return filepath.Join(m.dir, "admin.sock") }

// startNodes joins the nodes through the proxy.
func (c *cloud) startNodes(ctx context.Context) error {
	token, err := rig.Output(ctx, "", c.programs.Path("buildyard"), "node", "token", "--data-dir",
		c.dataDir(c.control[0].machine))
	if err != nil {
		return err
	}
	agent := c.programs.Path("buildnode")
	for i := range nodeCount {
		m, err := c.machine(ctx, fmt.Sprintf("node%d", i), nodeHost+i, nodeDiskMiB)
		if err != nil {
			return err
		}
		_, err = m.Output(ctx, agent, "join", c.proxy.ready, "--token", token, "--name", m.Name, "--host", m.Address,
			"--capacity", strconv.Itoa(slotsPerNode), "--data-dir", c.dataDir(m), "--reserve-space", reserve)
		if err != nil {
			return err
		}
		node, err := c.start(m, "", agent, "run", "--driver", "sim", "--data-dir", c.dataDir(m))
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, node)
	}
	return nil
}

// pushTemplate puts a template with an empty disk into the registry.
func (c *cloud) pushTemplate(ctx context.Context) error {
	author, err := rig.NewSplitCloud(ctx, c.programs.Programs, filepath.Join(c.dir, "author")) // is not started
	if err != nil {
		return err
	}
	author.Registry = c.registry.ready
	c.template, err = author.Push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1", "--ram",
		"256M")
	return err
}

// await waits until a member is ready, if it reports that.
func (m *member) await(ctx context.Context) error {
	if m.ready == "" {
		return nil
	}
	return rig.Ready(ctx, m.Process, m.ready)
}

// all returns every member, in the order of their start.
func (c *cloud) all() []*member {
	all := append([]*member{}, c.etcd...)
	if c.registry != nil {
		all = append(all, c.registry)
	}
	all = append(all, c.control...)
	if c.proxy != nil {
		all = append(all, c.proxy)
	}
	return append(all, c.nodes...)
}

// close ends every program, the last first.
func (c *cloud) close() error {
	var errs []error
	for _, m := range slices.Backward(c.all()) {
		if m.Running() {
			_, err := m.Rush(5 * time.Second)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove ends the programs and takes the machines away.
func (c *cloud) remove(ctx context.Context) error {
	errs := []error{c.close()}
	for _, m := range c.all() {
		errs = append(errs, m.machine.remove(ctx))
	}
	return errors.Join(errs...)
}

// restart starts the programs that have ended.
func (c *cloud) restart(ctx context.Context) error {
	for _, m := range c.all() {
		if !m.Running() {
			if err := m.Start(); err != nil {
				return err
			}
		}
	}
	for _, m := range c.all() {
		if err := m.await(ctx); err != nil {
			return err
		}
	}
	return nil
}
