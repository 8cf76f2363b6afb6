package portal

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
)

// instanceView is the page of one instance.
type instanceView struct {
	ID, Name, State string
	Note            string
	Terminated      bool // it is gone, and remembered
	VM              api.Instance
	Template, Node  string
	Group           string // its name, or its id where that could not be asked
	Nodes           []api.NodeExplanation
	Timeline        []timelineEntry
	Raw             string
	CurlCommand     []string
	NoConsole       string // why there is none; "": there is a console
}

// timelineEntry is a state that an instance was in.
type timelineEntry struct {
	State, Message string
	Since          time.Time
	Duration       string // "": it is still in it
}

func showInstance(v *visit) (any, error) {
	id := v.request.PathValue("id")
	explained, err := v.Explain(v, id)
	if errors.Is(err, client.ErrNotFound) {
		return showTerminated(v, id)
	}
	if err != nil {
		return nil, err
	}
	vm := explained.Instance
	out := instanceView{
		ID: id, Name: instanceName(api.InstanceItem{InstanceID: id, Name: &vm.Name, ExternalID: &vm.ExternalID}),
		State: vm.InstanceState,
		Note:  vm.Message, VM: vm, Nodes: explained.Explain.Nodes, Raw: indentedJSON(explained),
		CurlCommand: []string{curlCommand(v, "GET", "/api/v1/vm?explain=1&id="+id, "")},
	}
	if out.Note == "" && vm.InstanceState == string(farm.Scheduling) {
		out.Note = explained.Explain.Reason
	}
	out.NoConsole = noConsoleReason(v, id, vm.InstanceState)
	out.Timeline = stateTimeline(vm.CRTime, explained.Explain.Transitions, time.Time{})
	v.title = out.Name
	out.Template, out.Node = vm.VMID, vm.NodeID
	if page, err := v.InstancePage(v, client.PageOptions{Filter: "id:" + id, Limit: 1}); err == nil {
		out.Template, out.Node = page.Templates[vm.VMID], page.Nodes[vm.NodeID]
	}
	out.Group = groupName(v, vm.GroupID)
	return out, nil
}

// groupName returns the name of a group, or its ID if the name cannot be read.
func groupName(v *visit, id string) string {
	if id != "" {
		if list, err := v.Groups(v, client.ListOptions{Filter: "id:" + id}); err == nil && len(list) == 1 {
			return list[0].Name
		}
	}
	return id
}

func showTerminated(v *visit, id string) (any, error) {
	past, err := v.HistoryInstance(v, id)
	if err != nil {
		return nil, err
	}
	out := instanceView{
		ID: id, Name: past.Name, State: string(farm.Terminated), Note: past.Message, Terminated: true,
		Template: past.TemplateName, Node: past.NodeName, Raw: indentedJSON(past),
		VM: api.Instance{
			VMID: past.VMID, Tag: past.Tag, NodeID: past.NodeID, ExternalID: past.ExternalID,
			Arch: past.Arch, CRTime: past.CRTime, TTL: past.TTL,
		},
		CurlCommand: []string{curlCommand(v, "GET", "/api/v1/vm/history?id="+id, "")},
	}
	if out.Name == "" {
		out.Name = shortID(id)
	}
	v.title = out.Name
	out.Timeline = stateTimeline(past.CRTime, past.Transitions, past.Finished)
	return out, nil
}

// stateTimeline returns the states of an instance with how long each took; it began by waiting.
func stateTimeline(created time.Time, all []api.Transition, end time.Time) (line []timelineEntry) {
	if !created.IsZero() {
		all = append([]api.Transition{{State: string(farm.Scheduling), Time: created}}, all...)
	}
	for i, t := range all {
		m := timelineEntry{State: t.State, Message: t.Message, Since: t.Time}
		switch {
		case i+1 < len(all):
			m.Duration = durationText(all[i+1].Time.Sub(t.Time))
		case !end.IsZero() && end.After(t.Time):
			m.Duration = durationText(end.Sub(t.Time))
		}
		line = append(line, m)
	}
	return line
}

func indentedJSON(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
