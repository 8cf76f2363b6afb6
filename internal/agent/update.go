package agent

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/update"
)

// Updater makes this agent another version of itself.
type Updater interface {
	// Heard takes over what every answer to a poll says; nil: nothing is asked for.
	Heard(asked *api.AgentUpdate)
	// Status is what the controller is to be told; nil for nothing.
	Status() *api.UpdateStatus
	// Ready has a value when another version is there.
	Ready() <-chan struct{}
	// Waits returns which work has to end first.
	Waits(work string)
	// GiveUp ends the update that is ready.
	GiveUp(why string)
}

var _ Updater = (*update.Updater)(nil)

// ErrUpdate is how Run ends when this program is to become another version. Everything
// that continues is in a state in which the next agent takes it up.
var ErrUpdate = errors.New("the agent becomes another version")

const (
	updatePatience = time.Hour // for work that the end of an agent would break
	updateLook     = 500 * time.Millisecond
)

// updateLoop ends the agent when there is another version and nothing continues that its
// end would break. Pulls and pushes go on where they were, and VMs know nothing of it.
func (a *Agent) updateLoop(ctx context.Context) error {
	u := a.opts.Updater
	if u == nil {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.Ready():
		}
		if a.mayEnd(ctx, u) {
			return ErrUpdate
		}
	}
}

// mayEnd waits until the agent may end. From when it says so, nothing begins that its
// end would break.
func (a *Agent) mayEnd(ctx context.Context, u Updater) bool {
	begun := time.Now()
	look := time.NewTicker(updateLook)
	defer look.Stop()
	for said := ""; ; {
		work := a.quiesce()
		if work == "" {
			return true
		}
		if work != said {
			said = work
			a.log.Info("the update of the agent waits", "for", work)
			u.Waits(work)
		}
		if time.Since(begun) >= updatePatience {
			u.GiveUp("after " + updatePatience.String() + " there still is work that the change would break: " + work)
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
			if s := u.Status(); s == nil || s.Stage != api.UpdateWaiting {
				return false // nobody asks for it any more
			}
		}
	}
}

// quiesce ends the time in which something may begin that the end of the agent would break,
// unless something of that kind continues: then it says what.
func (a *Agent) quiesce() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, work := range a.delicate {
		return work
	}
	a.closing = true
	return ""
}

// delicacy returns what the end of the agent would break of an action; "" for nothing. A
// script that is not monitored often runs as long as its VM, and fails nothing.
func delicacy(next action, in *instance) string {
	switch next {
	case doScript:
		if in.order.Start.Script.Monitoring {
			return "the startup script of instance " + in.id
		}
	case doHandle:
		return "the failed startup script of instance " + in.id
	case doTask:
		if t := in.snapshot().Task; t != nil && t.Stage != api.TaskPushing {
			return "the save or restart of instance " + in.id
		}
	}
	return ""
}

// enter notes an action that the end of the agent would break; leave is called at its end.
// It is refused once the agent is about to become another version.
func (a *Agent) enter(next action, in *instance) (leave func(), ok bool) {
	work := delicacy(next, in)
	if work == "" {
		return func() {}, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return nil, false
	}
	a.delicate[in.id] = work
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.delicate, in.id)
	}, true
}
