package events

import (
	"maps"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// eventsBetween returns the events of a change of an instance's record: was is the record before
// it, nil for none, and now the one after it. Requests of clients other than the start are not
// visible in records: see Terminate.
func eventsBetween(was, now *farm.Instance) []farm.Event {
	var list []farm.Event
	add := func(name farm.EventName, of *farm.Instance, extra map[string]any) {
		list = append(list, farm.Event{Name: name, InstanceID: of.ID, Extra: extra})
	}
	if was != nil && was.IsStandby() { // a claim is a new instance for all others
		was = nil
	}
	if now != nil && now.IsStandby() {
		now = nil
	}
	switch {
	case was == nil && now == nil:
	case was == nil:
		if now.State == farm.Scheduling { // else it was found on a node
			add(farm.EventStartVM, now, started(now))
		}
	case now == nil:
		if was.State != farm.Terminated {
			add(farm.EventVMTerminated, was, ending(was, farm.Terminated))
		}
	default:
		if was.State == farm.Pulling && (now.State == farm.Scheduling || !now.Started.IsZero()) {
			event := pulled(now.Template, map[string]any{"node_id": now.NodeID})
			event.InstanceID = now.ID
			list = append(list, event)
		}
		if was.Started.IsZero() && !now.Started.IsZero() {
			add(farm.EventVMStarted, now, ending(now, farm.Started))
		}
		if now.State == farm.Errored && was.State != farm.Errored && now.Started.IsZero() {
			extra := ending(now, now.State)
			extra["message"] = farm.Clip(now.Message, maxEventText)
			extra["failure"] = failure(now.ShownFailure(), now.NodeID)
			add(farm.EventVMFailedToStart, now, extra)
		}
		if now.State == farm.Terminated && was.State != farm.Terminated {
			add(farm.EventVMTerminated, now, ending(now, farm.Terminated))
		}
	}
	return list
}

// failure returns the key of an event with why an instance failed: the object of the API.
func failure(f *farm.Failure, node string) map[string]any {
	info := f.Class.Info()
	out := map[string]any{
		"class": info.Class, "step": f.Step, "summary": info.Summary, "remedy": info.Remedy,
	}
	if node != "" {
		out["at_node"] = node
	}
	return out
}

// maxEventText bounds a text of any length in an event, in bytes.
const maxEventText = 1024

// started returns the additional keys of a StartVM: the parameters of the request.
func started(i *farm.Instance) map[string]any {
	priority := i.Options.Priority
	if priority == farm.DefaultPriority { // it was not set, or has the same effect as not set
		priority = 0
	}
	return map[string]any{
		"template_id": i.Template.ID, "tag": i.Template.Tag, "priority": priority,
		"group_id": nullable(i.GroupID), "node_id": nullable(i.Options.PinnedNode),
	}
}

// ending returns the additional keys of the event that ends a VM: its state, and the node id, which
// is an extension of ours.
func ending(i *farm.Instance, state farm.InstanceState) map[string]any {
	return map[string]any{"state": state, "node_id": nullable(i.NodeID)}
}

// nullable returns a text, nil for none.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// eventsFor returns the events that follow from the records among changes.
func (e *Log) eventsFor(changes []store.Change) []farm.Event {
	var list []farm.Event
	for _, change := range changes {
		if !change.Writes() {
			continue
		}
		switch change.Kind() {
		case record.KindInstance:
			was, _, _ := e.db.Tables.Instances.Get(change.ID())
			now, _ := change.Value().(*farm.Instance)
			list = append(list, eventsBetween(was, now)...)
		case record.KindNode:
			list = e.addNodeState(list, change)
		case record.KindCacheJob:
			_, _, known := e.db.Tables.CacheJobs.Get(change.ID())
			if now, ok := change.Value().(*farm.CacheJob); ok && !known && now.Kind == farm.CacheJobDistribute {
				list = append(list, distributed(now))
			}
		case record.KindCacheJobResult:
			id, node := record.SplitCacheJobResultID(change.ID())
			of, _, known := e.db.Tables.CacheJobs.Get(id)
			if o, ok := change.Value().(*farm.CacheJobResult); ok && known && o.Done &&
				of.Kind == farm.CacheJobDistribute {
				list = append(list, pulled(of.Template, map[string]any{"node_id": node, "request_id": id}))
			}
		}
	}
	return list
}

// maxEventNodes bounds the nodes that an event names.
const maxEventNodes = 100

// distributed returns the event of a distribution.
func distributed(e *farm.CacheJob) farm.Event {
	return farm.Event{Name: farm.EventDistribute, Extra: map[string]any{
		"request_id": e.ID, "template_id": e.Template.ID, "template_name": e.Template.Name, "tag": e.Template.Tag,
		"version":    e.Template.Version,
		"node_count": len(e.Nodes), "node_ids": e.Nodes[:min(len(e.Nodes), maxEventNodes)],
	}}
}

// pulled returns the event of a version that a node has pulled.
func pulled(t farm.TemplateRef, extra map[string]any) farm.Event {
	all := map[string]any{"template_id": t.ID, "template_name": t.Name, "tag": t.Tag, "version": t.Version}
	maps.Copy(all, extra)
	return farm.Event{Name: farm.EventTemplatePulled, Extra: all}
}
