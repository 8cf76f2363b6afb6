package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Poll intervals of a wait: at first and after a while.
const (
	firstLook = 200 * time.Millisecond
	slowLook  = 2 * time.Second
)

// WaitError is the error of a wait whose condition cannot become true.
type WaitError struct {
	What   string // the object that was waited for, such as instance 0197...
	State  string // current state
	Reason string // as the service reports it; "" without one
}

func (e *WaitError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("%s is %s without a reason", e.What, e.State)
	}
	return fmt.Sprintf("%s is %s: %s", e.What, e.State, e.Reason)
}

// until polls look until done reports true. It retries while the service cannot be reached, until the context
// ends.
func until[T any](ctx context.Context, look func(context.Context) (T, error), done func(T) (bool, error)) (T, error) {
	for wait := firstLook; ; wait = min(wait+wait/4, slowLook) {
		now, err := look(ctx)
		if err == nil {
			var ok bool
			if ok, err = done(now); ok || err != nil {
				return now, err
			}
		} else if !transient(err) || ctx.Err() != nil {
			return now, ended(ctx, err)
		}
		if err := pause(ctx, wait); err != nil {
			return now, err
		}
	}
}

// States of started instances, and of those that are starting.
const (
	stateStarted    = "Started"
	stateScheduling = "Scheduling"
	statePulling    = "Pulling"
	stateTerminated = "Terminated"
)

// WaitStarted waits until an instance is Started and returns it. It returns a *WaitError if that will not
// happen. progress, unless nil, is called after every poll.
func (c *Controller) WaitStarted(ctx context.Context, id string, progress func(api.Instance)) (api.Instance, error) {
	return until(ctx, c.instanceGetter(id), func(i api.Instance) (bool, error) {
		if progress != nil {
			progress(i)
		}
		switch i.InstanceState {
		case stateStarted:
			return true, nil
		case stateScheduling, statePulling:
			return false, nil
		}
		return false, &WaitError{"instance " + id, i.InstanceState, i.Message}
	})
}

// WaitScript waits until the monitored startup script of an instance has ended, and returns its result, which
// may be a failure.
func (c *Controller) WaitScript(ctx context.Context, id string) (*api.ScriptResult, error) {
	i, err := until(ctx, c.instanceGetter(id), func(i api.Instance) (bool, error) {
		switch {
		case i.StartupScript != nil:
			return true, nil
		case i.InstanceState == stateStarted, i.InstanceState == stateScheduling, i.InstanceState == statePulling:
			return false, nil
		}
		return false, &WaitError{"instance " + id, i.InstanceState, i.Message}
	})
	return i.StartupScript, err
}

// WaitRestarted waits until the VM of an instance has a start date other than before.
func (c *Controller) WaitRestarted(ctx context.Context, id string, before time.Time) (api.Instance, error) {
	return until(ctx, c.instanceGetter(id), func(i api.Instance) (bool, error) {
		if i.InstanceState != stateStarted {
			return false, &WaitError{"instance " + id, i.InstanceState, i.Message}
		}
		return i.VMInfo != nil && i.VMInfo.Status == "running" && !i.VMInfo.StartDate.Equal(before), nil
	})
}

// WaitGone waits until the VM of an instance no longer exists.
func (c *Controller) WaitGone(ctx context.Context, id string) error {
	_, err := until(ctx, c.instanceGetter(id), func(i api.Instance) (bool, error) {
		return i.InstanceState == stateTerminated, nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (c *Controller) instanceGetter(id string) func(context.Context) (api.Instance, error) {
	return func(ctx context.Context) (api.Instance, error) { return c.Instance(ctx, id) }
}

// WaitSaved waits for the end of a save. It returns a *WaitError if the save failed. progress, unless nil, is
// called after every poll.
func (c *Controller) WaitSaved(
	ctx context.Context, request string, progress func(api.SaveImage),
) (api.SaveImage, error) {
	look := func(ctx context.Context) (api.SaveImage, error) { return c.SaveStatus(ctx, request) }
	return until(ctx, look, func(s api.SaveImage) (bool, error) {
		if progress != nil {
			progress(s)
		}
		if s.Status != "error" {
			return s.Status == "done", nil
		}
		reason := ""
		if s.Error != nil {
			reason = s.Error.Message
		}
		return false, &WaitError{"save " + request, s.Status, reason}
	})
}

// WaitDrained waits until a drained node runs no VMs. progress, unless nil, is called after every poll.
func (c *Controller) WaitDrained(ctx context.Context, node string, progress func(api.Drain)) (api.Node, error) {
	look := func(ctx context.Context) (api.Node, error) { return c.Node(ctx, node) }
	return until(ctx, look, func(n api.Node) (bool, error) {
		if n.Drain == nil {
			return false, &WaitError{"node " + node, n.State, "it is no longer being drained"}
		}
		if progress != nil {
			progress(*n.Drain)
		}
		return n.Drain.Remaining == 0, nil
	})
}

// WaitUpdated waits until the agent of a node has the requested version. progress, unless nil, is called after
// every poll. A failed try is returned as an error, though the controller tries again.
func (c *Controller) WaitUpdated(ctx context.Context, node string, progress func(api.Node)) (api.Node, error) {
	look := func(ctx context.Context) (api.Node, error) { return c.Node(ctx, node) }
	return until(ctx, look, func(n api.Node) (bool, error) {
		if progress != nil {
			progress(n)
		}
		switch {
		case n.Update == nil:
			return true, nil
		case n.Update.Begun.IsZero() && n.Update.Failure != "":
			return false, &WaitError{"node " + node, n.State, n.Update.Failure}
		}
		return false, nil
	})
}
