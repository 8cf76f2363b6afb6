package cliproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const waitLimit = time.Minute // for a condition that comes true within milliseconds on an idle machine

// shell returns a command that a shell runs; its words are not part of errors.
func shell(script string) Command {
	return Command{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, waitLimit)
		}
	}
}

func TestRun(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	broken := io.MultiReader(strings.NewReader("a"), readError{errors.ErrUnsupported})

	for name, c := range map[string]struct {
		ctx    context.Context
		cmd    Command
		change func(*Command)
		out    string
		code   int // of the error; 0 = no error
		text   string
		is     error
	}{
		"output":         {cmd: shell("echo a; echo b >&2"), out: "a\n"},
		"input":          {cmd: shell("cat"), change: input(strings.NewReader("hello")), out: "hello"},
		"input not read": {cmd: shell("echo a"), change: input(endless{}), out: "a\n"},
		"input of null":  {cmd: shell("cat; echo end"), out: "end\n"},
		"no environment": {cmd: Command{Path: "/usr/bin/env"}},
		"environment":    {cmd: Command{Path: "/usr/bin/env", Env: []string{"A=1"}}, out: "A=1\n"},
		"directory":      {cmd: shell("pwd"), change: func(c *Command) { c.Dir = "/" }, out: "/\n"},
		"last bytes": {
			cmd: shell("echo 12345; echo 6789"), change: func(c *Command) { c.KeepBytes = 7 }, out: "6789\n",
		},
		"code": {
			cmd: shell("echo a; exit 7"), out: "a\n", code: 7, text: "sh -c: exit code 7 without an error message",
		},
		"line of stderr": {
			cmd: shell("{ echo; echo 'Error: no VM'; echo more; } >&2; exit 2"), code: 2,
			text: "sh -c: exit code 2: no VM",
		},
		"signal": {cmd: shell("kill -9 $$"), code: -1, text: "sh -c: signal: killed"},
		"missing program": {
			cmd: Command{Path: "/nonexistent", Args: []string{"stop"}}, code: -1,
			text: "nonexistent stop: the program could not be started", is: ErrNotStarted,
		},
		"canceled": {ctx: canceled, cmd: shell("sleep 600"), code: -1, is: context.Canceled},
		"deadline": {ctx: expired, cmd: shell("sleep 600"), code: -1, is: context.DeadlineExceeded},
		"input that fails": {
			cmd: shell("cat >/dev/null; sleep 600"), change: input(broken), code: -1,
			text: "sh -c: read the input of the program", is: errors.ErrUnsupported,
		},
		"time-out": {
			cmd: shell("sleep 600 & sleep 600"), change: func(c *Command) { c.Timeout = 100 * time.Millisecond },
			code: -1, text: "sh -c: " + ErrTimedOut.Error(), is: ErrTimedOut,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			if c.change != nil {
				c.change(&c.cmd)
			}
			r, err := Run(c.ctx, c.cmd)
			if string(r.Stdout) != c.out {
				t.Errorf("stdout %q, want %q", r.Stdout, c.out)
			}
			checkError(t, err, c.code, c.text, c.is)
		})
	}
}

func checkError(t *testing.T, err error, code int, text string, is error) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Error(err)
		}
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != code || !strings.HasPrefix(e.Error(), text) || is != nil && !errors.Is(err, is) {
		t.Errorf("error %v (%T), want code %d, %q and %v", err, err, code, text, is)
	}
	for _, other := range []error{ErrNotStarted, ErrTimedOut, context.Canceled} {
		timedOut := other == ErrTimedOut && is == context.DeadlineExceeded //nolint:errorlint // a value of the table
		if !errors.Is(is, other) && errors.Is(err, other) && !timedOut {
			t.Errorf("%v is also %v", err, other)
		}
	}
}

func input(r io.Reader) func(*Command) { return func(c *Command) { c.Stdin = r } }

type readError struct{ err error }

func (r readError) Read([]byte) (int, error) { return 0, r.err }

// endless is an input without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestRunDoesNotWaitForInput: a Read that never returns, as of a terminal, must not keep Run from returning.
func TestRunDoesNotWaitForInput(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	c := shell("echo a")
	c.Stdin = r
	if out, err := Run(t.Context(), c); err != nil || string(out.Stdout) != "a\n" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
}

// TestRunDoesNotWaitForChildren: a child of the program that keeps the outputs open is killed, and the program's code
// counts.
func TestRunDoesNotWaitForChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	out, err := Run(t.Context(), shell("sleep 600 & echo $! >"+file+"; echo a"))
	if err != nil || string(out.Stdout) != "a\n" {
		t.Fatalf("%q, %v", out.Stdout, err)
	}
	awaitEnd(t, file)
}

// TestTimeoutKillsGroup: nothing that the program has started survives the time-out.
func TestTimeoutKillsGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		eventually(t, "the child has started", func() bool { return readPID(file) > 0 })
	}()
	_, err := Run(ctx, shell("sleep 600 & echo $! >"+file+"; wait"))
	checkError(t, err, -1, "sh -c: context canceled", context.Canceled)
	awaitEnd(t, file)
}

func readPID(file string) (pid int) {
	text, _ := os.ReadFile(file)
	if !bytes.HasSuffix(text, []byte("\n")) {
		return 0
	}
	_, _ = fmt.Sscan(string(text), &pid)
	return pid
}

// awaitEnd waits until the process whose PID is in a file has ended.
func awaitEnd(t *testing.T, file string) {
	t.Helper()
	pid := readPID(file)
	if pid == 0 {
		t.Fatal("the child has left no PID")
	}
	eventually(t, "the child has ended", func() bool {
		_, err := Find(pid)
		return errors.Is(err, ErrEnded)
	})
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		limit   int
		writes  []string
		want    string
		dropped bool
	}{
		{4, nil, "", false},
		{4, []string{"ab", "cd"}, "abcd", false},
		{4, []string{"ab", "cde"}, "bcde", true},
		{4, []string{"abcdefghij"}, "ghij", true},
		{4, []string{"abc", "def", "ghi", "jkl"}, "ijkl", true},
		{6, []string{"abc\ndef\ngh\n"}, "gh\n", true},
		{4, []string{"abc", "def\n"}, "def\n", true},
	} {
		tail := newTail(c.limit)
		for _, w := range c.writes {
			_, _ = tail.Write([]byte(w))
		}
		if got := string(tail.bytes()); got != c.want || tail.dropped() != c.dropped {
			t.Errorf("%d %q: %q %v, want %q %v", c.limit, c.writes, got, tail.dropped(), c.want, c.dropped)
		}
	}
}

func TestErrorLine(t *testing.T) {
	long := strings.Repeat("é", maxLineBytes)
	for stderr, want := range map[string]string{
		"": "", "\n \n": "", "\n a\tb \nc": "a?b", "Error: x": "x", "\x1b[31mred": "?[31mred",
		long: long[:maxLineBytes],
	} {
		if got := (&Error{Stderr: stderr}).Line(); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
}
