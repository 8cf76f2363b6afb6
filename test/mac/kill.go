package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/client"
)

// step is a part of an instance's life in which a process is killed.
type step struct {
	name string
	// reach brings a new instance to the step and returns once it is there.
	reach func(k *kill, ctx context.Context) error
	// victims are the roles that have a process in the step, with what the cloud may then show.
	victims []victim
}

// victim is a process that is killed, and what follows from it.
type victim struct {
	role   string
	args   []string // that its command line has
	states []string // of the instance, one of which it reaches; what else it may be is in checks of the step
	saved  string   // status of the save that was requested; "" = none was
	says   string   // part of the message with which the instance or the save fails
}

// kill is the kill of one victim in one step.
type kill struct {
	*caseRun
	victim
	id      string // of the instance
	request string // save
	tag     string // of the save
	nonce   string // that the guest has stored
}

// steps are the table of kills. The outcomes are those that the contract allows, and the ones that an agent can ensure:
// an agent that was killed continues what it had begun, except a script, whose end is then unknown.
var steps = []step{
	{"pulling", (*kill).untilPulling, []victim{
		{role: roleAgent, states: []string{stateStarted}},
	}},
	{"starting", (*kill).untilStarting, []victim{
		{role: roleAgent, states: []string{stateStarted}},
		{role: roleVM, states: []string{stateError}, says: "start VM"},
		{role: roleForwarder, states: []string{stateStarted, stateError}},
		{role: roleCall, args: []string{"exec"}, states: []string{stateStarted}},
	}},
	{"running a script", (*kill).untilScriptRuns, []victim{
		{role: roleAgent, states: []string{stateError}, says: "outcome unknown after an agent restart"},
		{role: roleVM, states: []string{stateError}, says: "The VM stopped without being asked to"},
		{role: roleForwarder, states: []string{stateStarted}},
		{role: roleCall, args: []string{"exec"}, states: []string{stateError}, says: "startup script exit code"},
	}},
	{"shutting down to save", (*kill).untilShutDown, []victim{
		{role: roleAgent, states: []string{stateGone}, saved: "done"},
		{role: roleVM, states: []string{stateStarted}, saved: "error", says: "did not shut down in order"},
		{role: roleForwarder, states: []string{stateGone}, saved: "done"},
		{role: roleCall, args: []string{"exec"}, states: []string{stateGone}, saved: "done"},
	}},
	{"pushing a save", (*kill).untilPushing, []victim{
		{role: roleAgent, states: []string{stateGone}, saved: "done"},
	}},
	{"terminating", (*kill).untilTerminating, []victim{
		{role: roleAgent, states: []string{stateGone}},
		{role: roleVM, states: []string{stateGone}},
		{role: roleForwarder, states: []string{stateGone}},
		{role: roleCall, args: []string{"stop"}, states: []string{stateGone}},
	}},
}

// killCases returns a case for each step and victim, those of the commands of a template's author, and one that needs
// several tries.
func killCases() (cases []testCase) {
	for _, s := range steps {
		for _, v := range s.victims {
			cases = append(cases, testCase{s.name + ", " + v.role, func(ctx context.Context, a *caseRun) error {
				k := &kill{caseRun: a, victim: v, tag: strings.ReplaceAll(s.name+" "+v.role, " ", "-")}
				return k.runStep(ctx, s)
			}})
		}
	}
	return append(append(cases, authorCases...), testCase{"cloning, " + roleAgent, killedClone})
}

// runStep brings an instance to the step, kills the victim, and checks what follows.
func (k *kill) runStep(ctx context.Context, s step) error {
	if s.name == "pulling" || s.name == "pushing a save" {
		k.traffic.Lock() // it stops the traffic of all nodes
		defer k.traffic.Unlock()
		defer k.registry.open()
	} else {
		k.traffic.RLock()
		defer k.traffic.RUnlock()
	}
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error { return s.reach(k, ctx) },
		k.killVictim, k.checkOutcome, k.checkNode,
	} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killVictim kills the victim as kill -9 does. An agent is started again, as its service does.
func (k *kill) killVictim(ctx context.Context) error {
	if k.role == roleAgent {
		err := k.mac.killAgent()
		k.registry.open()
		if err != nil {
			return err
		}
		k.note("killed the agent %d", k.mac.agent.PID())
		return errors.Join(k.mac.unsetAll(), k.mac.restartAgent(ctx))
	}
	args := slices.Clone(k.args)
	if k.role != roleForwarder {
		args = append(args, k.id)
	}
	var victim process
	err := await(ctx, "a process to kill", func() (found bool, err error) {
		victim, found = k.mac.find(k.role, args...)
		if found {
			err = victim.Kill()
		}
		return found, err
	})
	if err != nil {
		return err
	}
	k.note("killed %s", victim)
	return k.mac.unsetAll()
}

// checkOutcome checks what the cloud shows of the instance and of its save.
func (k *kill) checkOutcome(ctx context.Context) error {
	said := ""
	if k.saved != "" {
		s, err := k.awaitSaved(ctx, k.request)
		if err != nil {
			return err
		}
		if s.Error != nil {
			said = s.Error.Message
		}
		k.check(s.Status == k.saved, "the save is %s %s", s.Status, said)
		tags, err := k.tags(ctx)
		published := slices.Contains(tags, k.tag)
		k.check(err == nil && published == (s.Status == "done"), "the registry has the tags %q", tags)
	}
	in, err := k.awaitState(ctx, k.id, k.states...)
	if err != nil {
		return err
	}
	if said == "" {
		said = in.Message
	}
	k.check(strings.Contains(said, k.says), "the instance is %s: %q", in.InstanceState, said)
	if in.InstanceState == stateStarted {
		return k.checkAlive(ctx)
	}
	return nil
}

// checkAlive checks that a started instance has a guest, and the forwarder of its port.
func (k *kill) checkAlive(ctx context.Context) error {
	err := await(ctx, "the VM and its forwarder to run", func() (bool, error) {
		_, runs := k.mac.find(roleVM, k.id)
		_, forwards := k.mac.find(roleForwarder, k.id)
		return runs && forwards, nil
	})
	if err != nil {
		return err
	}
	k.note("its VM and its forwarder run")
	if k.nonce != "" {
		kept, err := os.ReadFile(k.guestFile(k.id, "kept"))
		k.check(err == nil && string(kept) == k.nonce+"\n", "its guest has what it had stored")
	}
	return nil
}

// checkNode ends the instance and checks that nothing is left, that the node works, and that what a save or the guest
// has acknowledged is there.
func (k *kill) checkNode(ctx context.Context) error {
	if err := k.terminate(ctx, k.id); err != nil {
		return err
	}
	if err := k.mac.clean(ctx); err != nil {
		return err
	}
	k.note("nothing is left")
	r, script, want := client.StartRequest{Tag: "v1"}, "echo works", "works\n"
	if k.saved == "done" {
		r.Tag, script, want = k.tag, "cat kept", k.nonce+"\n"
	}
	in, err := k.run(ctx, r, script, stateStarted)
	if err != nil {
		return fmt.Errorf("the next instance on the node: %w", err)
	}
	k.check(in.StartupScript.Stdout == want, "the next instance, of %s, prints %q", r.Tag, in.StartupScript.Stdout)
	return errors.Join(k.terminate(ctx, in.InstanceID), k.mac.clean(ctx))
}
