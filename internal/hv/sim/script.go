package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// The guest of a simulated VM has these programs: sh and bash (a script on
// stdin or after -c), cat, echo, seq, sleep, true, false. A script is
// a list of commands, one a line or separated by ';':
//
//	echo WORD...      prints the words; ending in ">&2", to stderr; a word
//	                  "$NAME" is a variable given with the command
//	seq N             prints 1 to N, a line each, at most 10 million
//	sleep D           waits D: seconds, or a duration such as 150ms
//	                  ending in ">/PATH", into that file
//	cat               prints stdin, when the script is not on it
//	cat /PATH         prints a file that echo wrote; below /dev/shm it is memory
//	exit N            ends the script with that code
//	crash             ends the VM, as a crash of its hypervisor would
//
// Every other line succeeds and prints nothing, so that a real startup script
// runs too. The script that grows a file system succeeds as a whole. No quotes, assignments or pipes are understood.

// growScript is a real shell's: its lines mean other things in the language above.
var growScript = hv.GrowFileSystemCommand(0).Stdin

// Exec runs a command of the tiny language above.
func (h *Host) Exec(ctx context.Context, id string, cmd hv.Command) (hv.Result, error) {
	if err := cmd.Validate(); err != nil {
		return hv.Result{}, err
	}
	gone, luck, err := h.currentRunEnd(id)
	if err != nil {
		return hv.Result{}, err
	}
	run, cancel := withRunEnd(ctx, gone)
	defer cancel()
	p := &process{host: h, id: id, cmd: cmd, timeout: forever}
	if cmd.Timeout > 0 {
		p.timeout = cmd.Timeout
	}
	p.startedAt = h.clock.Now()
	err = p.wait(run, luck.durationIn(h.opts.Exec))
	if err == nil && cmd.AwaitInput != nil {
		err = p.awaitInput(run)
	}
	if err == nil && luck.Float64() < h.opts.ExecFailureRate {
		return hv.Result{}, fmt.Errorf("sim: VM %s: simulated failure of a command", id)
	}
	if err == nil {
		err = p.runProgram(run)
	}
	if _, lost := h.Get(ctx, id); lost != nil && err == nil { // also lets a planned crash happen
		err = lost
	}
	return p.result(ctx, gone, err)
}

// awaitInput completes the command by its late input.
func (p *process) awaitInput(ctx context.Context) error {
	input, err := p.cmd.AwaitInput(ctx)
	if err == nil {
		err = input.Validate()
	}
	if err != nil {
		return err
	}
	p.cmd.Stdin, p.cmd.OnOutput = input.Stdin, input.OnOutput
	p.startedAt, p.timeout = p.host.clock.Now(), forever
	if input.Timeout > 0 {
		p.timeout = input.Timeout
	}
	return nil
}

// currentRunEnd returns a channel that is closed when the VM's current run ends.
func (h *Host) currentRunEnd(id string) (<-chan struct{}, seededRand, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.vms[id]
	if !ok {
		return nil, seededRand{}, fmt.Errorf("sim: %w: %s", hv.ErrNotFound, id)
	}
	now := h.clock.Now()
	h.applyPlannedEndLocked(r, now)
	if r.VM.Status != hv.Running || now.Before(r.ReadyAt) {
		return nil, seededRand{}, fmt.Errorf("sim: VM %s: %w", id, hv.ErrNotRunning)
	}
	r.Commands++
	return r.ended, h.rng(id, fmt.Sprint("exec", r.Runs, r.Commands)), nil
}

// withRunEnd derives a context that also ends when gone is closed.
func withRunEnd(ctx context.Context, gone <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-gone:
			cancel()
		}
	}()
	return ctx, cancel
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// process is one running command.
type process struct {
	host      *Host
	id        string
	cmd       hv.Command
	startedAt time.Time
	timeout   time.Duration

	stdout, stderr bytes.Buffer
	exitCode       int
	inScript       bool // the script is stdin, so cat has nothing to read
}

var (
	errExit    = errors.New("exit") // ends a script early; its code is set
	errTimeout = errors.New("timeout")
)

func (p *process) result(ctx context.Context, gone <-chan struct{}, err error) (hv.Result, error) {
	r := hv.Result{Code: p.exitCode, Stdout: hv.LastOutput(p.stdout.Bytes()), Stderr: hv.LastOutput(p.stderr.Bytes())}
	switch {
	case isClosed(gone):
		return hv.Result{}, fmt.Errorf("sim: VM %s exited during a command: %w", p.id, hv.ErrNotRunning)
	case err == nil || errors.Is(err, errExit):
		return r, nil
	case errors.Is(err, errTimeout):
		r.Code, r.TimedOut = hv.CodeTimedOut, true
		return r, nil
	case ctx.Err() != nil:
		return hv.Result{}, ctx.Err()
	}
	return hv.Result{}, err
}

