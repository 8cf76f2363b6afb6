package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/client"
)

// failureCases are what goes wrong on a Mac. The message of the instance has to say what to do about it.
var failureCases = []testCase{
	{"slots stay taken after clean stops", stuckSlots},
	{"tart exec hangs", hangingExec},
	{"tart run hangs", hangingRun},
	{"tart stop hangs", hangingStop},
	{"the disk is too small for a version", smallDisk},
	{"the disk is full when a VM is made", fullDisk},
	{"no unlocked keychain", lockedKeychain},
	{"MAC address of a VM of another program", sameMAC},
	{"unreadable VM of another program", unreadableOther},
	{"damaged record of a VM", damagedRecord},
}

// failing starts an instance, which has to end in Error with a message that has each of the texts, and checks that
// nothing of it is left on the Mac.
func (a *caseRun) failing(ctx context.Context, r client.StartRequest, says ...string) error {
	id, err := a.start(ctx, r)
	if err != nil {
		return err
	}
	in, err := a.awaitState(ctx, id, stateError)
	if err != nil {
		return err
	}
	for _, text := range says {
		if !strings.Contains(in.Message, text) {
			a.check(false, "the message has %q", text)
		}
	}
	a.note("the instance says %q", in.Message)
	return a.terminate(ctx, id)
}

// works starts an instance on the Mac and ends it.
func (a *caseRun) works(ctx context.Context, r client.StartRequest) error {
	in, err := a.run(ctx, r, "echo works", stateStarted)
	if err != nil {
		return err
	}
	a.check(in.StartupScript.Stdout == "works\n", "an instance runs its script")
	return a.terminate(ctx, in.InstanceID)
}

// stuckSlots: macOS counts guests that have ended, until the Mac is restarted.
func stuckSlots(ctx context.Context, a *caseRun) error {
	// A VM that is ended in its first moments would not hear of it, and be killed.
	if err := errors.Join(a.mac.set("", "slot-held", "never"), a.mac.set("", "interrupt-delay", "0")); err != nil {
		return err
	}
	for range 2 {
		if err := a.works(ctx, client.StartRequest{}); err != nil {
			return err
		}
	}
	err := a.failing(ctx, client.StartRequest{}, "the Mac refuses another macOS guest although none runs here",
		"restart it")
	if err != nil {
		return err
	}
	err = await(ctx, "the node to be unhealthy", func() (bool, error) {
		state, err := a.mac.nodeState(ctx)
		return state == "Unhealthy", err
	})
	if err != nil {
		return err
	}
	a.note("the node is Unhealthy")
	// The restart of a Mac.
	err = errors.Join(a.mac.unsetAll(), a.mac.agent.End(), os.RemoveAll(a.mac.slots()), a.mac.agent.Start())
	if err != nil {
		return err
	}
	if err := a.mac.awaitActive(ctx); err != nil {
		return err
	}
	return a.works(ctx, client.StartRequest{})
}

// hangingExec: no call of a command in the guest ends.
func hangingExec(ctx context.Context, a *caseRun) error {
	if err := a.mac.set("", "hang", "exec"); err != nil {
		return err
	}
	err := a.failing(ctx, client.StartRequest{}, "the guest was not ready in time",
		"tart exec: the program did not end in time", "raise SVC_START_TIMEOUT")
	if err != nil {
		return err
	}
	return a.mac.clean(ctx)
}

// hangingRun: tart run does not come to its VM.
func hangingRun(ctx context.Context, a *caseRun) error {
	if err := a.mac.set("", "hang", "run"); err != nil {
		return err
	}
	err := a.failing(ctx, client.StartRequest{}, "tart run did not begin the VM", "restart the Mac")
	if err != nil {
		return err
	}
	return a.mac.clean(ctx)
}

// hangingStop: a termination does not depend on tart stop.
func hangingStop(ctx context.Context, a *caseRun) error {
	if err := a.mac.set("", "hang", "stop"); err != nil {
		return err
	}
	if err := a.works(ctx, client.StartRequest{}); err != nil {
		return err
	}
	return a.mac.clean(ctx)
}

// lockedKeychain: macOS starts no guest for a user whose keychain is locked.
func lockedKeychain(ctx context.Context, a *caseRun) error {
	if err := a.mac.set("", "vz-error", "1"); err != nil {
		return err
	}
	return a.failing(ctx, client.StartRequest{}, "log in on the Mac's screen as the node's user")
}

// unreadableOther: tart list fails for a VM with a broken configuration; the node does not depend on it.
func unreadableOther(ctx context.Context, a *caseRun) error {
	dir := filepath.Join(a.mac.home(), "vms", "broken")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	for _, file := range []string{"config.json", "disk.img", "nvram.bin"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte("{"), 0o600))
	}
	if err != nil {
		return err
	}
	_, listErr := a.mac.tart(ctx, a.mac.home(), "list")
	a.check(listErr != nil, "tart list fails: %v", listErr)
	if err := a.works(ctx, client.StartRequest{}); err != nil {
		return err
	}
	left := a.mac.leftovers()
	a.check(len(left) == 1 && left[0] == "tart/vms/broken", "the other VM is as it was: %q", left)
	return os.RemoveAll(dir)
}

// damagedRecord: what this node has written about a VM cannot be read. Others run, and the VM can be terminated.
func damagedRecord(ctx context.Context, a *caseRun) error {
	in, err := a.run(ctx, client.StartRequest{}, "echo works", stateStarted)
	if err != nil {
		return err
	}
	record := filepath.Join(a.mac.home(), "vms", in.InstanceID, "buildyard.json")
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		return err
	}
	if err := a.works(ctx, client.StartRequest{}); err != nil {
		return fmt.Errorf("with a damaged record of another VM: %w", err)
	}
	if _, err := a.awaitState(ctx, in.InstanceID, stateStarted); err != nil {
		return err
	}
	if err := a.terminate(ctx, in.InstanceID); err != nil {
		return err
	}
	a.note("the instance whose record is damaged is terminated")
	return a.mac.clean(ctx)
}
