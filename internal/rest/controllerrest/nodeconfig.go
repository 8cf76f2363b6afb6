package controllerrest

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// automaticHost restores the address that the node itself reports.
const automaticHost = "auto"

// configRoutes are the routes that configure nodes.
func (s *server) configRoutes() []rest.Route {
	return []rest.Route{
		{
			Pattern: "POST /api/v1/node/config", Permission: "change_node_config", OwnEvents: true,
			Handle: s.configureNode,
		},
	}
}

func (s *server) configureNode(r *rest.Request) (any, error) {
	id := r.Params.Required("node_id")
	conf := readNodeConfig(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := requireNodeRight(r, id, rightConfig); err != nil {
		return nil, err
	}
	if err := s.controller.Nodes.Configure(r.Context(), id, conf); err != nil {
		return nil, err
	}
	if ram := conf.RAMOverride; ram != nil && *ram > 0 && *ram < smallRAMOverride {
		return rest.MessageOnly(fmt.Sprintf("ram_override is in MiB, unlike ram, which is in GiB: "+
			"all VMs of the node may have %d MiB together", *ram)), nil
	}
	return nil, nil
}

// smallRAMOverride in MiB is so little that the caller may have meant GiB.
const smallRAMOverride = 1024

// readNodeConfig reads the changes of a node: only the given parameters.
func readNodeConfig(p *rest.Params) (conf nodes.Config) {
	number := func(to **int, name string, lo, hi int) {
		if p.Has(name) {
			n := p.Int(name, lo, lo, hi)
			*to = &n
		}
	}
	truth := func(to **bool, name string) {
		if p.Has(name) {
			b := p.Bool(name, false)
			*to = &b
		}
	}
	text := func(to **string, name string) {
		if p.Has(name) {
			s := strings.TrimSpace(p.Text(name, nodes.MaxName))
			*to = &s
		}
	}
	number(&conf.Capacity, "max_vm_count", 1, nodes.MaxVMCount)
	number(&conf.VCPUOverride, "vcpu_override", 0, nodes.MaxVCPUs)
	number(&conf.RAMOverride, "ram_override", 0, nodes.MaxRAM)
	truth(&conf.NoCentralLog, "disable_central_logging")
	truth(&conf.Drain, "drain_mode")
	text(&conf.Name, "name")
	text(&conf.DrainReason, "drain_reason")
	text(&conf.Host, "host")
	if conf.Name != nil && *conf.Name == "" {
		p.RecordError("name", "must not be empty")
	}
	readHost(p, conf.Host)
	if mode := farm.CapacityMode(p.OneOf("capacity_mode", string(farm.CapacityByVMs),
		string(farm.CapacityByResources))); mode != "" {
		conf.Mode = &mode
	}
	readDrain(p, &conf)
	return conf
}

// readHost validates the configured address of a node.
func readHost(p *rest.Params, host *string) {
	switch {
	case host == nil:
	case *host == automaticHost:
		*host = ""
	case *host == "" || strings.ContainsAny(*host, " /@?#"):
		p.RecordError("host", "must be an address or a host name, or %s for the one that the node reports",
			automaticHost)
	}
}

// readDrain reads the parameters of a drain.
func readDrain(p *rest.Params, conf *nodes.Config) {
	if p.Has("drain_deadline") {
		wait := p.Duration("drain_deadline", nodes.MaxDrainWait)
		conf.DrainFor = &wait
	}
	for _, name := range p.Given("drain_reason", "drain_deadline") {
		if conf.Drain != nil && !*conf.Drain {
			p.RecordError(name, "requires drain_mode true")
		}
	}
}
