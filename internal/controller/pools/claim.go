package pools

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// fixed are the parameters of a start that a running VM cannot get: a start with one of them claims no standby. What
// is not listed applies to a running VM: name, external id, metadata, owner, priority, the startup script (it runs
// immediately, whatever its condition) and the time to live.
var fixed = []struct {
	name string
	has  func(o farm.StartOptions, ref farm.TemplateRef) bool
}{
	{"vcpu", func(o farm.StartOptions, ref farm.TemplateRef) bool { return o.CPUs != 0 && o.CPUs != ref.CPUs }},
	{"vram", func(o farm.StartOptions, ref farm.TemplateRef) bool {
		return o.MemoryMB != 0 && o.MemoryMB != ref.MemoryMB
	}},
	{"disk_size", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.DiskBytes != 0 }},
	{"port_forwarding_override", func(o farm.StartOptions, _ farm.TemplateRef) bool {
		return o.PortOverride || len(o.Ports) > 0
	}},
	{"network_mode", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.NetworkMode != "" }},
	{"network_local", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.NetworkLocal != "" }},
	{"mac_address", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.MACAddress != "" }},
	{"hw_uuid", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.HardwareUUID != "" }},
	{"hw_serial", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.HardwareSerial != "" }},
	{"video_controller", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.Video != "" }},
	{"vnc_password", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.VNCPassword != "" }},
	{"vlan_tag", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.VLAN != "" }},
	{"usb_device", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.USBDevice != "" }},
	{"name_template", func(o farm.StartOptions, _ farm.TemplateRef) bool { return o.NameTemplate != "" }},
}

// Claim replaces instances of a start by those that standbys become, as many as there are standbys, and notes the pool
// in the others. The result is for the creation; release ends the claim of this process, when it is written or not.
func (s *Pools) Claim(instances []*farm.Instance) (standbys map[string]placement.Standby, release func()) {
	release = func() {}
	pool := s.poolFor(instances[0])
	if pool == nil {
		return nil, release
	}
	ready := s.pick(pool, instances[0], len(instances))
	standbys = make(map[string]placement.Standby, len(ready))
	for i, inst := range instances {
		if i >= len(ready) {
			inst.MissedPool = pool.ID
			continue
		}
		instances[i] = ready[i].Record.ClaimedBy(inst, uuid.NewString(), s.db.Now())
		standbys[instances[i].ID] = ready[i]
	}
	return standbys, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id := range standbys {
			delete(s.picked, id)
		}
	}
}

// poolFor returns the pool that a start could claim standbys of; nil for none.
func (s *Pools) poolFor(inst *farm.Instance) *farm.Pool {
	if s.db.Tables.Pools.Len() == 0 {
		return nil
	}
	for _, f := range fixed {
		if f.has(inst.Options, inst.Template) {
			return nil
		}
	}
	var found *farm.Pool
	for _, p := range s.db.Tables.Pools.All() {
		if p.TemplateID != inst.Template.ID || p.GroupID != inst.GroupID || p.Tag != "" && p.Tag != inst.Template.Tag {
			continue
		}
		if found == nil || len(s.claimable(p, inst)) > 0 {
			found = p
		}
	}
	if found != nil && found.Tag == "" && len(s.claimable(found, inst)) == 0 && !s.keeps(found, inst.Template) {
		return nil // the start is of another version than the pool has
	}
	return found
}

// keeps reports whether the pool boots standbys of a version, as far as this replica knows.
func (s *Pools) keeps(p *farm.Pool, ref farm.TemplateRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, known := s.states[p.ID]
	return !known || state.ref == farm.TemplateRef{} || state.ref == ref
}

// claimable returns the standbys of a pool that a start can claim: the ready ones, then those that boot, each the
// oldest first. One that boots is claimed rather than another VM started, since it is ahead.
func (s *Pools) claimable(p *farm.Pool, want *farm.Instance) []placement.Standby {
	var list []placement.Standby
	for id, inst := range s.db.Tables.Instances.Where(record.ByPool, p.ID) {
		if !inst.IsReady() && !inst.IsBooting() || inst.Template != want.Template ||
			s.o.Placer.Exclusion(want, inst.NodeID) != "" {
			continue
		}
		if now, rev, ok := s.db.Tables.Instances.Get(id); ok && (now.IsReady() || now.IsBooting()) {
			list = append(list, placement.Standby{Record: now, Rev: rev})
		}
	}
	slices.SortFunc(list, func(a, b placement.Standby) int {
		return cmp.Or(compareBool(a.Record.IsReady(), b.Record.IsReady()),
			a.Record.Created.Compare(b.Record.Created), strings.Compare(a.Record.ID, b.Record.ID))
	})
	return list
}

// compareBool orders what has a property before what does not.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// pick reserves standbys in this process, so that two requests do not try to claim the same one.
func (s *Pools) pick(p *farm.Pool, want *farm.Instance, limit int) []placement.Standby {
	list := s.claimable(p, want)
	s.mu.Lock()
	defer s.mu.Unlock()
	list = slices.DeleteFunc(list, func(b placement.Standby) bool { return s.picked[b.Record.ID] })
	list = list[:min(len(list), limit)]
	for _, b := range list {
		s.picked[b.Record.ID] = true
	}
	return list
}
