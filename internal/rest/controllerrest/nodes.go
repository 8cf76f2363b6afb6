package controllerrest

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/templates"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// listNodes returns an array, with one element when an ID is given.
func (s *server) listNodes(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	id, part, fits := r.Params.String("id"), sliceParam(r.Params), filterParam(r.Params, s.nodeFields())
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		view, err := s.controller.Nodes.Get(r.Context(), id)
		if err == nil && !seen.seesNode(view.Node.ID) {
			err = farm.NotFound()
		}
		if err != nil {
			return nil, err
		}
		list := s.nodesToAPI(slices.Values([]nodes.View{view}), seen)
		caller := rest.CallerOf(r.Context())
		mayList := caller.RequirePermission("list_vms") == nil
		list[0].Slots.Holders = s.slotHoldersToAPI(s.controller.Nodes.SlotHolders(view.Node),
			func(inst *farm.Instance) bool { return mayList && seen.seesBoth(inst.NodeID, inst.Template.ID) },
			caller.RequirePermission("change_node_config") == nil) // as the list of orphaned VMs
		return withNodesTag(list), nil
	}
	list := s.nodesToAPI(s.controller.Nodes.Views(), seen)
	return withNodesTag(sliceList(filterList(list, fits), part, func(n api.Node) string { return n.NodeID })), nil
}

// maxTaggedNodes bounds the lists of nodes that are encoded twice for their tag.
const maxTaggedNodes = 2000

// withNodesTag adds an ETag to a list of nodes that ignores the times of their last contact: those change with every
// poll.
func withNodesTag(list []api.Node) any {
	if len(list) > maxTaggedNodes {
		return list
	}
	lasting := slices.Clone(list)
	for i := range lasting {
		lasting[i].LastUpdated, lasting[i].Timestamp = time.Time{}, 0
	}
	raw, err := json.Marshal(lasting)
	if err != nil {
		return list // encoding the response fails, too
	}
	return rest.WithETag{Body: list, ETag: rest.ContentTag(raw)}
}

func (s *server) deleteNode(r *rest.Request) (any, error) {
	id := r.Params.Required("node_id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := requireNodeRight(r, id, rightRemove); err != nil {
		return nil, err
	}
	return nil, s.controller.Nodes.Delete(r.Context(), id)
}

// nodesToAPI converts the nodes that the caller sees to their API form.
func (s *server) nodesToAPI(views iter.Seq[nodes.View], seen visibility) []api.Node {
	list := []api.Node{}
	equal := s.controller.Templates.EqualTags()
	for view := range views {
		if !seen.seesNode(view.Node.ID) {
			continue
		}
		node := nodeToAPI(view, seen)
		for _, t := range view.Info.Templates {
			if !seen.seesTemplate(t.ID) {
				continue
			}
			for _, tag := range equal[templates.Content{TemplateID: t.ID, ContentID: t.ContentID}] {
				if tag != t.Tag {
					node.Templates = append(node.Templates, api.NodeTag{UUID: t.ID, Name: t.Name, Tag: tag})
				}
			}
		}
		list = append(list, node)
	}
	return list
}

// nodeToAPI converts a node to its API form, with those of its templates that the caller sees.
func nodeToAPI(v nodes.View, seen visibility) api.Node {
	n, info := v.Node, v.Info
	out := api.Node{
		NodeID: n.ID, NodeName: n.Name, IPAddress: n.Host, State: string(n.VisibleState()),
		Capacity: n.VMLimit(&info), CapacityMode: string(n.CapacityMode), VCPUOverride: n.VCPUOverride,
		RAMOverride: n.RAMOverride,
		VCPULimit:   v.VCPULimit, RAMLimit: v.RAMLimit,
		CPUCount: info.CPUs, RAM: (info.MemoryMB + 512) / 1024,
		VMCount: max(v.Usage.VMs, 0), VCPUCount: max(v.Usage.VCPUs, 0), VRAM: max(v.Usage.VRAM, 0),
		CPUUtil: clampShare(v.Usage.CPU), RAMUtil: clampShare(v.Usage.RAM),
		DiskSize: info.DiskSize, FreeDisk: info.FreeDisk, DiskUsage: info.CacheUsage,
		HostArch: cmp.Or(info.Arch, "amd64"), AgentVersion: info.AgentVersion,
		OSVersion: info.OSVersion, Processor: info.Processor,
		AnkaVersion: api.ProductVersion{
			Product: info.Hypervisor.Driver, Version: info.Hypervisor.Version, Build: info.Hypervisor.Accelerator,
			License: info.Hypervisor.LicenseKind, Expires: info.Hypervisor.LicenseExpires,
		},
		Groups: []api.Group{}, Templates: []api.NodeTag{},
		LastUpdated: v.Seen, Timestamp: max(v.Seen.Unix(), 0), UnknownVMs: v.Unknown,
		Drain: drainToAPI(v), Update: nodeUpdateToAPI(n.Update), NoCentralLog: n.NoCentralLog,
	}
	if v.ClockOffset != nil {
		seconds := v.ClockOffset.Seconds()
		out.ClockOffset = &seconds
	}
	slots := slotsToAPI(v.Slots)
	out.Slots = &slots
	out.StateSince, out.StateReason = n.VisibleSince()
	if v.Stage != "" && n.State == farm.NodeUpdating {
		out.StateReason += ": " + v.Stage
	}
	for _, g := range v.Groups {
		out.Groups = append(out.Groups, groupToAPI(g))
	}
	for _, t := range info.Templates {
		if seen.seesTemplate(t.ID) {
			out.Templates = append(out.Templates, api.NodeTag{UUID: t.ID, Name: t.Name, Tag: t.Tag})
		}
	}
	out.Peer = peerToAPI(v)
	if len(info.VLANs) > 0 {
		out.VLANs = vlanTexts(info.VLANs)
	}
	for _, u := range info.USBDevices {
		out.USBDevices = append(out.USBDevices, api.NodeUSB{Name: u.Name, Location: u.Location, Busy: u.Busy})
	}
	return out
}

// peerToAPI returns how a node exchanges versions with others; nil: it does not.
func peerToAPI(v nodes.View) *api.NodePeer {
	if v.Info.PeerAddress == "" {
		return nil
	}
	return &api.NodePeer{
		Address: v.Info.PeerAddress, ServedBytes: max(v.Usage.PeerServed, 0), FetchedBytes: max(v.Usage.PeerFetched, 0),
		Reports: v.PeerReports, Excluded: v.PeerExcluded,
	}
}

// nodeUpdateToAPI returns the update status of a node's agent; nil without an update.
func nodeUpdateToAPI(u *farm.AgentUpdate) *api.NodeUpdate {
	if u == nil {
		return nil
	}
	next := u.NextTryAt()
	if u.Tries == 0 {
		next = time.Time{} // as soon as the node polls
	}
	return &api.NodeUpdate{
		Version: u.Version, Asked: u.RequestedAt, Begun: u.TryBegunAt, Tries: u.Tries, Next: next,
		Failure: u.LastFailure,
	}
}

// clampShare limits a share to the range 0 to 1, whatever a node reports.
func clampShare(of float64) float64 { return min(max(of, 0), 1) }

// drainToAPI returns the drain status of a node; nil when it is not drained.
func drainToAPI(v nodes.View) *api.Drain {
	if !v.Node.Drain {
		return nil
	}
	d := v.Node.DrainInfo
	if d == nil { // from a record of an older version
		d = &farm.DrainInfo{Since: v.Node.StateSince}
	}
	return &api.Drain{Since: d.Since, Reason: d.Reason, Deadline: d.Until, Remaining: v.Remaining}
}
