package cliproc

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the process that takes a lock, and the one that starts a detached process and ends.
func TestMain(m *testing.M) {
	if path := os.Getenv("TEST_LOCK"); path != "" {
		f, err := TakeLock(path)
		if err != nil {
			_, _ = os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("locked\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		_ = f.Close()
		os.Exit(0)
	}
	if dir := os.Getenv("TEST_DETACH"); dir != "" {
		p, err := StartDetached(shell("echo begun; exec sleep 600"), filepath.Join(dir, "log"))
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(p.PID) + " " + strconv.FormatUint(p.StartTime, 10))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestDetachedOutlivesStarter starts a process by another one that has ended when this test looks.
func TestDetachedOutlivesStarter(t *testing.T) {
	dir := t.TempDir()
	starter := exec.CommandContext(t.Context(), os.Args[0])
	starter.Env = append(os.Environ(), "TEST_DETACH="+dir)
	out, err := starter.Output()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(out))
	pid, err1 := strconv.Atoi(words[0])
	started, err2 := strconv.ParseUint(words[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	p := Process{pid, started}
	t.Cleanup(func() { _ = p.Kill() })

	eventually(t, "the process has written its log", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return string(text) == "begun\n"
	})
	if !p.IsAlive() {
		t.Error("the process has ended with its starter")
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	eventually(t, "the process has ended", func() bool { return !p.IsAlive() })
}

func TestStartDetached(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	_, err := StartDetached(Command{Path: "/nonexistent", Args: []string{"run"}}, log)
	checkError(t, err, -1, "nonexistent run: the program could not be started", ErrNotStarted)
	_, err = StartDetached(shell("true"), filepath.Join(log, "log"))
	checkError(t, err, -1, "sh -c: the program could not be started", ErrNotStarted)

	c := shell("echo $A; exit 3")
	c.Env = append(c.Env, "A=1")
	p, err := StartDetached(c, log)
	if err != nil || p.PID == 0 || p.StartTime == 0 {
		t.Fatal(p, err)
	}
	eventually(t, "the process has ended", func() bool { return !p.IsAlive() })
	if text, _ := os.ReadFile(log); string(text) != "1\n" {
		t.Errorf("log %q", text)
	}
}

// TestReusedPID: a process of the same PID and another start time is neither alive nor killed.
func TestReusedPID(t *testing.T) {
	p, err := StartDetached(shell("exec sleep 600"), os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Kill() }()
	other := Process{p.PID, p.StartTime + 1}
	if err := other.Kill(); err != nil || other.IsAlive() {
		t.Error("a process of another start time is alive:", err)
	}
	if now, err := Find(p.PID); err != nil || now != p {
		t.Errorf("%v, %v: want %v", now, err, p)
	}
	if err := (Process{}).Kill(); err != nil || (Process{}).IsAlive() {
		t.Error("the zero process is alive:", err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if _, err := LockOwner(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lock of a missing file: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := LockOwner(path); pid != 0 || err != nil {
		t.Errorf("lock of a free file: %d, %v", pid, err)
	}

	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), "TEST_LOCK="+path)
	end, err1 := holder.StdinPipe()
	said, err2 := holder.StdoutPipe()
	if err := errors.Join(err1, err2, holder.Start()); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	if n, _ := said.Read(line); string(line[:n]) != "locked\n" {
		t.Fatalf("the holder reports %q", line[:n])
	}
	if pid, err := LockOwner(path); pid != holder.Process.Pid || err != nil {
		t.Errorf("lock of %d: %d, %v", holder.Process.Pid, pid, err)
	}
	if _, err := TakeLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("take a lock that is held: %v", err)
	}
	_ = end.Close()
	if err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	f, err := TakeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// startSignal is an empty input that is closed as a channel when it is read: the program was started.
type startSignal chan struct{}

func (s startSignal) Read([]byte) (int, error) {
	close(s)
	return 0, io.EOF
}

// TestInherited: a program keeps the lock of a file that it inherits until it ends.
func TestInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	c := shell("echo begun >" + path + "; exec sleep 600")
	started := make(startSignal)
	c.Inherited, c.Stdin = f, started
	go func() {
		defer close(done)
		_, _ = Run(ctx, c)
	}()
	eventually(t, "the program runs", func() bool {
		text, _ := os.ReadFile(path)
		return len(text) > 0
	})
	<-started
	_ = f.Close()
	other, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	isFree := func() bool { return syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil }
	if isFree() {
		t.Error("the program has not inherited the lock")
	}
	cancel()
	<-done
	eventually(t, "the lock is free", isFree)
}
