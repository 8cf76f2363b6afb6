package hvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/retry"
)

// commands tries Exec on a VM that runs.
func (s *suite) commands(t *testing.T, id string) {
	s.check(t, "exec", func(t *testing.T) {
		for _, c := range execCases {
			t.Run(c.name, func(t *testing.T) {
				got, err := s.Driver.Exec(t.Context(), id, c.cmd)
				if err != nil {
					t.Fatal(err)
				}
				if got.Code != c.code || string(got.Stdout) != c.stdout || string(got.Stderr) != c.stderr ||
					got.TimedOut || got.Errors != nil {
					t.Errorf(
						"got code %d, stdout %.200q, stderr %.200q, timed out %v, errors %q; want %d, %.200q, %.200q",
						got.Code, got.Stdout, got.Stderr, got.TimedOut, got.Errors, c.code, c.stdout, c.stderr)
				}
			})
		}
	})
	s.check(t, "missing program", func(t *testing.T) {
		got, err := s.Driver.Exec(t.Context(), id, hv.Command{Path: "/no/such/program"})
		if err != nil || got.Code != hv.CodeNotFound || len(got.Stderr) == 0 {
			t.Errorf("got code %d, stderr %q, %v; want %d with a text", got.Code, got.Stderr, err, hv.CodeNotFound)
		}
	})
	s.check(t, "big output", func(t *testing.T) { s.bigOutput(t, id) })
	s.check(t, "time-out", func(t *testing.T) { s.timeout(t, id) })
	s.check(t, "cancelled command", func(t *testing.T) { s.canceledExec(t, id) })
	s.check(t, "live output", func(t *testing.T) { s.liveOutput(t, id) })
	s.check(t, "late input", func(t *testing.T) { s.lateInput(t, id) })
	s.check(t, "background child", func(t *testing.T) { s.background(t, id) })
	s.check(t, "concurrent commands", func(t *testing.T) { s.parallel(t, id) })
}

var execCases = []struct {
	name           string
	cmd            hv.Command
	code           int
	stdout, stderr string
}{
	{name: "true", cmd: hv.Command{Path: "true"}},
	{
		name: "both outputs", cmd: hv.Command{Path: "/bin/sh", Args: []string{"-c", "echo out\necho err >&2\nexit 3"}},
		code: 3, stdout: "out\n", stderr: "err\n",
	},
	{name: "stdin", cmd: hv.Command{Path: "cat", Stdin: []byte("a\x00b\nü")}, stdout: "a\x00b\nü"},
	{
		name: "large stdin", cmd: hv.Command{Path: "cat", Stdin: bytes.Repeat([]byte("0123456789abcde\n"), 16<<10)},
		stdout: strings.Repeat("0123456789abcde\n", 16<<10),
	},
	{name: "environment", cmd: hv.Command{
		Path: "/bin/sh", Args: []string{"-c", "echo $GREETING"}, Env: []string{"GREETING=a b=c"},
	}, stdout: "a b=c\n"},
	{name: "script", cmd: hv.ScriptCommand([]byte("A=1\necho one\nexit 4\necho two\n"),
		time.Minute), code: 4, stdout: "one\n"},
	{name: "empty script", cmd: hv.ScriptCommand(nil, time.Minute)},
}

func (s *suite) bigOutput(t *testing.T, id string) {
	got, err := s.Driver.Exec(t.Context(), id, hv.Command{Path: "seq", Args: []string{"200000"}, Timeout: time.Minute})
	if err != nil || got.Code != 0 {
		t.Fatalf("code %d, %v", got.Code, err)
	}
	if len(got.Stdout) != hv.MaxOutputBytes || !bytes.HasSuffix(got.Stdout, []byte("199999\n200000\n")) {
		t.Errorf("kept %d bytes ending in %q, want the last %d", len(got.Stdout), tail(got.Stdout), hv.MaxOutputBytes)
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-20):] }

// timeout proves, where there is a guest, that nothing of a timed-out command is left in it.
func (s *suite) timeout(t *testing.T, id string) {
	script := "echo before\nsleep 600\necho after\n"
	if s.host.HasCapability(hv.CanBoot) {
		script = "sleep 4321 &\n(sleep 4321; true) &\necho before\nsleep 4321\necho after\n"
	}
	got := s.timedOut(t, id, script, "before\n")
	if got.Code != hv.CodeTimedOut {
		t.Errorf("got %+v, want the code %d", got, hv.CodeTimedOut)
	}
	if s.host.HasCapability(hv.CanBoot) {
		s.noProcess(t, id, "4321")
	}
}

// timedOut runs a script that prints something and then does not end, until a time-out has come after that: an
// emulated guest on a busy machine may take seconds to begin.
func (s *suite) timedOut(t *testing.T, id, script, printed string) hv.Result {
	t.Helper()
	for limit := time.Second; ; limit *= 2 {
		got, err := s.Driver.Exec(t.Context(), id, hv.ScriptCommand([]byte(script), limit))
		if err != nil || !got.TimedOut {
			t.Fatalf("got %+v, %v, want a time-out", got, err)
		}
		if string(got.Stdout) == printed {
			return got
		}
		if len(got.Stdout) > 0 || limit > time.Minute {
			t.Fatalf("got %+v after %s, want a time-out with %q, which was printed before it", got, limit, printed)
		}
	}
}

// noProcess looks for a sleep of that many seconds in the guest.
func (s *suite) noProcess(t *testing.T, id, seconds string) {
	t.Helper()
	list, file := "ps -o args", "/dev/shm/ps"
	if !s.isLinux() {
		list, file = "ps -A -o args", "/root/ps"
	}
	count := s.paths(list + " >" + file + " && grep -c '^sleep " + seconds + "$' " + file)
	eventually(t, "the command's processes are gone", time.Minute, func() bool {
		got, err := s.Driver.Exec(t.Context(), id, hv.ScriptCommand([]byte(count), time.Minute))
		if err != nil || len(got.Stdout) == 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		return string(got.Stdout) == "0\n"
	})
}

