package agent

import (
	"reflect"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/vmconfig"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// The labels of every VM of an agent: the driver returns them when the journal is lost.
const (
	labelInstance = "instance"
	labelClaim    = "claim"
	labelContent  = "content"
	labelNode     = "node" // id of the node at its start
	labelRole     = "role" // roleTestVM, or missing for an instance's own VM
)

// vmSpec returns the VM that an order and the configuration of its version describe.
func (a *Agent) vmSpec(in *instance) (hv.Spec, error) {
	o := in.order.Start
	config, v, err := a.opts.Templates.Config(o.ContentID)
	if err != nil {
		return hv.Spec{}, err
	}
	s, err := vmconfig.VMSpec(config, versionFiles(v), o)
	if err != nil {
		return hv.Spec{}, err
	}
	s.ID, s.Name, s.UUID = in.id, o.VMName, in.id
	if s.Apple != nil && config.Apple.Identity == api.IdentityNew {
		s.Apple.MachineID = hv.NewMachineID(in.id)
	}
	s.BootTimeout = bootTimeout(o)
	s.NeedNetwork = o.Script == nil || !o.Script.AtBoot
	s.Labels = map[string]string{
		labelInstance: in.id, labelClaim: in.order.Claim, labelContent: o.ContentID,
		labelNode: a.opts.Identity.NodeID,
	}
	return s, nil
}

// versionFiles returns where the files of a cached version are.
func versionFiles(v cache.Version) vmconfig.Files {
	at := vmconfig.Files{Dir: v.Dir, Disks: map[string]hv.Disk{}}
	for name, d := range v.Disks {
		at.Disks[name] = hv.Disk{Path: d.Path, Format: d.Format, Deltas: d.Overlays}
	}
	return at
}

func bootTimeout(o *api.StartOrder) time.Duration {
	if o.StartTimeout <= 0 {
		return defaultBootTimeout
	}
	return time.Duration(o.StartTimeout) * time.Second
}

// linkVM converts a VM to its wire form.
func (a *Agent) linkVM(vm hv.VM) *api.NodeVM {
	out := &api.NodeVM{
		UUID: vm.UUID, Name: vm.Name, Status: string(vm.Status), Version: vm.Version, Accel: vm.Accelerator,
		PID: vm.PID, CPUs: vm.CPUs, MemoryMB: vm.MemoryMB, IP: vm.IP, HostIP: a.opts.Identity.Host,
		MAC: vm.MAC, VNCPort: vm.VNCPort,
		Created: journalTime(vm.CreatedAt), Started: journalTime(vm.StartedAt), Stopped: journalTime(vm.StoppedAt),
	}
	for _, p := range vm.Ports {
		l := api.NodePortRule(p)
		if l.Protocol == "" {
			l.Protocol = "tcp"
		}
		out.Ports = append(out.Ports, l)
	}
	return out
}

// journalTime drops what a journal does not store of a time, so that equal times stay equal.
func journalTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

func sameVM(a, b *api.NodeVM) bool { return reflect.DeepEqual(a, b) }

// factsOfGoneVM returns the facts of a VM that no longer exists: the last known ones.
func factsOfGoneVM(vm *api.NodeVM) *api.NodeVM {
	if vm == nil || vm.Status == string(farm.VMDeleted) {
		return vm
	}
	out := *vm
	out.Status, out.PID, out.IP = string(farm.VMDeleted), 0, ""
	if out.Stopped.IsZero() {
		out.Stopped = journalTime(time.Now())
	}
	return &out
}
