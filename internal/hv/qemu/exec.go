package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
)

const (
	// A command is asked about after an eighth of the time it has taken so far.
	minPoll           = 5 * time.Millisecond
	maxPoll           = 200 * time.Millisecond
	killReportTimeout = 15 * time.Second // for a killed command to be reported

	// agentSilenceTimeout is how long a guest agent may be silent before a command without a timeout fails.
	agentSilenceTimeout = 2 * time.Minute
)

// guestEnv is the initial environment of a command.
var guestEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// Exec runs a command in the guest.
func (d *Driver) Exec(ctx context.Context, id string, cmd hv.Command) (hv.Result, error) {
	if err := cmd.Validate(); err != nil {
		return hv.Result{}, fmt.Errorf("qemu: %w", err)
	}
	_, r, err := d.runningMachine(id)
	if err != nil {
		return hv.Result{}, err
	}
	res, err := r.exec(ctx, cmd)
	if err != nil {
		select {
		case <-r.exited:
			err = errors.Join(hv.ErrNotRunning, err)
		default:
		}
		return hv.Result{}, fmt.Errorf("qemu: run command in VM %s: %w", id, err)
	}
	return res, nil
}

// guestCommand is one command that was started in a guest.
type guestCommand struct {
	run  *run
	name string // of its directory in the guest
	pid  int    // of its wrapper
}

func (r *run) exec(ctx context.Context, cmd hv.Command) (hv.Result, error) {
	if err := r.awaitAgent(ctx); err != nil {
		return hv.Result{}, err
	}
	g := guestCommand{run: r, name: guestscript.NewName()}
	input, err := g.start(ctx, cmd)
	if err != nil {
		return hv.Result{}, err
	}
	run, cancel := ctx, context.CancelFunc(func() {})
	if input.Timeout > 0 {
		run, cancel = context.WithTimeoutCause(ctx, input.Timeout, errCommandTimeout)
	}
	defer cancel()
	stopFollowing := guestscript.Follow(run, g.readOutput, input.OnOutput)
	defer stopFollowing()
	res, err := g.wait(run)
	if err == nil || run.Err() == nil {
		return res, err
	}
	// Whatever ended the wait, nothing of the command may continue.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killReportTimeout)
	defer cancel()
	g.killOrLog(last)
	if ctx.Err() != nil {
		return hv.Result{}, ctx.Err()
	}
	res, err = g.wait(last)
	if err != nil {
		res = hv.Result{Errors: []string{"the end of the command could not be confirmed: " + err.Error()}}
	}
	res.TimedOut, res.Code = true, hv.CodeTimedOut
	return res, nil
}

// start starts the command with its input.
func (g *guestCommand) start(ctx context.Context, cmd hv.Command) (hv.Input, error) {
	if cmd.AwaitInput != nil {
		return g.startAwaiting(ctx, cmd)
	}
	err := g.startProgram(ctx, guestscript.CommandArgs(g.name, cmd), cmd.Env, cmd.Stdin)
	return hv.Input{Timeout: cmd.Timeout, OnOutput: cmd.OnOutput}, err
}

// awaitAgent waits until the guest has opened its agent port. It already has, unless this process
// has only just found the VM, or the VM still boots.
func (r *run) awaitAgent(ctx context.Context) error {
	t := time.NewTimer(qgaTimeout)
	defer t.Stop()
	select {
	case <-r.agentOpened:
		return nil
	case <-r.exited:
		return errProcessGone
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errors.New("no response from the QEMU guest agent")
	}
}

var errCommandTimeout = errors.New("the command in the guest timed out")

// startProgram has the guest agent start a program, args[0].
func (g *guestCommand) startProgram(ctx context.Context, args, env []string, stdin []byte) error {
	req := struct {
		Path    string   `json:"path"`
		Args    []string `json:"arg"`
		Env     []string `json:"env"`
		Input   []byte   `json:"input-data,omitempty"`
		Capture bool     `json:"capture-output"`
	}{args[0], args[1:], append(slices.Clip(guestEnv), env...), stdin, true}
	var started struct {
		PID int `json:"pid"`
	}
	if err := g.run.guestAgent.call(ctx, "guest-exec", req, &started); err != nil {
		return err
	}
	g.pid = started.PID
	return nil
}

// execStatus is the guest agent's status of a program.
type execStatus struct {
	Exited       bool   `json:"exited"`
	ExitCode     *int   `json:"exitcode"`
	Signal       int    `json:"signal"`
	Stdout       []byte `json:"out-data"`
	Stderr       []byte `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// wait polls, often at first, until the program has ended or ctx ends.
func (g *guestCommand) wait(ctx context.Context) (hv.Result, error) {
	begun, heard := time.Now(), time.Now()
	for {
		var s execStatus
		err := g.run.guestAgent.call(ctx, "guest-exec-status", map[string]int{"pid": g.pid}, &s)
		var refused *remoteError
		switch {
		case err == nil && s.Exited:
			return s.result()
		case err == nil:
			heard = time.Now()
		case errors.As(err, &refused): // a guest that was rebooted does not know the program
			return hv.Result{}, err
		case time.Since(heard) > agentSilenceTimeout:
			return hv.Result{}, err
		}
		select {
		case <-g.run.exited:
			return hv.Result{}, errProcessGone
		case <-ctx.Done():
			return hv.Result{}, ctx.Err()
		case <-time.After(min(max(time.Since(begun)/8, minPoll), maxPoll)):
		}
	}
}

// readOutput returns the end of what the command has printed so far.
func (g *guestCommand) readOutput(ctx context.Context) (stdout, stderr []byte, err error) {
	f := guestCommand{run: g.run}
	if err := f.startProgram(ctx, guestscript.FollowArgs(g.name), nil, nil); err != nil {
		return nil, nil, err
	}
	res, err := f.wait(ctx)
	return res.Stdout, res.Stderr, err
}

// killOrLog kills the command, whose caller has another error to return.
func (g *guestCommand) killOrLog(ctx context.Context) {
	if err := g.kill(ctx); err != nil {
		g.run.machine.driver.log.Warn("killing a command in the guest failed", "vm", g.run.machine.id, "error", err)
	}
}

// kill ends the command's whole session. Its wrapper continues, to report.
func (g *guestCommand) kill(ctx context.Context) error {
	k := guestCommand{run: g.run}
	if err := k.startProgram(ctx, guestscript.KillArgs(g.name), nil, nil); err != nil {
		return err
	}
	res, err := k.wait(ctx)
	if err == nil && res.Code != 0 {
		return errors.New("command not found in the guest")
	}
	return err
}

func (s execStatus) result() (hv.Result, error) {
	if s.ExitCode == nil {
		return hv.Result{}, fmt.Errorf("the wrapper of the command in the guest was killed by signal %d", s.Signal)
	}
	res := hv.Result{Code: *s.ExitCode, Stdout: hv.LastOutput(s.Stdout), Stderr: hv.LastOutput(s.Stderr)}
	if s.OutTruncated || s.ErrTruncated {
		res.Errors = []string{"the guest agent cut the output"}
	}
	return res, nil
}