func (s *suite) canceledExec(t *testing.T, id string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := s.Driver.Exec(ctx, id, hv.ScriptCommand([]byte("sleep 5432"), 0))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Exec: %v, want the context's error", err)
	}
	if s.host.HasCapability(hv.CanBoot) {
		s.noProcess(t, id, "5432")
	}
}

// liveOutput: what a command has printed is reported while it runs, at most the end of it.
func (s *suite) liveOutput(t *testing.T, id string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	type output struct{ stdout, stderr string }
	var last output
	cmd := hv.ScriptCommand([]byte("echo lost\nseq 10000\necho problem >&2\nsleep 600\n"), 0)
	cmd.OnOutput = func(stdout, stderr []byte) {
		last = output{string(stdout), string(stderr)}
		if strings.HasSuffix(last.stdout, "\n9999\n10000\n") && last.stderr != "" {
			cancel()
		}
	}
	_, err := s.Driver.Exec(ctx, id, cmd)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Exec: %v, want a canceled context; output %+v", err, last)
	}
	if last.stderr != "problem\n" || len(last.stdout) != hv.MaxLiveOutputBytes {
		t.Errorf("stderr %q, and %d bytes of stdout", last.stderr, len(last.stdout))
	}
}

// lateInput: a command starts before its input is known, and runs with it as if it had had it from the beginning.
func (s *suite) lateInput(t *testing.T, id string) {
	await := func(script string, limit time.Duration) hv.Command {
		cmd := hv.ScriptCommand(nil, 0)
		cmd.AwaitInput = func(ctx context.Context) (hv.Input, error) {
			return hv.Input{Stdin: []byte(script), Timeout: limit}, retry.Sleep(ctx, time.Second)
		}
		return cmd
	}
	long := "echo one\n" + strings.Repeat("# a comment to skip\n", 1500) + "echo two >&2\nexit 5\n"
	got, err := s.Driver.Exec(t.Context(), id, await(long, time.Minute))
	if err != nil || got.Code != 5 || string(got.Stdout) != "one\n" || string(got.Stderr) != "two\n" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = s.Driver.Exec(t.Context(), id, await("", 0)); err != nil || got.Code != 0 {
		t.Errorf("without a script: %+v, %v", got, err)
	}
	if got, err = s.Driver.Exec(t.Context(), id, await("sleep 600\n", time.Second)); err != nil || !got.TimedOut {
		t.Errorf("got %+v, %v, want a time-out", got, err)
	}
	// A script that does not fit is refused before any of it has run, or runs.
	got, err = s.Driver.Exec(t.Context(), id, await("echo "+strings.Repeat("x", 100_000)+"\n", time.Minute))
	if !errors.Is(err, hv.ErrNoInput) && (err != nil || len(got.Stdout) != 100_001) {
		t.Errorf("a long script: code %d, %d bytes, %v", got.Code, len(got.Stdout), err)
	}
	refused := errors.New("no input today")
	cmd := await("", 0)
	cmd.AwaitInput = func(context.Context) (hv.Input, error) { return hv.Input{}, refused }
	if got, err = s.Driver.Exec(t.Context(), id, cmd); !errors.Is(err, refused) {
		t.Errorf("got %+v, %v, want the error of the caller", got, err)
	}
}

// background: a child that keeps the outputs open delays nothing, lives on,
// and what the script itself printed is whole.
func (s *suite) background(t *testing.T, id string) {
	s.need(t, hv.CanBoot)
	begun := time.Now()
	script := "echo kept >/root/kept; sync\n(sleep 600; echo late) &\necho $!\necho err >&2\n"
	got, err := s.Driver.Exec(t.Context(), id, hv.ScriptCommand([]byte(s.paths(script)), time.Minute))
	if err != nil || got.Code != 0 || string(got.Stderr) != "err\n" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("a background child held the command for %s", took)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(got.Stdout)))
	if err != nil {
		t.Fatalf("stdout %q", got.Stdout)
	}
	got, err = s.Driver.Exec(t.Context(), id, hv.ScriptCommand(fmt.Appendf(nil, "kill -0 %d", child), time.Minute))
	if err != nil || got.Code != 0 {
		t.Errorf("the background child is gone: %+v, %v", got, err)
	}
}

func (s *suite) parallel(t *testing.T, id string) {
	const n = 4
	got := make([]string, n)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			r, err := s.Driver.Exec(t.Context(), id,
				hv.Command{Path: "echo", Args: []string{"number", strconv.Itoa(i)}})
			got[i] = string(r.Stdout)
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if want := []string{"number 0\n", "number 1\n", "number 2\n", "number 3\n"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// ports dials the guest's SSH server through its port rule.
func (s *suite) ports(t *testing.T, vm hv.VM) {
	s.need(t, hv.CanForward)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(vm.Ports[0].HostPort))
	var banner []byte
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("the last attempt: %v", err)
		}
	}()
	eventually(t, "an SSH banner at "+addr, 30*time.Second, func() bool {
		banner, err = readBanner(t.Context(), addr)
		return err == nil
	})
	if string(banner) != "SSH-" {
		t.Errorf("the guest's port answered %q", banner)
	}
}

// readBanner returns the first bytes of what a server at an address says.
func readBanner(ctx context.Context, addr string) ([]byte, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	banner := make([]byte, 4)
	_, err = io.ReadFull(c, banner)
	return banner, err
}
