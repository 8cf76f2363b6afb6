package portal

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// instanceView is the page of one instance.
type instanceView struct {
	ID, Name, State string
	Note            string
	Terminated      bool // it is gone, and remembered
	VM              api.Instance
	Template, Node  string
	Group           string // its name, or its id where that could not be asked
	Waiting         *waiting
	Fill            *diskFill            // nil: all of its disks is on the node, or that is not known
	Failure         *api.InstanceFailure // nil: it did not fail
	Timeline        chart.Timeline
	FailureLog      *logExcerpt // of the VM; nil: there is none, or it is not shown
	NoFailureLog    bool        // its node sent none
	Raw             string
	CurlCommand     string
	NoConsole       string // why there is none; "": there is a console
	StartTook       string // "": it was not started
	Log             instanceEvents
	Script          scriptView
	HasNodeLogs     bool // the logs of the nodes have rows about it
}

// StateView is the display of the state.
func (p instanceView) StateView() stateView { return newPhaseView(p.State, p.VM.Phase) }

// HoldsSlot reports whether a VM of a failed instance is left.
func (p instanceView) HoldsSlot() bool { return p.Failure != nil && p.HasVM() }

// HasVM reports whether the instance has a VM.
func (p instanceView) HasVM() bool {
	return !p.Terminated && p.VM.VMInfo != nil && p.VM.VMInfo.Status != string(farm.VMDeleted)
}

// waiting is why an instance is pending.
type waiting struct {
	Reason string
	Queue  *api.QueuePlace
	Counts []reasonRow
	Able   []api.NodeExplanation // nodes that can start it
}

// ExpectedWait returns the expected wait as text; "" where it is not known.
func (w waiting) ExpectedWait() string {
	if w.Queue == nil || w.Queue.ExpectedSeconds == nil {
		return ""
	}
	return format.Duration(time.Duration(*w.Queue.ExpectedSeconds) * time.Second)
}

// reasonRow is a number of nodes that cannot start an instance for one reason.
type reasonRow struct {
	api.ReasonCount
	Tone   string
	Of     int // nodes in all
	Listed []api.NodeExplanation
	More   int // nodes that are not listed
}

// fewNodes is how many nodes are listed for one reason.
const fewNodes = 24

// reasonTones are the colors of reasons: those that an operator can resolve stand out.
var reasonTones = map[string]string{"full": "warn", "state": "bad", "reserved": "warn"}

// newWaiting groups the nodes that cannot start an instance by their reason.
func newWaiting(e api.Explanation) *waiting {
	w := &waiting{Reason: e.Reason, Queue: e.Queue}
	for _, c := range e.Counts {
		w.Counts = append(w.Counts, reasonRow{
			ReasonCount: c, Tone: cmp.Or(reasonTones[c.Cause], "off"), Of: len(e.Nodes),
		})
	}
	for _, n := range e.Nodes {
		if n.CanStart {
			w.Able = append(w.Able, n)
			continue
		}
		for i := range w.Counts {
			c := &w.Counts[i]
			if n.Cause != c.Cause || n.CauseText != c.Text {
				continue
			}
			if len(c.Listed) < fewNodes {
				c.Listed = append(c.Listed, n)
			} else {
				c.More++
			}
		}
	}
	return w
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
		State: vm.InstanceState, Terminated: vm.InstanceState == string(farm.Terminated),
		Note: vm.Message, VM: vm, Raw: indentedJSON(explained),
		CurlCommand: curlCommand(v, "GET", "/api/v1/vm?explain=1&id="+id, ""),
	}
	out.Fill = newDiskFill(explained.Explain.Fill)
	if len(explained.Explain.Nodes) > 0 || explained.Explain.Queue != nil {
		out.Waiting = newWaiting(explained.Explain)
	}
	if vm.InstanceState == string(farm.Errored) {
		out.Failure = vm.Failure
		out.FailureLog, out.NoFailureLog = failureLog(v, id)
	}
	out.NoConsole = noConsoleReason(v, id, vm.InstanceState)
	out.Timeline = chart.NewTimeline(v.now, vm.CRTime, explained.Explain.Transitions, time.Time{})
	v.title = out.Name
	out.Template, out.Node = vm.VMID, vm.NodeID
	if page, err := v.InstancePage(v, client.PageOptions{Filter: "id:" + id, Limit: 1}); err == nil {
		out.Template, out.Node = page.Templates[vm.VMID], page.Nodes[vm.NodeID]
	}
	out.Group = groupName(v, vm.GroupID)
	out.Log = newInstanceEvents(v, id, out.State, out.Note)
	out.StartTook = startTook(vm)
	out.Script = newScriptView(vm, explained.Explain.Transitions)
	out.HasNodeLogs = v.hasNodeLogs(id)
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
			Arch: past.Arch, CRTime: past.CRTime, TTL: past.TTL, Owner: past.Owner, Started: past.Started,
		},
		CurlCommand: curlCommand(v, "GET", "/api/v1/vm/history?id="+id, ""), Failure: past.Failure,
	}
	out.FailureLog, out.NoFailureLog = failureLog(v, id)
	if out.Name == "" {
		out.Name = format.ShortID(id)
	}
	v.title = out.Name
	out.Timeline = chart.NewTimeline(v.now, past.CRTime, past.Transitions, past.Finished)
	out.StartTook = startTook(out.VM)
	out.Log = newInstanceEvents(v, id, out.State, out.Note)
	out.HasNodeLogs = v.hasNodeLogs(id)
	return out, nil
}

func indentedJSON(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Suspect is where to look first when starts fail the same way: at the node that has half of them, else at the
// template.
func (p instanceView) Suspect() string {
	f := p.Failure
	switch {
	case f.SameNode > 1 && 2*f.SameNode >= f.SameTemplate:
		return "Check the node first."
	case f.SameTemplate > 1 && f.SameTemplateNodes > 1:
		return "They failed on several nodes: check the template first."
	}
	return ""
}
