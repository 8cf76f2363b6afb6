package agent

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/update"
)

// Updater replaces this agent by another version of itself.
type Updater interface {
	// HandleUpdate receives the update in the response to a poll; nil: no update is requested.
	HandleUpdate(asked *api.AgentUpdate)
	// Status returns the status to report to the controller; nil for none.
	Status() *api.UpdateStatus
	// Ready has a value when another version is installed.
	Ready() <-chan struct{}
	// SetWaiting receives a description of the work that has to end first.
	SetWaiting(work string)
	// Abandon abandons the update that is ready.
	Abandon(why string)
}

var _ Updater = (*update.Updater)(nil)

// ErrUpdate is returned by Run when the agent is to be replaced by another version. All running
// work is in a state that the next agent recovers.
var ErrUpdate = errors.New("the agent is being replaced by another version")

const (
	updatePatience      = time.Hour // for work that the end of an agent would break
	updateCheckInterval = 500 * time.Millisecond
)

// updateLoop ends the agent when another version is ready and no work is running that its end would
// break. Pulls and pushes resume where they were, and VMs are not affected.
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
		if a.waitUntilReplaceable(ctx, u) {
			return ErrUpdate
		}
	}
}

// waitUntilReplaceable waits until the agent may end and reports whether it may. From then on, no work begins
// that its end would break.
func (a *Agent) waitUntilReplaceable(ctx context.Context, u Updater) bool {
	begun := time.Now()
	look := time.NewTicker(updateCheckInterval)
	defer look.Stop()
	for said := ""; ; {
		work := a.quiesce()
		if work == "" {
			return true
		}
		if work != said {
			said = work
			a.log.Info("agent update waits for running work", "for", work)
			u.SetWaiting(work)
		}
		if time.Since(begun) >= updatePatience {
			u.Abandon("after " + updatePatience.String() + " there still is work that the change would break: " + work)
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
			if s := u.Status(); s == nil || s.Stage != api.UpdateWaiting {
				return false // the update is no longer requested
			}
		}
	}
}

// quiesce prevents new work that the end of the agent would break. If such work is running, it
// returns a description of that work instead.
func (a *Agent) quiesce() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, work := range a.updateBlockers {
		return work
	}
	a.quiescing = true
	return ""
}

// uninterruptible describes the work of an action that the end of the agent would break; "" for none. A
// script that is not monitored often runs as long as its VM and fails nothing.
func uninterruptible(next action, in *instance) string {
	switch next {
	case doScript:
		if in.order.Start.Script.Monitoring {
			return "the startup script of instance " + in.id
		}
	case doFailHandler:
		return "the failed startup script of instance " + in.id
	case doTask:
		if t := in.snapshot().Task; t != nil && t.Stage != api.TaskPushing {
			return "the save or restart of instance " + in.id
		}
	}
	return ""
}

// registerBlocker registers an action that the end of the agent would break; leave unregisters it. It is
// refused once the agent is about to be replaced by another version.
func (a *Agent) registerBlocker(next action, in *instance) (leave func(), ok bool) {
	work := uninterruptible(next, in)
	if work == "" {
		return func() {}, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quiescing {
		return nil, false
	}
	a.updateBlockers[in.id] = work
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.updateBlockers, in.id)
	}, true
}
