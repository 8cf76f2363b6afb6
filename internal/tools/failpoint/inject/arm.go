// Package inject kills a registry, or fills its disk, at one of the named steps of its writes.
//
// No released program contains it: only a build with the tag "failpoint", for the fault suite, uses
// it.
//
// Invariant: what happens depends on the plan and on the announced steps, never on time.
package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Env names the environment variable with a Plan in JSON.
const Env = "BUILDYARD_FAILPOINT"

// Plan defines what happens at which step. The zero value of a field changes nothing.
type Plan struct {
	Trace string `json:"trace,omitempty"` // file that receives the name of every step, one per line
	Step  string `json:"step,omitempty"`  // at which something happens
	Nth   int    `json:"nth,omitempty"`   // occurrence of the step, from 1
	Fill  string `json:"fill,omitempty"`  // file that then uses all free space of its file system; "": the process dies

	Reserve     int64         `json:"reserve,omitempty"`     // of the registry's disk; 0: it has none
	FoldPulls   int           `json:"fold_pulls,omitempty"`  // lines of a log of pulls
	Consolidate time.Duration `json:"consolidate,omitempty"` // how often chains are checked
}

// FromEnvironment reads the plan that the process was started with.
func FromEnvironment() (p Plan, err error) {
	text := os.Getenv(Env)
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("%s: %w", Env, err)
	}
	return p, nil
}

// Setting returns the environment's entry for a plan.
func (p Plan) Setting() (string, error) {
	raw, err := json.Marshal(p)
	return Env + "=" + string(raw), err
}

// Hook returns a function to call before every step. A plan that it cannot carry out ends the
// process, so that no step counts as tested that was not.
func (p Plan) Hook() func(step string) {
	var mu sync.Mutex // guards met; held during the action
	met := 0
	return func(step string) {
		mu.Lock()
		defer mu.Unlock()
		if err := p.trace(step); err != nil {
			panic(err)
		}
		if step != p.Step {
			return
		}
		if met++; met != p.Nth {
			return
		}
		if p.Fill == "" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if err := Fill(p.Fill); err != nil {
			panic(err)
		}
	}
}

func (p Plan) trace(step string) error {
	if p.Trace == "" {
		return nil
	}
	f, err := os.OpenFile(p.Trace, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(step + "\n")
	return errors.Join(err, f.Close())
}

// Fill writes a file until its file system has no space for another byte.
func Fill(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
