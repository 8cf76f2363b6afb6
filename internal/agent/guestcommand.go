package agent

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
)

// runningCommand is a command that was begun in a guest.
type runningCommand struct {
	cancel  context.CancelCauseFunc // kills it
	ended   chan struct{}           // closed when outcome is final
	outcome scriptOutcome
}

// scriptOutcome is the result of a command.
type scriptOutcome struct {
	result hv.Result
	err    error
}

// runInBackground begins a command in the guest. It does not end with the agent, which must not kill what runs in a
// guest.
func (a *Agent) runInBackground(ctx context.Context, in *instance, cmd hv.Command) *runningCommand {
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &runningCommand{cancel: cancel, ended: make(chan struct{})}
	in.backgroundCommands.Go(func() {
		defer close(c.ended)
		defer cancel(nil)
		r, err := a.opts.Driver.Exec(run, in.id, cmd)
		if over := context.Cause(run); err != nil && errors.Is(over, context.DeadlineExceeded) {
			err = over // whatever error the driver returned
		}
		c.outcome = scriptOutcome{r, err}
	})
	return c
}

// endAfter kills a command that runs longer than its timeout: the driver ends it then, and this is for a driver that
// hangs.
func (c *runningCommand) endAfter(timeout time.Duration) {
	if timeout == 0 {
		return
	}
	timer := time.AfterFunc(timeout+execTimeoutMargin, func() { c.cancel(context.DeadlineExceeded) })
	go func() {
		<-c.ended
		timer.Stop()
	}()
}

// beginScript begins a script: in the waiting shell where there is one, otherwise in a new one.
func (a *Agent) beginScript(ctx context.Context, in *instance, cmd hv.Command) (*runningCommand, error) {
	input := hv.Input{Stdin: cmd.Stdin, Timeout: cmd.Timeout, OnOutput: cmd.OnOutput}
	script := in.takeWaitingShell().begin(ctx.Done(), in, input)
	switch {
	case script != nil:
	case in.ending.Err() != nil:
		return nil, errEnding
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		script = a.runInBackground(ctx, in, cmd)
	}
	script.endAfter(cmd.Timeout)
	return script, nil
}

// waitingShell is a shell in the guest of a standby, which waits for the startup script of the start that claims the
// standby: starting programs takes longer than the rest of a claim. The shell of an agent that was killed waits until
// the guest ends.
type waitingShell struct {
	command *runningCommand
	inputs  chan hv.Input
}

const (
	// shellLife is how long a shell waits before another one replaces it: guests remove old files from /tmp.
	shellLife = 6 * time.Hour
	// shellEndTimeout is how long the end of the agent waits for that of a shell.
	shellEndTimeout = 2 * time.Second
)

// haveShellWait starts the shell for a standby whose VM runs and that has none.
func (a *Agent) haveShellWait(ctx context.Context, in *instance) {
	if in.order.Start == nil || !in.order.Start.Standby || in.snapshot().Phase != api.PhaseRunning {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shell != nil || in.takenOver || in.state.Ending {
		return
	}
	shell := &waitingShell{inputs: make(chan hv.Input)}
	cmd := hv.ScriptCommand(nil, 0)
	cmd.AwaitInput = func(run context.Context) (hv.Input, error) {
		old := time.NewTimer(shellLife)
		defer old.Stop()
		select {
		case input := <-shell.inputs:
			return input, nil
		case <-old.C: // a shell without a script ends
			return hv.Input{}, nil
		case <-ctx.Done(): // the agent ends
			return hv.Input{}, nil
		case <-run.Done():
			return hv.Input{}, context.Cause(run)
		}
	}
	shell.command = a.runInBackground(ctx, in, cmd)
	in.adoptShellLocked(shell)
	go a.replaceShell(in, shell)
}

// replaceShell has the worker start another shell when one has ended without a script because it was old. One that
// failed is not replaced: a start that claims the standby runs its script without it.
func (a *Agent) replaceShell(in *instance, shell *waitingShell) {
	<-shell.command.ended
	err := shell.command.outcome.err
	if err != nil && in.ending.Err() == nil {
		a.log.Info("no shell waits in the guest of a standby; a startup script begins later without it", "instance_id",
			in.id, "error", err)
	}
	if err != nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.shell == shell && !in.takenOver {
		in.shell = nil
		in.wakeWorker()
	}
}

// awaitShellEnd waits a moment for the shell, which ends with the agent.
func (in *instance) awaitShellEnd() {
	in.mu.Lock()
	shell := in.shell
	in.mu.Unlock()
	if shell == nil {
		return
	}
	select {
	case <-shell.command.ended:
	case <-time.After(shellEndTimeout):
	}
}

// adoptShellLocked makes a shell the one of the instance, whose termination ends it.
func (in *instance) adoptShellLocked(shell *waitingShell) {
	in.shell = shell
	in.onTermination(func() { shell.command.cancel(nil) })
}

// inheritShellLocked hands the shell of a standby to the start that takes over its VM. A start without a script
// ends it.
func (in *instance) inheritShellLocked(standby *instance) {
	in.backgroundCommands = standby.backgroundCommands
	shell := standby.shell
	if shell == nil {
		return
	}
	in.adoptShellLocked(shell)
	if in.scriptState(in.state) == noScript {
		in.shell = nil
		go shell.begin(nil, in, hv.Input{})
	}
}

// takeWaitingShell returns the shell that waits in the guest, which nothing else uses then; nil when there is none.
func (in *instance) takeWaitingShell() *waitingShell {
	in.mu.Lock()
	defer in.mu.Unlock()
	shell := in.shell
	in.shell = nil
	return shell
}

// begin passes a script to the shell, and waits while the shell is still being started, until stop is closed. It
// returns the command that runs the script then; nil if the shell does not. s may be nil.
func (s *waitingShell) begin(stop <-chan struct{}, in *instance, script hv.Input) *runningCommand {
	if s == nil {
		return nil
	}
	select {
	case s.inputs <- script:
		return s.command
	case <-s.command.ended:
	case <-in.ending.Done():
	case <-stop:
	}
	return nil
}
