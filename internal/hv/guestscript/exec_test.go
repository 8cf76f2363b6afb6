//go:build linux

package guestscript

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// runHere returns a Run whose guest is this machine with a shell. Its client fails like one whose own exit
// codes say nothing.
func runHere(shell []string) Run {
	return func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
		args = append(append([]string{}, shell...), args[1:]...)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdin, stdout, stderr, time.Second
		return cmd.Run()
	}
}

func TestExec(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		for _, c := range []struct {
			name string
			cmd  hv.Command
			want hv.Result
		}{
			{name: "silent", cmd: hv.Command{Path: "true"}},
			{
				name: "streams", cmd: hv.Command{
					Path: "sh", Args: []string{"-c", "cat; printf err >&2; exit 9"}, Stdin: []byte("in\n\nmore\x00"),
				}, want: hv.Result{Code: 9, Stdout: []byte("in\n\nmore\x00"), Stderr: []byte("err")},
			},
			{
				name: "environment", cmd: hv.Command{
					Path: "sh", Args: []string{"-c", `printf '%s|' "$A" "$B" "$C" "$D" "$E"`}, Stdin: []byte("unread"),
					Env: []string{"A=a b=c", "B=back\\slash \\n $x `y`", "C=two\nlines\n", "D=", "E=ü%'\""},
				},
				want: hv.Result{Stdout: []byte("a b=c|back\\slash \\n $x `y`|two\nlines\n||ü%'\"|")},
			},
			{
				name: "signal", cmd: hv.Command{Path: "sh", Args: []string{"-c", "kill -9 $$"}},
				want: hv.Result{Code: 137},
			},
			{
				name: "a report of another name", cmd: hv.Command{
					Path: "sh", Args: []string{"-c", "echo .exec-0 9 >&2; exit 3"},
				}, want: hv.Result{Code: 3, Stderr: []byte(".exec-0 9\n")},
			},
		} {
			got, err := Exec(t.Context(), runHere(shell), c.cmd)
			if c.name == "signal" {
				got.Stderr = nil // some shells report it
			}
			if err != nil || got.Code != c.want.Code || !bytes.Equal(got.Stdout, c.want.Stdout) ||
				!bytes.Equal(got.Stderr, c.want.Stderr) || got.TimedOut || got.Errors != nil {
				t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
			}
		}
		got, err := Exec(t.Context(), runHere(shell), hv.Command{Path: "/no/such/program"})
		if err != nil || got.Code != hv.CodeNotFound || len(got.Stderr) == 0 {
			t.Errorf("missing program: %+v, %v", got, err)
		}
	})
}

// TestExecWithoutSetsid: a guest such as macOS has perl instead.
func TestExecWithoutSetsid(t *testing.T) {
	dir := t.TempDir()
	for name := range strings.FieldsSeq("sh perl cat dd mkdir mkfifo rm sleep tail wc") {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + dir}
	got := timedOut(t, runHere([]string{"sh"}), "sleep 300 & echo $!; wait\n", env)
	if len(got.Errors) > 0 {
		t.Fatalf("got %+v", got)
	}
	child := strings.TrimSpace(string(got.Stdout))
	if state, err := os.ReadFile("/proc/" + child + "/stat"); err == nil && !isZombie(state) {
		t.Errorf("the command's child lives: %s", state)
	}
}

// TestExecKeepsTheEnd: of outputs above the limit, the last bytes are kept and the exit code is found.
func TestExecKeepsTheEnd(t *testing.T) {
	cmd := hv.ScriptCommand([]byte("seq 300000\nseq 300000 >&2\nexit 5\n"), 0)
	got, err := Exec(t.Context(), runHere([]string{"sh"}), cmd)
	if err != nil || got.Code != 5 || len(got.Stdout) != hv.MaxOutputBytes || len(got.Stderr) != hv.MaxOutputBytes ||
		!bytes.HasSuffix(got.Stdout, []byte("\n300000\n")) || !bytes.HasSuffix(got.Stderr, []byte("\n300000\n")) {
		t.Errorf("code %d, %d and %d bytes, %v", got.Code, len(got.Stdout), len(got.Stderr), err)
	}
}

