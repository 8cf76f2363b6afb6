package controllerrest

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// listOrphanedVMs returns the orphaned VMs, of one node or of all.
func (s *server) listOrphanedVMs(r *rest.Request) (any, error) {
	node := r.Params.String("node")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	seen := s.visibilityOf(r)
	list, err := s.controller.Adoption.List(r.Context(), node)
	if seen.isRestricted && farm.CodeOf(err) == farm.CodeNotFound { // as for a node that the caller does not see
		err = nil
	}
	if err != nil {
		return nil, err
	}
	out := make([]api.OrphanedVM, len(list))
	for i, u := range list {
		out[i] = orphanedVMToAPI(u)
	}
	return slices.DeleteFunc(out, func(u api.OrphanedVM) bool { return !seen.seesNode(u.NodeID) }), nil
}

func orphanedVMToAPI(u record.OrphanedVM) api.OrphanedVM {
	out := api.OrphanedVM{
		NodeID: u.Node.ID, NodeName: u.Node.Name, ID: u.ID, InstanceID: u.Held.InstanceID, VMID: u.Held.VMID,
		Since: u.Since, Fate: api.FateUndecided,
	}
	switch {
	case u.Ordered:
		out.Fate = api.FateRemoving
	case u.Released:
		out.Fate = api.FateReleased
	}
	if d := u.Detail; d != nil {
		out.Status = string(d.Status.Phase)
		if d.Start != nil {
			out.Name, out.Template, out.Tag = d.Start.VMName, d.Start.TemplateName, d.Start.Tag
		}
		if vm := d.Status.VM; vm != nil {
			out.Name, out.Status = cmp.Or(vm.Name, out.Name), cmp.Or(vm.Status, out.Status)
		}
	}
	return out
}

// adopt adopts or removes orphaned VMs.
func (s *server) adopt(r *rest.Request) (any, error) {
	p := r.Params
	ask := adoption.Request{
		Node: p.Required("node"), VMs: p.Strings("vms"), DryRun: p.Bool("dry_run", false),
		May:    nodeRightChecker(r, "", rightConfig),
		Action: adoption.Action(p.OneOf("action", string(adoption.Keep), string(adoption.Remove))),
	}
	if ask.Action == "" {
		p.Required("action")
	}
	if n := len(ask.VMs); p.Has("vms") && (n == 0 || n > adoption.MaxVMs) {
		p.RecordError("vms", "must have 1 to %d elements; leave it out to select all orphaned VMs of the node",
			adoption.MaxVMs)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	list, err := s.controller.Adoption.Adopt(r.Context(), ask)
	if err != nil {
		return nil, err
	}
	out := make([]api.OrphanOutcome, len(list))
	for i, done := range list {
		out[i] = api.OrphanOutcome(done)
	}
	return out, nil
}
