package controllerrest

import (
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// networkRoutes are the routes of USB devices, MAC addresses and VLANs.
func (s *server) networkRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/usb", Permission: "list_nodes", Handle: s.listUSB},
		{Pattern: "GET /api/v1/vlan", Permission: "list_nodes", Handle: s.listVLANs},
		{Pattern: "GET /api/v1/macaddr", Permission: "list_nodes", Handle: s.listMACs},
		{Pattern: "PUT /api/v1/macaddr", Permission: "change_config", Handle: s.populateMACs},
		{Pattern: "DELETE /api/v1/macaddr", Permission: "change_config", Handle: s.purgeMACs},
	}
}

func (s *server) listUSB(r *rest.Request) (any, error) {
	out := map[string]api.USBCount{}
	for name, n := range s.controller.Nodes.USB(s.visibilityOf(r).seesNode) {
		out[name] = api.USBCount(n)
	}
	return out, nil
}

func (s *server) listVLANs(r *rest.Request) (any, error) {
	return vlanTexts(s.controller.Nodes.VLANs(s.visibilityOf(r).seesNode)), nil
}

// vlanTexts formats IDs for clients.
func vlanTexts(ids []int) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.Itoa(id)
	}
	return out
}

// Limits of one page of MAC addresses.
const maxMACPage = 10_000

// listMACs returns addresses when a limit is given, else their numbers.
func (s *server) listMACs(r *rest.Request) (any, error) {
	p := r.Params
	counts, _ := p.Flag("count")
	inUse, asked := p.Flag("in_use")
	limit := p.Int("limit", 0, 1, maxMACPage)
	last := macParam(p, "last")
	switch {
	case !counts && !asked && limit == 0:
		p.RecordError("count", "one of count, in_use and limit is required")
	case p.Has("last") && limit == 0:
		p.RecordError("last", "requires limit")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	var only *bool
	if asked {
		only = &inUse
	}
	if limit == 0 {
		return s.controller.MACs.Count(only)
	}
	list, err := s.controller.MACs.List(macpool.Query{InUse: only, After: last, Limit: limit})
	return macItems(list), err
}

func macItems(list []farm.MACAddress) []api.MACAddress {
	out := make([]api.MACAddress, len(list))
	for i, a := range list {
		out[i] = api.MACAddress{MACAddress: a.Address, InUse: a.InstanceID != "", InstanceID: a.InstanceID}
	}
	return out
}

func (s *server) populateMACs(r *rest.Request) (any, error) {
	return nil, s.controller.MACs.Populate(r.Context())
}

func (s *server) purgeMACs(r *rest.Request) (any, error) {
	return nil, s.controller.MACs.Purge(r.Context())
}
