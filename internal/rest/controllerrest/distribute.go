package controllerrest

import (
	"math"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

func (s *server) distribute(r *rest.Request) (any, error) {
	p := r.Params
	ask := cachejobs.DistributeRequest{
		TemplateID: p.Required("template_id"), Tag: p.Text("tag", maxTag), Version: versionParam(p),
		NodeSelector: cachejobs.NodeSelector{
			NodeIDs: nodeIDsParam(p), GroupIDs: groupIDsParam(p), Matches: s.nodeFilterParam(r),
		},
	}
	isDryRun := p.Bool("dry_run", false)
	p.Text("group", maxName)
	if err := p.Err(); err != nil {
		return nil, err
	}
	group, err := actingGroup(p, rest.CallerOf(r.Context()))
	if err != nil {
		return nil, err
	}
	ask.May = nodeRightChecker(r, group, rightDistribute)
	if isDryRun {
		preview, err := s.controller.CacheJobs.PreviewDistribution(r.Context(), ask)
		if err != nil {
			return nil, err
		}
		return api.DistributeAnswer{Preview: &preview}, nil
	}
	id, err := s.controller.CacheJobs.Distribute(r.Context(), ask)
	if err != nil {
		return nil, err
	}
	return api.DistributeAnswer{RequestID: id}, nil
}

// nodeIDsParam reads the requested node IDs; an empty list means all nodes, like an absent one.
func nodeIDsParam(p *rest.Params) []string {
	ids := p.Strings("node_ids")
	if len(ids) > cachejobs.MaxNodes {
		p.RecordError("node_ids", "must have at most %d elements", cachejobs.MaxNodes)
	}
	return ids
}

// maxSelectedGroups is how many groups a selection of nodes may name.
const maxSelectedGroups = 64

// groupIDsParam reads the groups of a selection of nodes, of which there may be one or several.
func groupIDsParam(p *rest.Params) []string {
	ids := p.Strings("group_ids")
	if len(ids) > maxSelectedGroups {
		p.RecordError("group_ids", "must have at most %d elements", maxSelectedGroups)
	}
	if id := p.String("group_id"); id != "" {
		ids = append(ids, id)
	}
	return ids
}

// nodeFilterParam reads the filter of a selection of nodes, and returns which of those that the caller sees it matches;
// nil without a filter.
func (s *server) nodeFilterParam(r *rest.Request) func(id string) bool {
	fits := filterParam(r.Params, s.nodeFields())
	if fits == nil {
		return nil
	}
	matching := map[string]bool{}
	for _, node := range s.nodesToAPI(s.controller.Nodes.Views(), s.visibilityOf(r)) {
		matching[node.NodeID] = fits(node)
	}
	return func(id string) bool { return matching[id] }
}

func (s *server) cancelDistribution(r *rest.Request) (any, error) {
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.CacheJobs.Cancel(r.Context(), id, nodeRightChecker(r, "", rightDistribute))
}

func (s *server) listDistributions(r *rest.Request) (any, error) {
	return listCacheJobs(s, r, farm.CacheJobDistribute, distributionToAPI)
}

func (s *server) listRemovals(r *rest.Request) (any, error) {
	return listCacheJobs(s, r, farm.CacheJobRemove, removalToAPI)
}

// listCacheJobs returns one cache job of a kind, or a list of them.
func listCacheJobs[T any](
	s *server, r *rest.Request, kind farm.CacheJobKind, shape func(cachejobs.View) T,
) (any, error) {
	p := r.Params
	id, after, limit := p.String("id"), strings.ToLower(p.String("after")), p.Int("limit", math.MaxInt, 1, maxPage)
	seen := s.visibilityOf(r)
	fits := filterParam(p, seen.cacheJobFields())
	if after != "" && uuid.Validate(after) != nil {
		p.RecordError("after", "must be the ID of a request")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if id != "" {
		view, err := s.controller.CacheJobs.Get(r.Context(), kind, id)
		if err != nil {
			return nil, err
		}
		return shape(seen.visiblePart(view)), nil
	}
	list := []T{}
	for _, view := range s.controller.CacheJobs.List(kind, after, limit, fits) {
		list = append(list, shape(seen.visiblePart(view)))
	}
	return list, nil
}

// distributionToAPI converts a distribution to its API form.
func distributionToAPI(v cachejobs.View) api.Distribution {
	out := api.Distribution{
		Request: api.DistributionRequest{
			RequestID: v.ID, TemplateID: v.Template.ID, TimeRequested: v.RequestedAt, Tag: v.Template.Tag,
			Version: v.Template.Version,
		},
		Status: make(map[string]api.DistributeStatus, len(v.On)),
	}
	for node, o := range v.On {
		out.Status[node] = api.DistributeStatus{Status: o.Done, Error: o.Error, Progress: o.Progress}
	}
	return out
}

// removalToAPI converts a removal to its API form.
func removalToAPI(v cachejobs.View) api.Removal {
	out := api.Removal{
		Request: api.RemovalRequest{RequestID: v.ID, TemplateID: v.Template.ID, TimeRequested: v.RequestedAt},
		Status:  make(map[string]api.RemoveStatus, len(v.On)),
	}
	for node, o := range v.On {
		out.Status[node] = api.RemoveStatus{
			Status: o.Done, Error: o.Error, Removed: o.RemovedVersions, Kept: o.KeptVersions,
		}
	}
	return out
}

func (s *server) removeFromNodes(r *rest.Request) (any, error) {
	id, ask := r.Params.Required("id"),
		cachejobs.NodeSelector{NodeIDs: nodeIDsParam(r.Params), May: nodeRightChecker(r, "", rightEvict)}
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	e, err := s.controller.CacheJobs.Remove(r.Context(), id, ask)
	if err != nil {
		return nil, err
	}
	return api.RemoveAnswer{RequestsSent: len(e.Nodes), NodeIDs: rest.NonNil(e.Nodes), RequestID: e.ID}, nil
}
