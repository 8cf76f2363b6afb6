package controller

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
	takeLimit    = 2 * time.Minute // of a start order, to be acknowledged by its node
	startSlack   = 5 * time.Minute // removing the VM of a failed start included
	stopLimit    = 10 * time.Minute
	restartSlack = 10 * time.Minute
	scriptLimit  = 6*time.Hour + 10*time.Minute
	saveLimit    = 2*time.Hour + 10*time.Minute
	endPatience  = time.Minute // after which an unconfirmed end is reported
)

// stepTimeout limits an action of a node with an instance.
type stepTimeout struct {
	name  string // ends the sentence "Its node NAME did not ..."
	is    func(at instanceStep) bool
	limit func(o Options, i *farm.Instance) time.Duration // without a change of the record
}

// instanceStep is an instance with the other state that determines its step.
type instanceStep struct {
	*farm.Instance
	save  *farm.SaveRequest // that it works on; nil for none
	taken bool              // its node has the order, or may have it from another replica
}

// placed reports whether an instance is one that its node is to start.
func (at instanceStep) placed() bool { return at.State == farm.Scheduling && at.NodeID != "" }

// steps are checked in this order; an instance is in one at most.
var steps = []stepTimeout{
	{"take the order to start it", func(at instanceStep) bool { return at.placed() && !at.taken }, always(takeLimit)},
	{"start it", instanceStep.placed, func(o Options, _ *farm.Instance) time.Duration {
		return o.StartTimeout +
			startSlack
	}},
	{
		"get any further with the pull of its template", inState(farm.Pulling),
		func(o Options, _ *farm.Instance) time.Duration { return o.PullTimeout },
	},
	{"stop its VM after the startup script had failed", inState(farm.Stopping), always(stopLimit)},
	{"restart its VM", func(at instanceStep) bool { return at.State == farm.Started && at.Task != nil }, beginning},
	{"begin the save", atStage("", string(api.TaskAccepted)), beginning},
	{"end the script of the save", atStage(string(api.TaskScript)), always(scriptLimit)},
	{"write the VM's disks and state for the save", atStage(string(api.TaskSaving)), always(saveLimit)},
	{"test the saved state", atStage(string(api.TaskTesting)), beginning},
	{
		"get any further with the push of the save", inState(farm.Pushing),
		func(o Options, _ *farm.Instance) time.Duration { return o.PushTimeout },
	},
}

func always(d time.Duration) func(Options, *farm.Instance) time.Duration {
	return func(Options, *farm.Instance) time.Duration { return d }
}

// beginning returns the limit of a step that may have to wait for the startup script first.
func beginning(o Options, i *farm.Instance) time.Duration {
	return o.StartTimeout + restartSlack + time.Duration(i.Options.ScriptTimeout)*time.Second
}

func inState(state farm.InstanceState) func(instanceStep) bool {
	return func(at instanceStep) bool { return at.State == state }
}

func atStage(stages ...string) func(instanceStep) bool {
	return func(at instanceStep) bool {
		return at.State == farm.Pushing && at.save != nil && slices.Contains(stages, at.save.Stage)
	}
}

// stepOf returns the step of an instance, when that began, or last made progress, and how long it
// may take; ok is false when it is in none.
func (k *reconciler) stepOf(i *farm.Instance) (s stepTimeout, since time.Time, limit time.Duration, ok bool) {
	since = i.Updated
	at := instanceStep{Instance: i, taken: i.StatusNo > 0 || !k.c.Link.Sessions.Unacknowledged(i)}
	if i.Task != nil && i.Task.Kind == farm.TaskSave {
		if at.save, _, ok = k.c.tables.Saves.Get(i.Task.ID); ok && at.save.Updated.After(since) {
			since = at.save.Updated
		}
	}
	for _, s := range steps {
		if s.is(at) {
			return s, k.from(since), s.limit(k.c.opts, i), true
		}
	}
	return s, since, 0, false
}

// stuckAt returns when a step of an instance has taken too long. The time for which a node is
// offline does not count: the step gets its time once the node is back.
func (k *reconciler) stuckAt(i *farm.Instance) time.Time {
	_, since, limit, ok := k.stepOf(i)
	if !ok || !i.Lost.IsZero() {
		return time.Time{}
	}
	return k.inContact(i.NodeID, since.Add(limit))
}

// stuck ends an instance whose step takes too long.
func (k *reconciler) stuck(i *farm.Instance, now time.Time) *farm.Instance {
	s, since, _, ok := k.stepOf(i)
	if !ok {
		return i
	}
	return i.AfterExpiry(now, fmt.Sprintf("Its node %s did not %s within %s", i.NodeName, s.name,
		now.Sub(since).Round(time.Second)))
}

// unconfirmedAt returns when to report that a node does not confirm an end. The order is repeated
// without a limit.
func (k *reconciler) unconfirmedAt(i *farm.Instance) time.Time {
	if i.State != farm.Terminating || i.NodeID == "" || !i.Lost.IsZero() || strings.HasSuffix(i.Message, askedAgain) {
		return time.Time{}
	}
	return k.inContact(i.NodeID, k.from(i.Updated).Add(endPatience))
}

// askedAgain ends the message about an end that is not confirmed.
const askedAgain = "it is asked again until it does"

func (k *reconciler) unconfirmed(i *farm.Instance, now time.Time) *farm.Instance {
	n := i.Clone()
	n.Message = fmt.Sprintf("Node %s has not confirmed the end of the VM for %s; %s",
		i.NodeName, now.Sub(k.from(i.Updated)).Round(time.Second), askedAgain)
	return n
}
