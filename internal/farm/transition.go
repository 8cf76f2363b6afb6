package farm

import (
	"slices"
	"strings"
	"time"
)

// Transition is a change of an instance's state. Its keys are short because it is a
// part of every record of an instance.
type Transition struct {
	State  InstanceState `json:"s"`           // the one that began
	At     int64         `json:"t"`           // milliseconds since 1970
	Reason string        `json:"w,omitempty"` // the last message of that state, set when it is left
}

// Time returns the moment of the transition.
func (t Transition) Time() time.Time { return time.UnixMilli(t.At).UTC() }

// Bounds of the transitions of one record.
const (
	maxTransitions = 16
	maxReasonBytes = 240 // bytes
)

// EnterState moves the instance to a state and records that; entering the current state is not a
// transition. Of too many transitions the middle ones are dropped: the first and the last ones tell
// the most. The message must be changed after the call.
func (i *Instance) EnterState(to InstanceState, at time.Time) {
	if to == i.State {
		return
	}
	list := slices.Grow(slices.Clone(i.Transitions), 1) // shared with the record that this one was copied from
	if n := len(list); n > 0 {
		list[n-1].Reason = clip(i.Message, maxReasonBytes)
	}
	if len(list) == maxTransitions {
		list = slices.Delete(list, maxTransitions/2, maxTransitions/2+1)
	}
	i.State, i.Transitions = to, append(list, Transition{State: to, At: at.UnixMilli()})
}

// clip keeps the first n bytes of a text, whole characters only.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// InstanceHistory is what is kept for a while of a removed instance. It has neither secrets nor the
// output of scripts, and no long texts.
type InstanceHistory struct {
	ID           string       `json:"id"`
	Name         string       `json:"name,omitempty"`
	ExternalID   string       `json:"external_id,omitempty"`
	TemplateID   string       `json:"template_id"`
	TemplateName string       `json:"template"` // its name
	Tag          string       `json:"tag"`
	Version      int          `json:"version"`
	Arch         string       `json:"arch"`
	GroupID      string       `json:"group_id,omitempty"`
	Owner        string       `json:"owner,omitempty"`
	NodeID       string       `json:"node_id,omitempty"`
	NodeName     string       `json:"node_name,omitempty"`
	Message      string       `json:"message,omitempty"` // the last one
	Failure      *Failure     `json:"failure,omitempty"` // why it was in Error; nil: it did not fail
	ScriptCode   *int         `json:"script_code,omitempty"`
	TTL          int64        `json:"ttl,omitempty"` // seconds
	Created      time.Time    `json:"created"`
	Placed       time.Time    `json:"placed,omitzero"`
	BootStarted  time.Time    `json:"boot_started,omitzero"`
	Started      time.Time    `json:"started,omitzero"`
	Finished     time.Time    `json:"finished"`
	Transitions  []Transition `json:"transitions,omitempty"`
}

// HistoryRecord returns the history record of an instance that is removed; now is its end when it has none
// yet.
func (i *Instance) HistoryRecord(now time.Time) *InstanceHistory {
	end := i.Clone()
	end.EnterState(Terminated, now)
	p := &InstanceHistory{
		ID: i.ID, Name: i.Name, ExternalID: i.ExternalID,
		TemplateID: i.Template.ID, TemplateName: i.Template.Name, Tag: i.Template.Tag, Version: i.Template.Version,
		Arch:    i.Template.Arch,
		GroupID: i.GroupID, Owner: i.Owner, NodeID: i.NodeID, NodeName: i.NodeName,
		Message: clip(i.Message, maxReasonBytes), TTL: i.TTL,
		Failure: i.Failure,
		Created: i.Created, Placed: i.Placed, BootStarted: i.BootStarted, Started: i.Started, Finished: i.Finished,
		Transitions: end.Transitions,
	}
	if p.Finished.IsZero() {
		p.Finished = now
	}
	if i.Script != nil {
		p.ScriptCode = &i.Script.ExitCode
	}
	return p
}