// TestExecEndsCommand: neither a time-out nor a canceled context leaves a process of the command.
func TestExecEndsCommand(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		seconds := strconv.Itoa(1_000_000 + rand.IntN(8_000_000)) // recognizable
		script := []byte("sleep " + seconds + " &\necho before\nsleep " + seconds + "\n")
		if got := timedOut(t, runHere(shell), string(script), nil); string(got.Stdout) != "before\n" {
			t.Fatalf("got %+v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := Exec(ctx, runHere(shell), hv.ScriptCommand(script, 0))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("canceled: %+v, %v", got, err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			out, err := exec.CommandContext(t.Context(), "ps", "-eo", "args").Output()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(out, []byte("\nsleep "+seconds+"\n")) {
				return
			}
			if time.Now().After(end) {
				t.Fatal("a process of the command is left")
			}
		}
	})
}

// TestExecEndsKiller: the killer of a command that has ended in the meantime is not waited for.
func TestExecEndsKiller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	killing, killer := make(chan struct{}), make(chan error, 1)
	run := func(ctx context.Context, args []string, _ io.Reader, _, stderr io.Writer) error {
		if args[2] == killerText {
			close(killing)
			<-ctx.Done()
			killer <- ctx.Err()
			return ctx.Err()
		}
		cancel()
		<-killing
		_, err := io.WriteString(stderr, args[4]+" 0\n")
		return err
	}
	if _, err := Exec(ctx, run, hv.Command{Path: "true"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Exec: %v", err)
	}
	if err := <-killer; !errors.Is(err, context.Canceled) {
		t.Errorf("the killer ended with %v", err)
	}
}

// timedOut runs a script that prints something and then does not end, until a time-out has come after that.
func timedOut(t *testing.T, run Run, script string, env []string) hv.Result {
	t.Helper()
	for limit := time.Second; ; limit *= 2 { // a busy machine may take longer to begin
		cmd := hv.ScriptCommand([]byte(script), limit)
		cmd.Env = env
		got, err := Exec(t.Context(), run, cmd)
		if err != nil || !got.TimedOut || got.Code != hv.CodeTimedOut || limit > time.Minute {
			t.Fatalf("got %+v, %v, want a time-out", got, err)
		}
		if len(got.Stdout) > 0 {
			return got
		}
	}
}

// TestExecUnknownResult: without the guest's own report the result is an error.
func TestExecUnknownResult(t *testing.T) {
	gone := errors.New("the connection was closed")
	for _, c := range []struct {
		name, stderr string
		err          error
		says         string
	}{
		{"connection", "", gone, "the connection was closed"},
		{"text of the client", "Error: no such VM\nusage", nil, "Error: no such VM"},
		{"nothing", "", nil, "did not report"},
		{"no number", "NAME x\n", nil, "NAME x"},
		{"too large a number", "NAME 256\n", nil, "NAME 256"},
	} {
		run := func(_ context.Context, args []string, _ io.Reader, _, stderr io.Writer) error {
			_, _ = io.WriteString(stderr, strings.ReplaceAll(c.stderr, "NAME", args[4]))
			return c.err
		}
		got, err := Exec(t.Context(), run, hv.Command{Path: "true"})
		says := strings.ReplaceAll(c.says, "NAME ", "")
		if !errors.Is(err, ErrUnknownResult) || c.err != nil && !errors.Is(err, c.err) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// FuzzResult: whatever a guest prints, the parts of the result are within their limits.
func FuzzResult(f *testing.F) {
	f.Add([]byte("out"), []byte("err\n.exec-0 7\n"))
	f.Add([]byte{}, []byte(".exec-0 .exec-0 300\n"))
	f.Fuzz(func(t *testing.T, stdout, stderr []byte) {
		c := command{
			name: ".exec-0", stdout: &tailBuffer{limit: hv.MaxOutputBytes},
			stderr: &tailBuffer{limit: hv.MaxOutputBytes + maxReportSize},
		}
		_, _ = c.stdout.Write(stdout)
		_, _ = c.stderr.Write(stderr)
		got, err := c.result()
		if err == nil && (got.Code < 0 || got.Code > 255 || !bytes.HasPrefix(stderr, got.Stderr)) {
			t.Errorf("%+v", got)
		}
	})
}
