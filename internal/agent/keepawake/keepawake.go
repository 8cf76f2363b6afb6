// Package keepawake keeps a Mac from going to sleep while VMs run.
//
// It runs caffeinate, a program of macOS, and knows no VMs: the agent reports whether one runs. Other systems do not
// sleep while they are used as a node, and get no Assertion.
//
// Invariant: a caffeinate is killed before another one is started, and none runs after Close or the end of this
// process.
package keepawake

import (
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// retryInterval is how long a failed start of caffeinate is not repeated.
const retryInterval = time.Minute

// Assertion keeps the machine awake while it is needed. Create it with New, and close it at the end.
type Assertion struct {
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	child  *child     // nil: none runs
	next   time.Time  // before this, caffeinate is not started again
	closed bool
}

// child is a caffeinate that runs.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// New returns an assertion that is not needed.
func New(log *slog.Logger) *Assertion { return &Assertion{log: log} }

// SetNeeded keeps the machine awake from now on, or lets it sleep again. It is cheap when nothing changes.
func (a *Assertion) SetNeeded(needed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case needed && a.child == nil && !a.closed && !time.Now().Before(a.next):
		a.startLocked()
	case !needed:
		a.stopLocked()
	}
}

// startLocked starts caffeinate, which ends with this process: -i prevents sleep of an idle system.
func (a *Assertion) startLocked() {
	cmd := exec.Command("caffeinate", "-i", "-w", strconv.Itoa(os.Getpid())) //nolint:noctx // it ends by Kill or -w
	a.next = time.Now().Add(retryInterval)
	if err := cmd.Start(); err != nil {
		a.log.Warn("start caffeinate failed: the machine may sleep while VMs run", "error", err)
		return
	}
	c := &child{cmd, make(chan struct{})}
	a.child = c
	go a.wait(c)
}

// wait collects the end of a caffeinate.
func (a *Assertion) wait(c *child) {
	err := c.cmd.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.child == c { // it was not stopped by this process
		a.log.Warn("caffeinate ended: the machine may sleep while VMs run", "error", err)
		a.child = nil
	}
	close(c.ended)
}

// stopLocked ends caffeinate. The next start need not wait.
func (a *Assertion) stopLocked() {
	a.next = time.Time{}
	c := a.child
	if c == nil {
		return
	}
	a.child = nil
	_ = c.cmd.Process.Kill() // fails only if it has ended
}

// Close ends caffeinate and waits for its end.
func (a *Assertion) Close() error {
	a.mu.Lock()
	a.closed = true
	c := a.child
	a.stopLocked()
	a.mu.Unlock()
	if c != nil {
		<-c.ended
	}
	return nil
}
