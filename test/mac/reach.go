package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// slowTraffic is where the traffic of a transfer is stopped: behind its requests, before its end.
const slowTraffic = 4 << 20

// begin requests the instance of the case.
func (k *kill) begin(ctx context.Context, r client.StartRequest) (err error) {
	if r.Tag == "" {
		r.Tag = "v1"
	}
	k.id, err = k.start(ctx, r)
	return err
}

// untilPulling: some of the version has come, and nothing follows until the proxy is opened. The version is pushed for
// the case, so that the node has nothing of it.
func (k *kill) untilPulling(ctx context.Context) (err error) {
	if k.template, err = k.cloud.Push(ctx, "pulled", k.importArgs("pulled")...); err != nil {
		return err
	}
	k.registry.shutAfter(slowTraffic)
	if err := k.begin(ctx, client.StartRequest{}); err != nil {
		return err
	}
	err = await(ctx, "the pull to be stopped", func() (bool, error) { return k.registry.isShut(), nil })
	if err != nil {
		return err
	}
	_, err = k.awaitState(ctx, k.id, statePulling)
	return err
}

// startKnobs let a start take long: the guest answers late, or a call does not end.
var startKnobs = map[string][2]string{
	roleAgent: {"agent-delay", "2"},
	roleVM:    {"agent-delay", "2"},
	roleCall:  {"hang", "exec"},
}

// untilStarting: the VM runs and its guest does not answer. A forwarder begins only when it does.
func (k *kill) untilStarting(ctx context.Context) error {
	if knob, slow := startKnobs[k.role]; slow {
		if err := k.mac.set("", knob[0], knob[1]); err != nil {
			return err
		}
	}
	if err := k.begin(ctx, client.StartRequest{}); err != nil {
		return err
	}
	return await(ctx, "the VM to run", func() (bool, error) {
		_, found := k.mac.find(roleVM, k.id)
		return found, nil
	})
}

// untilScriptRuns: the startup script runs, until a file tells it to end.
func (k *kill) untilScriptRuns(ctx context.Context) error {
	const script = "echo begun >begun; while [ ! -e go ]; do sleep 0.05; done; echo done"
	err := k.begin(ctx, client.StartRequest{
		StartupScript: []byte(script), ScriptMonitoring: true, ScriptFailHandler: client.KeepOnFailure,
	})
	if err != nil {
		return err
	}
	if err := k.awaitGuestFile(ctx, k.id, "begun"); err != nil {
		return err
	}
	if k.role == roleForwarder { // no kill ends the script
		defer func() { _ = os.WriteFile(k.guestFile(k.id, "go"), nil, 0o600) }()
	}
	return nil
}

// store starts an instance whose guest stores a word and some noise on its disk.
func (k *kill) store(ctx context.Context) error {
	k.nonce = rand.Text()
	script := fmt.Sprintf("echo %s >kept; head -c %d /dev/urandom >noise; sync", k.nonce, 2*slowTraffic)
	in, err := k.run(ctx, client.StartRequest{Tag: "v1"}, script, stateStarted)
	k.id = in.InstanceID
	return err
}

// untilShutDown: the guest is asked to shut down, which takes two seconds. A call that is to be killed does not reach
// the guest.
func (k *kill) untilShutDown(ctx context.Context) error {
	err := errors.Join(k.mac.set("", "shutdown-delay", "2"), k.store(ctx))
	if err == nil && k.role == roleCall {
		err = k.mac.set("", "hang", "exec")
	}
	if err == nil {
		k.request, err = k.save(ctx, k.id, k.tag)
	}
	if err == nil {
		err = await(ctx, "the VM to be stopped", func() (bool, error) {
			record, err := os.ReadFile(filepath.Join(k.mac.home(), "vms", k.id, "buildyard.json"))
			return strings.Contains(string(record), `"StopRequested":true`), err
		})
	}
	if err == nil && k.role != roleCall {
		rig.Pause(ctx, time.Second/2) // the request takes less, and the outcome does not depend on it
	}
	return err
}

// untilPushing: some of the save has been sent, and nothing follows until the proxy is opened.
func (k *kill) untilPushing(ctx context.Context) error {
	if err := k.store(ctx); err != nil {
		return err
	}
	k.registry.shutAfter(slowTraffic)
	var err error
	if k.request, err = k.save(ctx, k.id, k.tag); err != nil {
		return err
	}
	err = await(ctx, "the push to be stopped", func() (bool, error) { return k.registry.isShut(), nil })
	if err != nil {
		return err
	}
	_, err = k.awaitState(ctx, k.id, statePushing)
	return err
}

// untilTerminating: the VM is requested to stop, and does not react.
func (k *kill) untilTerminating(ctx context.Context) error {
	if err := k.begin(ctx, client.StartRequest{}); err != nil {
		return err
	}
	if _, err := k.awaitState(ctx, k.id, stateStarted); err != nil {
		return err
	}
	vm, found := k.mac.find(roleVM, k.id)
	if !found {
		return errors.New("a started instance has no VM")
	}
	if err := vm.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := k.api.Terminate(ctx, k.id); err != nil {
		return err
	}
	return await(ctx, "the VM to be told to stop", func() (bool, error) {
		_, found := k.mac.find(roleCall, "stop", k.id)
		return found, nil
	})
}
