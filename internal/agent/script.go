package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	defaultScriptTimeout = 90 * time.Second // timeout of a monitored script without one
	maxOutput            = 64 << 10         // bytes of stdout and of stderr in a status, the last ones

	outcomeUnknownMessage = "outcome unknown after an agent restart"
	leftRunningMessage    = "left running, since the VM was to be saved or restarted"

	// scriptPatience is how long a save or a restart waits for a script that is not monitored: such
	// a script often runs as long as its VM.
	scriptPatience = 90 * time.Second

	// outputInterval is how often the output of a running script is reported at most.
	outputInterval = time.Second

	// execTimeoutMargin is how long a driver may take to end a command after its timeout.
	execTimeoutMargin = time.Minute
)

// runStartupScript runs the startup script once. That it began is durable before it begins; an agent that
// ends in the meantime leaves the script running.
func (a *Agent) runStartupScript(ctx context.Context, in *instance, _ hv.VM) error {
	cmd := guestCommand(in.order.Start.Script)
	if err := a.storeState(in, func(s *journal.State) { s.ScriptBegun = true }); err != nil {
		return err
	}
	var patience <-chan time.Time
	if in.order.Start.Script.Monitoring {
		cmd.OnOutput = in.setScriptOutput
	} else {
		patience = time.After(scriptPatience)
	}
	o, err := a.executeScript(ctx, in, cmd, patience)
	if errors.Is(err, errScriptContinues) {
		left := &api.ScriptStatus{Code: hv.CodeTimedOut, Errors: []string{leftRunningMessage}}
		return a.concludeScript(ctx, in, left, "")
	}
	if err != nil {
		return err
	}
	if o.err != nil && a.isVMEnding(ctx, in) {
		return nil // the VM ended under its script; the next observation reports how
	}
	return a.concludeScript(ctx, in, scriptStatus(o, maxOutput), "")
}

// errScriptContinues reports that a command continues in the guest and the agent no longer waits for it.
var errScriptContinues = errors.New("the command still runs in the guest")

// executeScript runs a script in the guest until it ends (nil), the instance is to be terminated
// (errEnding, the script was killed), the agent ends (the script continues) or, after patience, a
// task is ordered for the instance (errScriptContinues).
func (a *Agent) executeScript(
	ctx context.Context, in *instance, cmd hv.Command, patience <-chan time.Time,
) (scriptOutcome, error) {
	script, err := a.beginScript(ctx, in, cmd)
	if err != nil {
		return scriptOutcome{}, err
	}
	outputTicks := time.NewTicker(outputInterval)
	defer outputTicks.Stop()
	var leave <-chan struct{}
	for {
		select {
		case <-script.ended:
			if !errors.Is(script.outcome.err, hv.ErrNoInput) {
				return script.outcome, nil
			}
			if script, err = a.beginScript(ctx, in, cmd); err != nil { // the shell that waited for it was gone
				return scriptOutcome{}, err
			}
		case <-outputTicks.C:
			a.reportScriptOutput(in)
		case <-in.ending.Done():
			script.cancel(nil)
			<-script.ended // the VM may be removed only after Exec returned
			return scriptOutcome{}, errEnding
		case <-ctx.Done():
			return scriptOutcome{}, ctx.Err()
		case <-patience:
			leave = in.taskOrdered.Done()
		case <-leave:
			in.onTermination(func() { script.cancel(nil) })
			return scriptOutcome{}, errScriptContinues
		}
	}
}

