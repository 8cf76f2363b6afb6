package agent

import (
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/size"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// The labels of every VM of an agent: what the driver gives back when the journal
// is lost.
const (
	labelInstance = "instance"
	labelClaim    = "claim"
	labelContent  = "content"
	labelNode     = "node" // id of the node at its start
)

const (
	defaultCPUs     = 1
	defaultMemoryMB = 1024
)

// spec says what VM an order and the configuration of its version make.
func (a *Agent) spec(in *instance) (hv.Spec, error) {
	o := in.order.Start
	config, dir, err := a.opts.Templates.Config(o.ContentID)
	if err != nil {
		return hv.Spec{}, err
	}
	s := hv.Spec{
		ID: in.id, Name: o.VMName, UUID: in.id, CPUs: defaultCPUs, MemoryMB: defaultMemoryMB,
		BootTimeout: time.Duration(o.StartTimeout) * time.Second,
		NeedNetwork: o.Script == nil || !o.Script.AtBoot,
		Labels: map[string]string{
			labelInstance: in.id, labelClaim: in.order.Claim, labelContent: o.ContentID,
			labelNode: a.opts.Identity.NodeID,
		},
	}
	if s.BootTimeout <= 0 {
		s.BootTimeout = startDefault
	}
	if s.Disks, err = disks(config.HardDrives, dir); err != nil {
		return hv.Spec{}, err
	}
	if config.CPU != nil && config.CPU.Cores > 0 {
		s.CPUs = config.CPU.Cores
	}
	if config.RAM != "" {
		ram, err := size.Parse("ram", config.RAM, size.MB)
		if err != nil {
			return hv.Spec{}, err
		}
		s.MemoryMB = int(ram / size.MB)
	}
	if config.Firmware != nil {
		s.Firmware = config.Firmware.Type
	}
	s.Network, s.Ports = network(config.NetworkCards, o)
	return s, nil
}

// disks refuses file names that would lead out of the version's directory: a
// configuration comes from whoever pushed it.
func disks(drives []api.ConfigDrive, dir string) ([]hv.Disk, error) {
	list := make([]hv.Disk, len(drives))
	for i, d := range drives {
		if d.File == "" || d.File != filepath.Base(d.File) || !filepath.IsLocal(d.File) {
			return nil, farm.Refused("The template names a disk %q, which is no plain file name", d.File)
		}
		list[i] = hv.Disk{Path: filepath.Join(dir, d.File), Format: d.Format}
		if d.Format == "" {
			list[i].Format = formatOf(d.File)
		}
	}
	return list, nil
}

// formatOf goes by the name only: a guest can write any header into its disk.
func formatOf(file string) string {
	if strings.HasSuffix(file, ".qcow2") {
		return "qcow2"
	}
	return "raw"
}

// network gives the mode and the port rules: the template's, unless the order
// brings others.
func network(cards []api.ConfigNIC, o *api.StartOrder) (hv.NetworkMode, []hv.PortRule) {
	mode := hv.NetworkShared
	var rules []hv.PortRule
	for i, card := range cards {
		if i == 0 && card.Mode != "" && card.Mode != "nat" {
			mode = hv.NetworkMode(card.Mode)
		}
		for _, p := range card.PortRules {
			rules = append(rules, hv.PortRule{
				Name: p.RuleName, GuestPort: p.GuestPort, HostPort: p.HostPort, HostIP: p.HostIP, Protocol: p.Protocol,
			})
		}
	}
	if !o.PortOverride {
		return mode, rules
	}
	rules = make([]hv.PortRule, len(o.Ports))
	for i, p := range o.Ports {
		rules[i] = hv.PortRule(p)
	}
	return mode, rules
}

// linkVM says what is known of a VM.
func (a *Agent) linkVM(vm hv.VM) *api.LinkVM {
	out := &api.LinkVM{
		UUID: vm.UUID, Name: vm.Name, Status: string(vm.Status), Version: vm.Version, Accel: vm.Accelerator,
		PID: vm.PID, CPUs: vm.CPUs, MemoryMB: vm.MemoryMB, IP: vm.IP, HostIP: a.opts.Identity.Host,
		Created: plain(vm.CreatedAt), Started: plain(vm.StartedAt), Stopped: plain(vm.StoppedAt),
	}
	for _, p := range vm.Ports {
		l := api.LinkPort(p)
		if l.Protocol == "" {
			l.Protocol = "tcp"
		}
		out.Ports = append(out.Ports, l)
	}
	return out
}

// plain drops what a journal does not keep of a time, so that equal stays equal.
func plain(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

func sameVM(a, b *api.LinkVM) bool { return reflect.DeepEqual(a, b) }

// gone is what is said of a VM that is not there any more: what was known of it last.
func gone(vm *api.LinkVM) *api.LinkVM {
	if vm == nil || vm.Status == string(farm.VMDeleted) {
		return vm
	}
	out := *vm
	out.Status, out.PID, out.IP = string(farm.VMDeleted), 0, ""
	if out.Stopped.IsZero() {
		out.Stopped = plain(time.Now())
	}
	return &out
}
