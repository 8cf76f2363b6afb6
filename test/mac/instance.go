package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// The states of instances that cases wait for.
const (
	stateScheduling = "Scheduling"
	statePulling    = "Pulling"
	stateStarted    = "Started"
	statePushing    = "Pushing"
	stateError      = "Error"
	stateGone       = "gone" // the cloud does not know it any more
)

// start requests an instance on the case's Mac, unless the request names another place.
func (a *caseRun) start(ctx context.Context, r client.StartRequest) (string, error) {
	if r.TemplateID == "" {
		r.TemplateID = a.template
	}
	if r.NodeID == "" {
		r.NodeID = a.mac.id
	}
	ids, err := a.api.Start(ctx, r)
	if err == nil && len(ids) != 1 {
		err = fmt.Errorf("%d instances were started instead of one", len(ids))
	}
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// run starts an instance with a monitored script, which is kept if the script fails, and waits until it is in a state
// and the script has ended.
func (a *caseRun) run(ctx context.Context, r client.StartRequest, script, state string) (api.Instance, error) {
	r.StartupScript, r.ScriptMonitoring, r.ScriptFailHandler = []byte(script), true, client.KeepOnFailure
	id, err := a.start(ctx, r)
	if err != nil {
		return api.Instance{}, err
	}
	in, err := a.awaitState(ctx, id, state)
	if err != nil {
		return in, err
	}
	err = await(ctx, "the script of instance "+id, func() (bool, error) {
		in, err = a.api.Instance(ctx, id)
		return err == nil && in.StartupScript != nil, err
	})
	return in, err
}

// look returns an instance; one that is gone has that state.
func (x *site) look(ctx context.Context, id string) (api.Instance, error) {
	in, err := x.api.Instance(ctx, id)
	if errors.Is(err, client.ErrNotFound) {
		return api.Instance{InstanceID: id, InstanceState: stateGone}, nil
	}
	return in, err
}

// awaitState waits until an instance is in one of some states. It fails immediately in a state that it does not leave.
func (x *site) awaitState(ctx context.Context, id string, states ...string) (in api.Instance, err error) {
	final := false
	waited := await(ctx, fmt.Sprintf("instance %s to be %s", id, strings.Join(states, " or ")), func() (bool, error) {
		in, err = x.look(ctx, id)
		final = err == nil && (in.InstanceState == stateError || in.InstanceState == stateGone)
		return err == nil && (final || slices.Contains(states, in.InstanceState)), err
	})
	switch {
	case waited != nil:
		return in, fmt.Errorf("%w; it is %s: %s", waited, in.InstanceState, in.Message)
	case final && !slices.Contains(states, in.InstanceState):
		return in, fmt.Errorf("instance %s is %s instead of %s: %s", id, in.InstanceState, strings.Join(states, " or "),
			in.Message)
	}
	return in, nil
}

// terminate ends an instance and waits until it is gone.
func (x *site) terminate(ctx context.Context, id string) error {
	if err := x.api.Terminate(ctx, id); err != nil && !errors.Is(err, client.ErrNotFound) {
		return err
	}
	_, err := x.awaitState(ctx, id, stateGone)
	return err
}

// save saves an instance as a tag of the case's template, by an orderly stop.
func (a *caseRun) save(ctx context.Context, id, tag string) (request string, err error) {
	return a.api.Save(ctx, client.SaveRequest{InstanceID: id, Tag: tag, TargetID: a.template, Suspend: new(false)})
}

// awaitSaved waits for the end of a save.
func (a *caseRun) awaitSaved(ctx context.Context, request string) (s api.SaveImage, err error) {
	waited := await(ctx, "save "+request, func() (bool, error) {
		s, err = a.api.SaveStatus(ctx, request)
		return err == nil && s.Status != "pending", err
	})
	return s, waited
}

// tags returns the tags of the case's template in the registry.
func (a *caseRun) tags(ctx context.Context) (tags []string, err error) {
	t, err := a.api.Template(ctx, a.template)
	for _, v := range t.Versions {
		tags = append(tags, v.Tag)
	}
	return tags, err
}

// guestFile is a file in the home of a guest that runs on the case's Mac, as the host sees it.
func (a *caseRun) guestFile(id, name string) string {
	return filepath.Join(a.mac.home(), "vms", id, ".guest", "home", name)
}

// awaitGuestFile waits until a guest has made a file.
func (a *caseRun) awaitGuestFile(ctx context.Context, id, name string) error {
	return await(ctx, "the file "+name+" of the guest", func() (bool, error) {
		_, err := os.Stat(a.guestFile(id, name))
		return err == nil, nil
	})
}

// clean checks that nothing is left on the Mac. What ends asynchronously, such as a forwarder, may do so.
func (m *mac) clean(ctx context.Context) error {
	var left []string
	err := await(ctx, "nothing to be left on "+m.name, func() (bool, error) {
		left = m.leftovers()
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%w; left are %q", err, left)
	}
	return nil
}

// recover prepares the Mac for the next case: the knobs of the case are removed, its agent runs, and no instance is on
// it. A case that has passed leaves nothing to do.
func (m *mac) recover(ctx context.Context) error {
	err := m.unsetAll()
	if !m.agent.Running() {
		err = errors.Join(err, m.restartAgent(ctx))
	}
	items, listErr := m.api.Instances(ctx, client.ListOptions{})
	err = errors.Join(err, listErr)
	for _, item := range items {
		if item.VM.NodeID == m.id {
			err = errors.Join(err, m.terminate(ctx, item.InstanceID))
		}
	}
	return errors.Join(err, m.clean(ctx))
}
