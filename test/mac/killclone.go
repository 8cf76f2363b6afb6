package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/client"
)

// cloneTries bounds the starts whose clones may be complete before the agent is killed.
const cloneTries = 20

// killedClone kills the agent while it makes the directory of a VM, which takes milliseconds. The next agent removes
// the half clone and starts the instance.
func killedClone(ctx context.Context, a *caseRun) error {
	a.traffic.RLock()
	defer a.traffic.RUnlock()
	if err := a.works(ctx, client.StartRequest{}); err != nil { // the version is in the cache from now on
		return err
	}
	k := &kill{caseRun: a, victim: victim{role: roleAgent, states: []string{stateStarted}}}
	for range cloneTries {
		half, err := k.killInClone(ctx)
		if err == nil {
			err = a.mac.restartAgent(ctx)
		}
		if err != nil {
			return err
		}
		if half != "" {
			a.note("killed the agent, which left the half clone %s", half)
			return errors.Join(k.checkOutcome(ctx), k.checkNode(ctx))
		}
		if err := a.terminate(ctx, k.id); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d clones were complete before the agent was killed", cloneTries)
}

// killInClone requests an instance and kills the agent when it begins the VM's directory. It returns the half clone;
// "" if the directory was complete.
func (k *kill) killInClone(ctx context.Context) (half string, err error) {
	staging := filepath.Join(k.mac.home(), "buildyard-new")
	killed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	go func() {
		for ctx.Err() == nil && countEntries(staging) == 0 && countEntries(filepath.Join(k.mac.home(), "vms")) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		killed <- k.mac.killAgent()
	}()
	err = k.begin(ctx, client.StartRequest{})
	if err = errors.Join(err, <-killed); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(staging)
	if err != nil || len(entries) == 0 {
		return "", err
	}
	return entries[0].Name(), nil
}

func countEntries(dir string) int {
	entries, _ := os.ReadDir(dir) // it is there: the driver has made it
	return len(entries)
}
