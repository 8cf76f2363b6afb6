//go:build linux

package guestscript

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// shells that guests have; each wrapper test runs under all installed ones.
var shells = map[string][]string{
	"dash": {"dash"}, "bash": {"bash"}, "bash as sh": {"bash", "--posix"}, "busybox": {"busybox", "sh"},
}

func eachShell(t *testing.T, f func(t *testing.T, shell []string)) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	for name, shell := range shells {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Skip(err)
			}
			t.Parallel()
			f(t, shell)
		})
	}
}

// wrap runs the wrapper on this machine as a guest agent would.
func wrap(t *testing.T, shell []string, stdin, name string, command ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := append(append(shell[1:len(shell):len(shell)], "-c", wrapperText+"exit $code\n", "sh", name), command...)
	cmd := exec.CommandContext(ctx, shell[0], args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 5 * time.Second // should something keep the outputs open
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), text.String()
}

func TestWrapper(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		for _, c := range []struct {
			name, stdin    string
			command        []string
			code           int
			stdout, stderr string
		}{
			{name: "silent", command: []string{"true"}},
			{
				name: "all three", stdin: "in", command: []string{"sh", "-c", "cat; echo err >&2; exit 9"}, code: 9,
				stdout: "in", stderr: "err\n",
			},
			{name: "arguments", command: []string{"printf", "%s.", "a b", "", "*", "$x", "'"}, stdout: "a b..*.$x.'."},
			{name: "binary", stdin: "\x00\xff\n\x00", command: []string{"cat"}, stdout: "\x00\xff\n\x00"},
			{name: "signal", command: []string{"sh", "-c", "kill -9 $$"}, code: 137},
			{name: "256 bytes", command: []string{"printf", "%0256d", "7"}, stdout: strings.Repeat("0", 255) + "7"},
		} {
			code, stdout, stderr := wrap(t, shell, c.stdin, NewName(), c.command...)
			if code != c.code || stdout != c.stdout || (stderr != c.stderr && c.name != "signal") {
				t.Errorf("%s: got %d, %q, %q; want %d, %q, %q", c.name, code, stdout, stderr, c.code, c.stdout,
					c.stderr)
			}
		}
		if code, _, stderr := wrap(t, shell, "", NewName(), "/no/such/program"); code != hv.CodeNotFound ||
			stderr == "" {
			t.Errorf("missing program: %d, %q", code, stderr)
		}
	})
}

// The last MiB of 64 MiB, exactly, and few bytes in temporary files in the meantime.
func TestWrapperKeepsTheEnd(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		name := NewName()
		_, stdout, _ := wrap(t, shell, "", name, "sh", "-c",
			"head -c 67108864 /dev/zero | tr '\\0' x; printf END; du -sk /tmp/"+name+" | cut -f1 >&2")
		if len(stdout) != hv.MaxOutputBytes || !strings.HasSuffix(stdout, "xEND") {
			t.Errorf("kept %d bytes ending in %q", len(stdout), stdout[max(0, len(stdout)-8):])
		}
		// Many small writes: every read is short, so the parts are small, too.
		_, stdout, stderr := wrap(t, shell, "", NewName(), "sh", "-c",
			"i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo done >&2")
		if !strings.HasPrefix(stdout, "line 0\nline 1\n") || !strings.HasSuffix(stdout, "\nline 2999\n") ||
			stderr != "done\n" {
			t.Errorf("small writes: %d bytes, stderr %q", len(stdout), stderr)
		}
		if _, err := os.Stat("/tmp/" + name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory is left: %v", err)
		}
	})
}

// A child that keeps the outputs open delays the wrapper little, gets no
// signal for what it writes later, and when it ends nothing is left.
func TestWrapperBackgroundChild(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		name, mark := NewName(), filepath.Join(t.TempDir(), "mark")
		begun := time.Now()
		script := "(while [ ! -e " + mark + " ]; do sleep 0.1; echo more; done; echo well >" + mark + ".2) & echo here"
		code, stdout, _ := wrap(t, shell, "", name, "sh", "-c", script)
		if code != 0 || !strings.HasPrefix(stdout, "here\n") || time.Since(begun) > 20*time.Second {
			t.Errorf("got %d, %.40q after %s", code, stdout, time.Since(begun))
		}
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, err := os.Stat("/tmp/" + name)
			if b, _ := os.ReadFile(mark + ".2"); errors.Is(err, os.ErrNotExist) && string(b) == "well\n" {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the child did not end well, or its directory is left")
			}
		}
	})
}

// The killer ends the command's group, and the wrapper reports what there was.
func TestKiller(t *testing.T) {
	eachShell(t, func(t *testing.T, shell []string) {
		name, pidFile := NewName(), filepath.Join(t.TempDir(), "pid")
		killed := make(chan error, 1)
		go func() { // it may come before the command has begun
			args := append(shell[1:len(shell):len(shell)], "-c", killerWhen(pidFile), "sh", name)
			killed <- exec.CommandContext(t.Context(), shell[0], args...).Run()
		}()
		code, stdout, _ := wrap(t, shell, "", name, "sh", "-c", "sleep 300 & echo $! >"+pidFile+"; echo before; wait")
		if err := <-killed; err != nil || code != 137 || stdout != "before\n" {
			t.Errorf("got %d, %q, kill: %v", code, stdout, err)
		}
		b, err := os.ReadFile(pidFile)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		if state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !isZombie(state) {
			t.Errorf("the command's child lives: %s", state)
		}
	})
}

// isZombie reports whether a line of /proc/PID/stat is that of a process that has ended.
func isZombie(stat []byte) bool {
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(rest, []byte("Z")) || bytes.HasPrefix(rest, []byte("X"))
}

// killerWhen waits until the command has said who its child is.
func killerWhen(file string) string {
	return "until [ -s " + file + " ]; do sleep 0.05; done; sleep 0.1\n" + killerText
}
