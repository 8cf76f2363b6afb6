package buildyard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/agent/link"
	"github.com/buildyard/buildyard/internal/agent/size"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/transfer"
)

// demoNode is this machine as the demo's one node.
type demoNode struct {
	agent       *agent.Agent
	driver      hv.Driver
	accelerator string
	closers     []io.Closer
}

func newDemoNode(ctx context.Context, o DemoOptions, services *ControllerService) (n *demoNode, err error) {
	n = &demoNode{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	log, err := obs.Logger(o.Err, "warn", "node")
	if err != nil {
		return n, err
	}
	dir, err := home.At(o.Dir + "/node")
	if err != nil {
		return n, err
	}
	if err := dir.Make(); err != nil {
		return n, err
	}
	if n.driver, err = demoDriver(ctx, o.Driver, dir); err != nil {
		return n, err
	}
	n.keep(n.driver)
	host, err := n.driver.Describe(ctx)
	if err != nil {
		return n, err
	}
	n.accelerator = host.Accelerator
	identity, client, err := joinDemo(ctx, services)
	if err != nil {
		return n, err
	}
	templates, err := cache.Open(cache.Options{Dir: dir.Templates(), Source: registrySource{}, Reserve: size.Reserve{Bytes: 1 << 20}, Logger: log})
	if err != nil {
		return n, err
	}
	n.keep(templates)
	records, err := journal.Open(dir.Instances(), journal.Options{})
	if err != nil {
		return n, err
	}
	n.keep(records)
	n.agent = agent.New(agent.Options{
		Identity: identity, Link: client, Driver: n.driver, Templates: templates, Journal: records,
		Machine: agent.NewMachine(dir.Templates(), dir.VMs()), Logger: log, Version: obs.FullVersion(),
	})
	return n, nil
}

func demoDriver(ctx context.Context, name string, dir home.Home) (hv.Driver, error) {
	switch name {
	case "qemu":
		return qemu.Open(ctx, qemu.Options{Dir: dir.VMs()})
	case "sim":
		return sim.New(sim.Options{})
	default:
		return nil, fmt.Errorf("--driver %s: must be qemu or sim", name)
	}
}

// joinDemo joins this machine to the demo's controller.
func joinDemo(ctx context.Context, services *ControllerService) (home.Identity, *link.Client, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "this-machine"
	}
	transport := link.Transport(nil, 1)
	anonymous, err := link.New(services.URL(), transport, "")
	if err != nil {
		return home.Identity{}, nil, err
	}
	answer, err := anonymous.Join(ctx, api.JoinRequest{
		Protocol: api.LinkProtocol, Token: services.JoinToken(), Name: name, Host: "127.0.0.1", Arch: runtime.GOARCH,
	})
	if err != nil {
		return home.Identity{}, nil, fmt.Errorf("join the node: %w", err)
	}
	client, err := link.New(services.URL(), transport, answer.Credential)
	return home.Identity{
		NodeID: answer.NodeID, Credential: answer.Credential, Controller: services.URL(),
		Registry: answer.Registry, Name: name, Host: "127.0.0.1",
	}, client, err
}

func (n *demoNode) keep(v any) {
	if c, ok := v.(io.Closer); ok {
		n.closers = append(n.closers, c)
	}
}

func (n *demoNode) run(ctx context.Context) error { return n.agent.Run(ctx) }

func (n *demoNode) close() error {
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		errs = append(errs, n.closers[i].Close())
	}
	return errors.Join(errs...)
}

// pid gives the hypervisor process of the one VM that runs.
func (n *demoNode) pid(ctx context.Context) (int, error) {
	vms, err := n.driver.List(ctx)
	if err != nil || len(vms) == 0 {
		return 0, err
	}
	return vms[0].PID, nil
}

// vms counts the VMs of the node.
func (n *demoNode) vms(ctx context.Context) (int, error) {
	vms, err := n.driver.List(ctx)
	return len(vms), err
}

// demoTemplate describes the guest as a template.
func demoTemplate(id string) api.PushRequest {
	config, _ := json.Marshal(api.TemplateConfig{ //nolint:errchkjson // plain fields always marshal
		RAM: "256M", CPU: &api.ConfigCPU{Cores: 1}, Firmware: &api.ConfigBoot{Type: "bios"},
		HardDrives:   []api.ConfigDrive{{Controller: "virtio-blk", File: demoDisk, Format: "qcow2"}},
		NetworkCards: []api.ConfigNIC{{Mode: "shared", PortRules: []api.ConfigPort{{RuleName: "ssh", Protocol: "tcp", GuestPort: 22}}}},
	})
	return api.PushRequest{
		ID: id, Name: "demo", Tag: "v1", Description: "the demo guest", Arch: "amd64", Config: config,
	}
}

// registrySource pulls versions from a registry into the node's cache.
type registrySource struct{}

func (registrySource) Size(ctx context.Context, ref cache.Ref) (int64, error) {
	client, err := transfer.New(transfer.Options{BaseURL: ref.Registry})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	m, err := client.Manifest(ctx, transfer.Ref{ID: ref.TemplateID, ContentID: ref.ContentID})
	var total int64
	for _, f := range m.Files {
		total += f.Size
	}
	return total, err
}

func (registrySource) Fetch(ctx context.Context, ref cache.Ref, dir string, progress func(float64)) error {
	client, err := transfer.New(transfer.Options{BaseURL: ref.Registry})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Pull(ctx, transfer.PullOptions{
		Ref: transfer.Ref{ID: ref.TemplateID, ContentID: ref.ContentID}, Dir: dir,
		Progress: func(p transfer.Progress) { progress(p.Fraction()) },
	})
	return err
}
