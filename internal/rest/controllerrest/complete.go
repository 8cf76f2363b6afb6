package controllerrest

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
)

// Limits of a completion.
const (
	defaultCompletions = 20
	maxCompletions     = 100
)

// completedResources are the lists whose filters are completed, with the permission of the list.
var completedResources = map[string]struct {
	permission farm.Permission
	complete   func(s *server, ctx context.Context, seen visibility, text string, limit int) (filter.Completion, error)
}{
	"instances": {"list_vms", (*server).completeInstances},
	"nodes":     {"list_nodes", (*server).completeNodes},
	"templates": {"registry_list", (*server).completeTemplates},
}

// completeFilter returns how the last word of a filter can go on.
func (s *server) completeFilter(r *rest.Request) (any, error) {
	p := r.Params
	name := p.OneOf("resource", "instances", "nodes", "templates")
	if name == "" {
		p.RecordError("resource", "is required: instances, nodes or templates")
	}
	text := p.Text("q", filter.MaxTextBytes)
	limit := p.Int("limit", defaultCompletions, 1, maxCompletions)
	if err := p.Err(); err != nil {
		return nil, err
	}
	resource := completedResources[name]
	if err := rest.CallerOf(r.Context()).RequirePermission(resource.permission); err != nil {
		return nil, err
	}
	found, err := resource.complete(s, r.Context(), s.visibilityOf(r).memoized(), text, limit)
	if err != nil {
		return nil, err
	}
	return completionToAPI(found), nil
}

func completionToAPI(c filter.Completion) api.Completion {
	out := api.Completion{Start: c.Start, Fields: []api.CompletionField{}, Values: []api.CompletionValue{}}
	for _, f := range c.Fields {
		out.Fields = append(out.Fields, api.CompletionField{Name: f.Name, Text: f.Text})
	}
	for _, v := range c.Values {
		out.Values = append(out.Values, api.CompletionValue{Value: v.Term, Text: v.Value, Count: v.Count})
	}
	return out
}

// completeIn completes a text from the records of a resource.
func completeIn[T any](
	fields filter.Table[T], text string, records iter.Seq[T], limit int,
) (filter.Completion, error) {
	c, err := fields.Complete(text, records, limit, time.Now())
	if err != nil {
		return c, farm.Invalid("q", "%v", err)
	}
	return c, nil
}

// completeInstances reads the records alone: messages that are computed are not searched for a completion.
func (s *server) completeInstances(
	_ context.Context, seen visibility, text string, limit int,
) (filter.Completion, error) {
	views := func(yield func(instances.View) bool) {
		for inst := range s.controller.Instances.Records() {
			if !yield(instances.View{Instance: inst, Message: inst.Message}) {
				return
			}
		}
	}
	return completeIn(seen.vmFields(s.vmFields), text, views, limit)
}

func (s *server) completeNodes(
	_ context.Context, seen visibility, text string, limit int,
) (filter.Completion, error) {
	nodes := s.nodesToAPI(s.controller.Nodes.Views(), seen)
	return completeIn(s.nodeFields(), text, slices.Values(nodes), limit)
}

func (s *server) completeTemplates(
	ctx context.Context, seen visibility, text string, limit int,
) (filter.Completion, error) {
	rows, err := s.templateRows(ctx, seen)
	if err != nil {
		return filter.Completion{}, err
	}
	return completeIn(templateRowFields, text, slices.Values(rows), limit)
}
