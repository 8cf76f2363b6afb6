package nodelink

import (
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// storeInfo writes the description that a node sent, unless nothing in it that justifies a write
// has changed. If the node has sent new ones too often it is written later.
func (l *Link) storeInfo(ctx context.Context, s *session, info *farm.NodeInfo) error {
	s.describing.Lock()
	defer s.describing.Unlock()
	s.dropWrite(func(w *pacedWrites) { w.info, w.base = nil, nil })
	old, _, _ := l.db.Tables.Infos.Get(s.node)
	if old != nil && sameInfo(old, info) {
		return nil
	}
	if !l.allowWrite(ctx, s, func(w *pacedWrites) { w.info, w.base = info, old }) {
		return nil
	}
	return l.writeInfo(ctx, s, info, nil)
}

// writeInfo writes the description of a node. For a delayed write, base is the record at that time:
// if another replica has written one since, that stays, and the node is asked for everything when
// it polls here again.
func (l *Link) writeInfo(ctx context.Context, s *session, info, base *farm.NodeInfo) error {
	overtaken := false
	_, err := store.Update(ctx, l.db.Store, l.db.Tables.Infos,
		s.node, func(old *farm.NodeInfo) (*farm.NodeInfo, error) {
			overtaken = base != nil && old != nil && !sameInfo(old, base)
			if overtaken || old != nil && sameInfo(old, info) {
				return old, nil
			}
			return info, nil
		})
	if overtaken {
		s.mu.Lock()
		s.infoHash = ""
		s.mu.Unlock()
	}
	return err
}

// restoreContact brings an offline node back, and stores a changed address. If the address has
// changed too often it is written later.
func (l *Link) restoreContact(ctx context.Context, s *session, node *farm.Node, host string) error {
	moves := func(n *farm.Node) bool { return host != "" && host != n.Host && !n.HostFixed }
	s.dropWrite(func(w *pacedWrites) { w.host = "" })
	if node.State != farm.NodeOffline &&
		(!moves(node) || !l.allowWrite(ctx, s, func(w *pacedWrites) { w.host = host })) {
		return nil
	}
	event, reason := l.db.Tables.NodeInfo(node.ID).ContactEvent(l.db.Now())
	was := node.State
	now, err := store.Update(ctx, l.db.Store, l.db.Tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil {
			return nil, farm.Errorf(farm.CodeUnauthenticated, "the node was removed")
		}
		was = n.State
		to := n.Clone()
		if !to.ApplyEvent(event, reason, l.db.Now()) && !moves(n) {
			return n, nil
		}
		to.ResumeUpdateTry(l.db.Now())
		if moves(n) {
			to.Host = host
		}
		return to, nil
	})
	if err == nil && was != now.State {
		l.db.Log.InfoContext(ctx, "node contact restored", "node_id", node.ID, "was", string(was), "state",
			string(now.State),
			"reason", now.StateReason)
		l.opts.Instances.Resume(ctx, node.ID)
	}
	return err
}

// infoOf converts the description that a node sent.
func infoOf(node string, in *api.NodeInfo) *farm.NodeInfo {
	info := &farm.NodeInfo{
		NodeID: node, Arch: in.Arch, OS: in.OS, OSVersion: in.OSVersion, Processor: in.Processor,
		CPUs: in.CPUs, MemoryMB: in.MemoryMB,
		DiskSize: in.DiskSize, FreeDisk: in.FreeDisk, CacheUsage: in.CacheUsage, AgentVersion: in.AgentVersion,
		Hypervisor: farm.Hypervisor{
			Driver: in.Driver, Version: in.Hypervisor, Accelerator: in.Accelerator, Machine: in.Machine,
			CPUModel: in.CPUModel, HostCPU: in.HostCPU, LicenseKind: in.License, LicenseExpires: in.Expires,
			Problem: in.Problem,
		},
		Abilities: in.Abilities, VLANs: vlansOf(in.VLANs), OtherMacOS: in.OtherMacOS,
		PeerAddress: in.PeerAddress, PeerKey: in.PeerKey,
	}
	for _, t := range in.Templates {
		info.Templates = append(info.Templates, farm.NodeTemplate(t))
	}
	for _, u := range in.USB {
		info.USBDevices = append(info.USBDevices, farm.USBDevice(u))
	}
	return info
}

// vlansOf returns the valid VLAN ids, in ascending order.
func vlansOf(ids []int) []int {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return id < 1 || id > farm.MaxVLAN })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// sameInfo reports whether two descriptions have no difference that justifies a write: the disk
// numbers change all the time and are written along with other changes, or when they changed by
// more than a hundredth of the disk, and free space by more than a quarter of itself.
func sameInfo(a, b *farm.NodeInfo) bool {
	return a.Arch == b.Arch && a.OS == b.OS && a.OSVersion == b.OSVersion && a.Processor == b.Processor &&
		a.OtherMacOS == b.OtherMacOS &&
		a.CPUs == b.CPUs &&
		a.MemoryMB == b.MemoryMB && a.DiskSize == b.DiskSize && a.AgentVersion == b.AgentVersion &&
		a.Hypervisor == b.Hypervisor && slices.Equal(a.Templates, b.Templates) &&
		slices.Equal(a.USBDevices, b.USBDevices) &&
		slices.Equal(a.Abilities, b.Abilities) && slices.Equal(a.VLANs, b.VLANs) &&
		a.PeerAddress == b.PeerAddress && a.PeerKey == b.PeerKey &&
		near(a.FreeDisk, b.FreeDisk, min(a.DiskSize, 25*max(a.FreeDisk, b.FreeDisk))) &&
		near(a.CacheUsage, b.CacheUsage, a.DiskSize)
}

func near(a, b, whole int64) bool { return max(a-b, b-a) <= whole/100 }