// wait sleeps, but not past the command's time-out.
func (p *process) wait(ctx context.Context, d time.Duration) error {
	if p.cmd.OnOutput != nil && p.stdout.Len()+p.stderr.Len() > 0 {
		p.cmd.OnOutput(liveOutput(&p.stdout), liveOutput(&p.stderr))
	}
	left := p.timeout - p.host.clock.Now().Sub(p.startedAt)
	if err := p.host.clock.Sleep(ctx, min(d, left)); err != nil {
		return err
	}
	if d >= left {
		return errTimeout
	}
	return ctx.Err()
}

// liveOutput copies the end of an output for Command.OnOutput.
func liveOutput(b *bytes.Buffer) []byte {
	return bytes.Clone(b.Bytes()[max(0, b.Len()-hv.MaxLiveOutputBytes):])
}

func (p *process) runProgram(ctx context.Context) error {
	name := path.Base(p.cmd.Path)
	args := p.cmd.Args
	switch name {
	case "sh", "bash":
		if bytes.Equal(p.cmd.Stdin, growScript) {
			return nil // a simulated disk has no file system to grow
		}
		if len(args) > 1 && args[0] == "-c" && !p.cmd.RunsScript() {
			return p.runScript(ctx, args[1])
		}
		p.inScript = true
		return p.runScript(ctx, string(p.cmd.Stdin))
	case "cat", "echo", "seq", "sleep", "true", "false":
		return p.runLine(ctx, append([]string{name}, args...))
	}
	p.exitCode = hv.CodeNotFound
	fmt.Fprintf(&p.stderr, "%s: not found\n", p.cmd.Path)
	return nil
}

func (p *process) runScript(ctx context.Context, text string) error {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := p.runLine(ctx, words); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) runLine(ctx context.Context, words []string) error {
	args := words[1:]
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	p.exitCode = 0
	switch words[0] {
	case "echo":
		p.echo(args)
	case "cat":
		if strings.HasPrefix(first, "/") {
			p.readFile(first)
		} else if !p.inScript {
			p.stdout.Write(p.cmd.Stdin)
		}
	case "seq":
		return p.seq(ctx, first)
	case "sleep":
		return p.sleep(ctx, first)
	case "false":
		p.exitCode = 1
	case "exit":
		p.exitCode, _ = strconv.Atoi(first)
		p.exitCode &= 0xff
		return errExit
	case "crash":
		if err := p.host.Kill(p.id); err != nil {
			return err
		}
		return context.Canceled
	}
	return nil
}

func (p *process) echo(args []string) {
	out, file := &p.stdout, ""
	if n := len(args); n > 0 && args[n-1] == ">&2" {
		out, args = &p.stderr, args[:n-1]
	} else if n > 0 && strings.HasPrefix(args[n-1], ">/") {
		out, file, args = new(bytes.Buffer), args[n-1][1:], args[:n-1]
	}
	said := make([]string, len(args))
	for i, a := range args {
		said[i] = p.expand(a)
	}
	fmt.Fprintln(out, strings.Join(said, " "))
	if file != "" {
		p.writeFile(file, out.String())
	}
}

// maxFiles bounds what a simulated guest remembers.
const maxFiles = 64

func (p *process) writeFile(name, text string) {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	r := p.host.vms[p.id]
	if r == nil || len(r.Files) >= maxFiles || len(text) > 4096 {
		p.exitCode = 1
		return
	}
	if r.Files == nil { // of an older file
		r.Files = guestFiles{}
	}
	r.Files[name] = text
	if err := p.host.saveLocked(r); err != nil {
		p.exitCode = 1
	}
}

func (p *process) readFile(name string) {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	r := p.host.vms[p.id]
	if r == nil {
		p.exitCode = 1
		return
	}
	text, ok := r.Files[name]
	if !ok {
		text, ok = r.Base[name]
	}
	if !ok {
		p.exitCode = 1
		fmt.Fprintf(&p.stderr, "cat: %s: no such file\n", name)
		return
	}
	p.stdout.WriteString(text)
}

func (p *process) seq(ctx context.Context, arg string) error {
	n, err := strconv.Atoi(arg)
	if err != nil || n > 10_000_000 {
		p.exitCode = 1
		return nil
	}
	for i := 1; i <= n; i++ {
		p.stdout.Write(strconv.AppendInt(p.stdout.AvailableBuffer(), int64(i), 10))
		p.stdout.WriteByte('\n')
		if p.stdout.Len() > 4*hv.MaxOutputBytes { // keep what counts, not all of it
			rest := bytes.Clone(hv.LastOutput(p.stdout.Bytes()))
			p.stdout.Reset()
			p.stdout.Write(rest)
		}
	}
	return ctx.Err()
}

func (p *process) sleep(ctx context.Context, arg string) error {
	d, err := time.ParseDuration(arg)
	if err != nil {
		d, err = time.ParseDuration(arg + "s")
	}
	if err != nil || d < 0 {
		p.exitCode = 1
		return nil
	}
	return p.wait(ctx, d)
}

// expand returns the value of "$NAME", and every other word unchanged.
func (p *process) expand(word string) string {
	name, ok := strings.CutPrefix(word, "$")
	if !ok {
		return word
	}
	for _, kv := range p.cmd.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