// setScriptOutput records what the startup script has printed so far.
func (in *instance) setScriptOutput(stdout, stderr []byte) {
	next := api.ScriptOutput{
		Stdout: lastText(stdout, hv.MaxLiveOutputBytes), Stderr: lastText(stderr, hv.MaxLiveOutputBytes),
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.scriptOutput.latest = next
}

// reportScriptOutput reports what the startup script has printed, if that has changed. Like progress it needs no
// durable write.
func (a *Agent) reportScriptOutput(in *instance) {
	in.mu.Lock()
	defer in.mu.Unlock()
	output := in.scriptOutput.latest
	if in.scriptOutput.reported != nil && *in.scriptOutput.reported == output || output == (api.ScriptOutput{}) {
		return
	}
	if !in.takenOver && !in.state.Ending && a.nextNumberLocked(in) {
		in.scriptOutput.reported = &output
		a.outbox.add(in.id)
	}
}

const (
	vmEndTimeout      = 3 * time.Second // in which a VM that broke off a script is seen to end
	vmEndPollInterval = 50 * time.Millisecond
)

// isVMEnding reports whether the VM no longer runs, or ends within vmEndTimeout: a script is often broken
// off by a dying hypervisor, whose connection breaks before its process is gone.
func (a *Agent) isVMEnding(ctx context.Context, in *instance) bool {
	ctx, cancel := context.WithTimeout(ctx, vmEndTimeout)
	defer cancel()
	for {
		s, _, err := a.observe(ctx, in)
		if err == nil && s.VM != vmUp {
			return true
		}
		timer := time.NewTimer(vmEndPollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// concludeLostScript concludes a script whose end an earlier agent did not see.
func (a *Agent) concludeLostScript(ctx context.Context, in *instance, _ hv.VM) error {
	status := &api.ScriptStatus{Code: hv.CodeTimedOut, Errors: []string{outcomeUnknownMessage}}
	return a.concludeScript(ctx, in, status, "startup script "+outcomeUnknownMessage)
}

// concludeScript records the result of the script. One that is not monitored never fails its
// instance; the controller does not show its result. A known result is kept until it is durable,
// since the guest cannot return it again.
func (a *Agent) concludeScript(ctx context.Context, in *instance, status *api.ScriptStatus, message string) error {
	a.metrics.countScript(status)
	failed := scriptFailed(status)
	if failed && message == "" {
		message = fmt.Sprintf("startup script exit code %d", status.Code)
	}
	phase := api.PhaseScriptOK
	if failed && in.order.Start.Script.Monitoring {
		phase = api.PhaseScriptFailed
	} else {
		message = ""
	}
	a.log.Info("startup script ended", "instance_id", in.id, "code", status.Code, "timed_out", status.TimedOut)
	return a.retryUntilDone(ctx, in, "saving the outcome of a startup script", func() error {
		return a.storeAndReport(in, func(s *journal.State) { s.Phase, s.Message, s.Script = phase, message, status })
	})
}

// guestCommand returns how a guest runs the script. Only a monitored one has a timeout.
func guestCommand(script *api.Script) hv.Command {
	var limit time.Duration
	if script.Monitoring {
		limit = time.Duration(script.Timeout) * time.Second
		if script.Timeout <= 0 {
			limit = defaultScriptTimeout
		}
	}
	return hv.ScriptCommand(script.Text, limit)
}

// scriptStatus returns the result of a script, with the last bytes of its output.
func scriptStatus(o scriptOutcome, limit int) *api.ScriptStatus {
	s := &api.ScriptStatus{
		Code: o.result.Code, TimedOut: o.result.TimedOut, Errors: o.result.Errors,
		Stdout: lastOutput(o.result.Stdout, limit), Stderr: lastOutput(o.result.Stderr, limit),
	}
	if o.err != nil {
		s.Code, s.Errors = hv.CodeTimedOut, append(s.Errors, firstBytes(o.err.Error(), maxMessageBytes))
	}
	if errors.Is(o.err, context.DeadlineExceeded) {
		s.TimedOut = true
	}
	return s
}

// scriptFailed reports whether a script did not succeed.
func scriptFailed(s *api.ScriptStatus) bool { return s.Code != 0 || s.TimedOut || len(s.Errors) > 0 }

// lastOutput returns the last bytes of an output as text, which begins with a note when the output
// was cut here or by the driver, which keeps hv.MaxOutputBytes.
func lastOutput(out []byte, limit int) string {
	return strings.ToValidUTF8(string(farm.LastOutput(out, limit, len(out) >= hv.MaxOutputBytes)), "\uFFFD")
}

// lastText keeps the last bytes of an output as text.
func lastText(out []byte, limit int) string {
	if len(out) > limit {
		out = out[len(out)-limit:]
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}
