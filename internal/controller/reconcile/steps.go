package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Slacks and limits of steps, in addition to the node's own limits: the controller's are for a node
// that does not enforce its own.
const (
	acknowledgeLimit = 2 * time.Minute // of a start order
	startSlack       = 5 * time.Minute // removing the VM of a failed start included
	stopLimit        = 10 * time.Minute
	restartSlack     = 10 * time.Minute
	scriptLimit      = 6*time.Hour + 10*time.Minute
	saveLimit        = 2*time.Hour + 10*time.Minute
	confirmLimit     = time.Minute // after which an unconfirmed end is reported
)

// limitedStep is an action of a node with an instance, which is limited.
type limitedStep struct {
	name  string // ends the sentence "Its node NAME did not ..."
	is    func(s instanceStatus) bool
	limit func(o *Options, i *farm.Instance) time.Duration // without a change of the record
}

// instanceStatus is an instance with the other state that determines its step.
type instanceStatus struct {
	*farm.Instance
	save         *farm.SaveRequest // that it works on; nil for none
	acknowledged bool              // its node has the order, or may have it from another replica
}

// placed reports whether an instance is one that its node is to start.
func (s instanceStatus) placed() bool { return s.State == farm.Scheduling && s.NodeID != "" }

// steps are checked in this order; an instance is in one at most.
var steps = []limitedStep{
	{
		"take the order to start it",
		func(s instanceStatus) bool { return s.placed() && !s.acknowledged }, fixed(acknowledgeLimit),
	},
	{
		"start it", instanceStatus.placed,
		func(o *Options, _ *farm.Instance) time.Duration { return o.StartTimeout + startSlack },
	},
	{
		"get any further with the pull of its template", inState(farm.Pulling),
		func(o *Options, _ *farm.Instance) time.Duration { return o.PullTimeout },
	},
	{"stop its VM after the startup script had failed", inState(farm.Stopping), fixed(stopLimit)},
	{
		"restart its VM",
		func(s instanceStatus) bool { return s.State == farm.Started && s.Task != nil }, afterScript,
	},
	{"begin the save", inStage("", string(api.TaskAccepted)), afterScript},
	{"end the script of the save", inStage(string(api.TaskScript)), fixed(scriptLimit)},
	{"write the VM's disks and state for the save", inStage(string(api.TaskSaving)), fixed(saveLimit)},
	{"test the saved state", inStage(string(api.TaskTesting)), afterScript},
	{
		"get any further with the push of the save", inState(farm.Pushing),
		func(o *Options, _ *farm.Instance) time.Duration { return o.PushTimeout },
	},
}

func fixed(d time.Duration) func(*Options, *farm.Instance) time.Duration {
	return func(*Options, *farm.Instance) time.Duration { return d }
}

// afterScript returns the limit of a step that may have to wait for the startup script first.
func afterScript(o *Options, i *farm.Instance) time.Duration {
	return o.StartTimeout + restartSlack + time.Duration(i.Options.ScriptTimeout)*time.Second
}

func inState(state farm.InstanceState) func(instanceStatus) bool {
	return func(s instanceStatus) bool { return s.State == state }
}

func inStage(stages ...string) func(instanceStatus) bool {
	return func(s instanceStatus) bool {
		return s.State == farm.Pushing && s.save != nil && slices.Contains(stages, s.save.Stage)
	}
}

// stepOf returns the step of an instance, when that began, or last made progress, and how long it
// may take; ok is false when it is in none.
func (r *Reconciler) stepOf(i *farm.Instance) (s limitedStep, since time.Time, limit time.Duration, ok bool) {
	since = i.Updated
	at := instanceStatus{Instance: i, acknowledged: i.StatusNumber > 0 || !r.o.Unacknowledged(i)}
	if i.Task != nil && i.Task.Kind == farm.TaskSave {
		if at.save, _, ok = r.db.Tables.Saves.Get(i.Task.ID); ok && at.save.Updated.After(since) {
			since = at.save.Updated
		}
	}
	for _, s := range steps {
		if s.is(at) {
			return s, r.o.From(since), s.limit(&r.o, i), true
		}
	}
	return s, since, 0, false
}

// stepExpiresAt returns when a step of an instance has taken too long. The time for which a node is
// offline does not count: the step gets its time once the node is back.
func (r *Reconciler) stepExpiresAt(i *farm.Instance) time.Time {
	_, since, limit, ok := r.stepOf(i)
	if !ok || !i.NodeLostAt.IsZero() {
		return time.Time{}
	}
	return r.inContact(i.NodeID, since.Add(limit))
}

// failStep ends an instance whose step takes too long.
func (r *Reconciler) failStep(i *farm.Instance, now time.Time) *farm.Instance {
	s, since, _, ok := r.stepOf(i)
	if !ok {
		return i
	}
	return i.AfterStepTimeout(now, farm.FailureNodeTimeout, fmt.Sprintf("Its node %s did not %s within %s", i.NodeName,
		s.name, now.Sub(since).Round(time.Second)))
}

// orderRepeated ends the message about an end that is not confirmed.
const orderRepeated = "it is asked again until it does"

// unconfirmedEndAt returns when to report that a node does not confirm an end. The order is repeated
// without a limit.
func (r *Reconciler) unconfirmedEndAt(i *farm.Instance) time.Time {
	if i.State != farm.Terminating || i.NodeID == "" || !i.NodeLostAt.IsZero() ||
		strings.HasSuffix(i.Message, orderRepeated) {
		return time.Time{}
	}
	return r.inContact(i.NodeID, r.o.From(i.Updated).Add(confirmLimit))
}

func (r *Reconciler) reportUnconfirmedEnd(i *farm.Instance, now time.Time) *farm.Instance {
	n := i.Clone()
	n.Message = fmt.Sprintf("Node %s has not confirmed the end of the VM for %s; %s",
		i.NodeName, now.Sub(r.o.From(i.Updated)).Round(time.Second), orderRepeated)
	return n
}
