package controllerrest

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/templates"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
)

// tablePart describes the requested rows of a table.
type tablePart[T any] struct {
	order       filter.Order[T]
	skip, limit int
}

const defaultRows = 100

// tablePartParam reads the requested rows of a table.
func tablePartParam[T any](p *rest.Params, fields filter.Table[T]) tablePart[T] {
	order, err := fields.ParseOrder(p.Text("sort", maxName))
	if err != nil {
		p.RecordError("sort", "%v", err)
	}
	return tablePart[T]{order: order, skip: p.Int("skip", 0, 0, math.MaxInt32), limit: p.Int("limit", defaultRows, 1,
		maxPage)}
}

// rows returns the part of a list in its order.
func (p tablePart[T]) rows(list []T) []T {
	first := p.order.First(list, p.skip+p.limit)
	return first[min(p.skip, len(first)):]
}

// pageVMs returns a part of the instances with the counts of all that match.
func (s *server) pageVMs(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	fields := seen.vmFields(s.vmFields)
	fits, part := filterParam(r.Params, fields), tablePartParam(r.Params, fields)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	rows, states := s.instancePart(fits, part)
	out := pageHeader{States: map[string]int{}, Nodes: map[string]string{}, Templates: map[string]string{}}
	for _, state := range farm.InstanceStates {
		out.States[string(state)] = states[state]
		out.Total += states[state]
	}
	for _, inst := range rows {
		if inst.NodeID != "" && seen.seesNode(inst.NodeID) {
			out.Nodes[inst.NodeID] = inst.NodeName
		}
		if seen.seesTemplate(inst.Template.ID) {
			out.Templates[inst.Template.ID] = inst.Template.Name
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	last := len(text) - 1 // the brace, after which the list is inserted
	return slices.Concat(rest.Fragments{text[:last], []byte(`,"instances":`)}, elements(rows, false),
		rest.Fragments{text[last:]}), nil
}

// pageHeader is an api.InstancePage without its instances, which are already JSON text.
type pageHeader struct {
	Total     int               `json:"total"`
	States    map[string]int    `json:"states"`
	Nodes     map[string]string `json:"nodes"`
	Templates map[string]string `json:"templates"`
}

// instancePart returns a part of the instances, with the number of matching instances in each state. The portal's
// default view needs no iteration over all instances.
func (s *server) instancePart(
	fits func(instances.View) bool, part tablePart[instances.View],
) (rows []instances.View, states map[farm.InstanceState]int) {
	if fits == nil && part.order.String() == "age" {
		return s.controller.Instances.Newest(part.skip, part.limit)
	}
	list := s.controller.Instances.List(instances.Page{Match: fits})
	states = map[farm.InstanceState]int{}
	for _, inst := range list {
		states[inst.State]++
	}
	return part.rows(list), states
}

// pageNodes returns a part of the nodes with the counts of all that match.
func (s *server) pageNodes(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	fields := s.nodeFields()
	fits, part := filterParam(r.Params, fields), tablePartParam(r.Params, fields)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	list := filterList(s.nodesToAPI(s.controller.Nodes.Views(), seen), fits)
	out := api.NodePage{Total: len(list), States: map[string]int{}, Groups: map[string]int{}}
	for _, state := range visibleNodeStates {
		out.States[string(state)] = 0
	}
	active := 0
	for _, n := range list {
		out.States[n.State]++
		out.VMs += n.VMCount
		for _, g := range n.Groups {
			out.Groups[g.ID]++
		}
		if n.State == string(farm.NodeActive) {
			active++
			out.Capacity += n.Capacity
			out.CPUUtil += n.CPUUtil
			out.RAMUtil += n.RAMUtil
		}
	}
	if active > 0 {
		out.CPUUtil, out.RAMUtil = out.CPUUtil/float64(active), out.RAMUtil/float64(active)
	}
	out.Nodes = append([]api.Node{}, part.rows(list)...)
	return out, nil
}

// templateRowFields are the fields of templates in a table.
var templateRowFields = func() (t filter.Table[api.TemplateRow]) {
	for _, f := range templateFields {
		of := filter.Field[api.TemplateRow]{
			Name: f.Name, IsDefault: f.IsDefault, Values: f.Values, Summary: f.Summary,
		}
		if f.Text != nil {
			of.Text = func(r api.TemplateRow) string { return f.Text(r.Template) }
		}
		if f.Size != nil {
			of.Size = func(r api.TemplateRow) float64 { return f.Size(r.Template) }
		}
		t = append(t, of)
	}
	return append(t,
		filter.Field[api.TemplateRow]{
			Name: "versions", Number: func(r api.TemplateRow) float64 { return float64(r.VersionCount) },
		},
		filter.Field[api.TemplateRow]{
			Name: "nodes", Number: func(r api.TemplateRow) float64 { return float64(r.Nodes) },
		},
		filter.Field[api.TemplateRow]{
			Name: "pushed", Age: func(r api.TemplateRow) time.Time { return epochTime(r.LastPush) },
		},
		filter.Field[api.TemplateRow]{
			Name: "pulled", Age: func(r api.TemplateRow) time.Time { return epochTime(r.LastPull) },
		},
	)
}()

// epochTime converts a time of the registry; the zero time means never.
func epochTime(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// pageTemplates returns a part of the templates, with the number of nodes that cache each.
func (s *server) pageTemplates(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	fits, part := filterParam(r.Params, templateRowFields), tablePartParam(r.Params, templateRowFields)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	list, err := s.templateRows(r.Context(), seen)
	if err != nil {
		return nil, err
	}
	list = filterList(list, fits)
	return api.TemplatePage{Total: len(list), Templates: append([]api.TemplateRow{}, part.rows(list)...)}, nil
}

// templateRows returns the templates that the caller sees, with the number of nodes that cache each.
func (s *server) templateRows(ctx context.Context, seen visibility) ([]api.TemplateRow, error) {
	all, err := s.controller.Templates.List(ctx)
	if err != nil {
		return nil, err
	}
	nodes := s.countTemplateNodes(seen)
	list := make([]api.TemplateRow, len(all))
	for i, t := range all {
		list[i] = api.TemplateRow{Template: t, Nodes: nodes[t.ID]}
	}
	return list, nil
}

// countTemplateNodes counts the nodes that cache a version of each template, of those that the caller sees.
func (s *server) countTemplateNodes(seen visibility) map[string]int {
	nodes := map[string]int{}
	for id, held := range s.controller.Nodes.CachedVersions() {
		if !seen.seesNode(id) {
			continue
		}
		for i, t := range held {
			first := slices.IndexFunc(held, func(o farm.NodeTemplate) bool { return o.ID == t.ID })
			if first == i {
				nodes[t.ID]++
			}
		}
	}
	return nodes
}

// listTemplateNodes returns the nodes that cache versions of a template, by name.
func (s *server) listTemplateNodes(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	id := strings.ToLower(r.Params.Required("id"))
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if !seen.seesTemplate(id) {
		return nil, farm.NotFound()
	}
	equal := s.controller.Templates.EqualTags()
	list := []api.TemplateNode{}
	for view := range s.controller.Nodes.Views() {
		if !seen.seesNode(view.Node.ID) {
			continue
		}
		h := api.TemplateNode{NodeID: view.Node.ID, NodeName: view.Node.Name, State: string(view.Node.VisibleState())}
		for _, t := range view.Info.Templates {
			if t.ID != id {
				continue
			}
			h.Versions = append(h.Versions, api.CachedVersion{Tag: t.Tag, ContentID: t.ContentID, Size: t.Size})
			for _, tag := range equal[templates.Content{TemplateID: id, ContentID: t.ContentID}] {
				if tag != t.Tag {
					h.Versions = append(h.Versions, api.CachedVersion{Tag: tag, ContentID: t.ContentID, Size: t.Size})
				}
			}
		}
		if len(h.Versions) > 0 {
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(a, b api.TemplateNode) int { return strings.Compare(a.NodeName, b.NodeName) })
	return list, nil
}
