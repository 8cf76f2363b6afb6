package controllerrest

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Limits of a page of the history.
const (
	maxPastPage     = 1000
	defaultPastPage = 100
)

// listHistory returns the terminated instances, the newest first; with an id only that one.
func (s *server) listHistory(r *rest.Request) (any, error) {
	p, seen := r.Params, s.visibilityOf(r)
	q := history.Query{
		ID: p.Text("id", maxName), ExternalID: p.Text("external_id", maxExternalID), After: p.Text("after", maxName),
		Limit: p.Int("limit", defaultPastPage, 1, maxPastPage),
		Match: filterParam(p, seen.pastFields()),
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	past := s.controller.History.List(q)
	list := make([]api.HistoryInstance, len(past))
	for i, p := range past {
		list[i] = historyToAPI(p, seen)
	}
	if q.ID == "" {
		return list, nil
	}
	if len(list) == 0 {
		return nil, farm.NotFound()
	}
	return list[0], nil
}

// historyToAPI converts a terminated instance to its API form, without the names of a node and a template that the
// caller does not see.
func historyToAPI(p *farm.InstanceHistory, seen visibility) api.HistoryInstance {
	out := api.HistoryInstance{
		InstanceID: p.ID, Name: p.Name, ExternalID: p.ExternalID,
		VMID: p.TemplateID, TemplateName: p.TemplateName, Tag: p.Tag, Version: p.Version, Arch: p.Arch,
		GroupID: p.GroupID, Owner: p.Owner, NodeID: p.NodeID, NodeName: p.NodeName,
		Message: p.Message, Failure: failureToAPI(p.Failure, p.NodeID), ScriptCode: p.ScriptCode, TTL: p.TTL,
		CRTime: p.Created, Placed: p.Placed, Started: p.Started, Finished: p.Finished,
		Transitions: controller.Transitions(p.Transitions, p.BootStarted),
	}
	if !seen.seesNode(p.NodeID) {
		out.NodeName = ""
	}
	if !seen.seesTemplate(p.TemplateID) {
		out.TemplateName = ""
	}
	return out
}

// maxTTL is the longest time to live that can be requested.
const maxTTL = 365 * 24 * time.Hour

// ttlParam reads the lifetime of an instance, in whole seconds.
func ttlParam(p *rest.Params) time.Duration {
	d := p.Duration("ttl", maxTTL)
	if d%time.Second != 0 {
		p.RecordError("ttl", "must be whole seconds")
	}
	return d
}
