package guestscript

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	killTimeout   = 15 * time.Second // for a killed command to be reported
	maxReportSize = 64               // bytes of the line with the exit code
)

// ErrUnknownResult reports that the guest did not say how a command ended.
var ErrUnknownResult = errors.New("the guest did not report how the command ended")

// Run runs a program in a guest with these streams. It returns when the program has ended and its
// outputs are written, or soon after ctx ends. An exit code other than 0 may be an error or not: Exec
// reads the code from the last line of stderr, and takes an error only when that line is missing.
type Run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error

// Exec runs a command as hv.Driver.Exec describes.
func Exec(ctx context.Context, run Run, cmd hv.Command) (hv.Result, error) {
	client, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	c := startCommand(client, run, cmd)
	input, err := c.awaitInput(ctx)
	if err != nil { // the program finds its stdin empty
		stop()
		<-c.done
		return hv.Result{}, err
	}
	read := func(ctx context.Context) (stdout, stderr []byte, err error) { return c.readOutput(ctx, run) }
	stopFollowing := Follow(ctx, read, input.OnOutput)
	defer stopFollowing()
	var timeout <-chan time.Time
	if input.Timeout > 0 {
		t := time.NewTimer(input.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-c.done:
		return c.result()
	case <-ctx.Done():
	case <-timeout:
	}

	// The command was canceled or timed out: none of its processes may continue.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	killErr := c.kill(last, run)
	select {
	case <-c.done:
	case <-last.Done():
		stop()
		<-c.done
	}
	if ctx.Err() != nil {
		return hv.Result{}, errors.Join(ctx.Err(), killErr)
	}
	return c.timedOutResult(killErr), nil
}

// command is a command whose client is running.
type command struct {
	name           string
	stdout, stderr *tailBuffer
	done           chan struct{} // closed when the client has ended; the fields are then final
	err            error
	input          *lateInput
}

func startCommand(ctx context.Context, run Run, cmd hv.Command) *command {
	c := &command{
		name: NewName(), done: make(chan struct{}), input: newLateInput(ctx, cmd),
		stdout: &tailBuffer{limit: hv.MaxOutputBytes}, stderr: &tailBuffer{limit: hv.MaxOutputBytes + maxReportSize},
	}
	stdin := io.MultiReader(strings.NewReader(encodeEnvironment(cmd.Env)), c.input)
	go func() {
		defer close(c.done)
		c.err = run(ctx, reportingArgs(c.name, cmd), stdin, c.stdout, c.stderr)
	}()
	return c
}

// awaitInput returns the input of the command once the client reads it. It ends with ErrNoInput when the client has
// ended before.
func (c *command) awaitInput(ctx context.Context) (hv.Input, error) {
	select {
	case <-c.input.known:
		return c.input.value, c.input.err
	case <-ctx.Done():
		return hv.Input{}, ctx.Err()
	case <-c.done:
	}
	select {
	case <-c.input.known: // the client may have read it as the last thing
		return c.input.value, c.input.err
	default:
		return hv.Input{}, errors.Join(hv.ErrNoInput, c.err)
	}
}

// lateInput reads the stdin of a command, which may be known only when it is read.
type lateInput struct {
	ctx   context.Context //nolint:containedctx // Read has none
	await func(context.Context) (hv.Input, error)
	known chan struct{} // closed when the fields below are final
	value hv.Input
	err   error
	rest  io.Reader // of value.Stdin
}

func newLateInput(ctx context.Context, cmd hv.Command) *lateInput {
	l := &lateInput{ctx: ctx, await: cmd.AwaitInput, known: make(chan struct{})}
	if l.await == nil {
		l.know(hv.Input{Stdin: cmd.Stdin, Timeout: cmd.Timeout, OnOutput: cmd.OnOutput}, nil)
	}
	return l
}

func (l *lateInput) know(value hv.Input, err error) {
	if err == nil {
		err = value.Validate()
	}
	l.value, l.err, l.rest = value, err, strings.NewReader(string(value.Stdin))
	close(l.known)
}

// Read is called by one goroutine.
func (l *lateInput) Read(p []byte) (int, error) {
	if l.rest == nil {
		l.know(l.await(l.ctx))
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.rest.Read(p)
}

// result returns what the guest reported.
func (c *command) result() (hv.Result, error) {
	stderr := string(c.stderr.bytes())
	begin := strings.LastIndex(stderr, c.name+" ")
	if begin < 0 {
		return hv.Result{}, unknownResultError(c.err, stderr)
	}
	code, err := strconv.ParseUint(strings.TrimRight(stderr[begin+len(c.name)+1:], "\r\n"), 10, 8)
	if err != nil {
		return hv.Result{}, unknownResultError(c.err, stderr)
	}
	return hv.Result{Code: int(code), Stdout: c.stdout.bytes(), Stderr: hv.LastOutput([]byte(stderr[:begin]))}, nil
}

// timedOutResult returns the outputs of a command that was killed.
func (c *command) timedOutResult(killErr error) hv.Result {
	res, err := c.result()
	if err != nil {
		res = hv.Result{Stdout: c.stdout.bytes(), Stderr: hv.LastOutput(c.stderr.bytes())}
		res.Errors = []string{"the end of the command could not be confirmed: " + errors.Join(err, killErr).Error()}
	}
	res.TimedOut, res.Code = true, hv.CodeTimedOut
	return res
}

// unknownResultError returns the error of a command whose end is unknown, with what the client said.
func unknownResultError(err error, stderr string) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknownResult, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	if line == "" {
		return ErrUnknownResult
	}
	return fmt.Errorf("%w: %.300s", ErrUnknownResult, line)
}

// kill kills the command in the guest, unless it reports its end before.
func (c *command) kill(ctx context.Context, run Run) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-c.done:
			if _, err := c.result(); err == nil {
				cancel() // the killer would wait for a command that has ended
			}
		}
	}()
	err := run(ctx, KillArgs(c.name), strings.NewReader(""), io.Discard, &tailBuffer{limit: maxReportSize << 4})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("kill the command in the guest: %w", err)
	}
	return nil
}

// tailBuffer keeps the last bytes that were written to it.
type tailBuffer struct {
	limit int
	data  []byte // at most 2*limit bytes
}

// Write never fails.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-t.limit):]...)
	if len(t.data) > 2*t.limit {
		t.data = append(t.data[:0], t.bytes()...)
	}
	return len(p), nil
}

func (t *tailBuffer) bytes() []byte { return t.data[max(0, len(t.data)-t.limit):] }
