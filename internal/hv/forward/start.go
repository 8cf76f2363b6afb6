package forward

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout  = 30 * time.Second // for the forwarder to open its ports
	stopTimeout   = 10 * time.Second
	killAfter     = 3 * time.Second // after SIGTERM
	askInterval   = 10 * time.Millisecond
	maxErrorBytes = 1000 // of the log in an error
)

// StartOptions describe a forwarder's process.
type StartOptions struct {
	Dir     string   // the VM's, with a Config
	Program []string // the program that calls Main for Dir, and its arguments, which are no secrets
	Env     []string // the whole environment, "KEY=value"
}

// Start starts the forwarder of a VM as a process that outlives this one, and returns once its ports
// are open. A forwarder that runs already is left alone, and its ports are returned.
func Start(ctx context.Context, o StartOptions) (Ports, error) {
	if p, err := ReadPorts(o.Dir); err == nil {
		return p, nil
	}
	if _, err := readConfig(o.Dir); err != nil {
		return Ports{}, fmt.Errorf("start the port forwarder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd, err := spawn(o)
	if err != nil {
		return Ports{}, fmt.Errorf("start the port forwarder: %w", err)
	}

	ended := make(chan struct{})
	go func() { // which also keeps it from being a zombie
		defer close(ended)
		_ = cmd.Wait()
	}()
	p, err := awaitPorts(ctx, o.Dir, cmd.Process.Pid, ended)
	if err != nil {
		_ = cmd.Process.Kill()
		<-ended
		return Ports{}, fmt.Errorf("start the port forwarder: %w", err)
	}
	return p, nil
}

// spawn starts the process in its own session, so that no signal to this one reaches it.
func spawn(o StartOptions) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(o.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(o.Program[0], o.Program[1:]...) //nolint:noctx // it outlives every context
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append([]string{}, o.Env...) // not nil, which would be this process's environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// awaitPorts waits for the ports file of a process. Another forwarder that is just starting may have
// the lock; then its ports are returned.
func awaitPorts(ctx context.Context, dir string, pid int, ended <-chan struct{}) (Ports, error) {
	for {
		over := isClosed(ended)
		p, err := ReadPorts(dir)
		switch {
		case err == nil && (p.PID == pid || over):
			return p, nil
		case over && p.PID == pid && p.Error != "":
			return p, errors.New(p.Error)
		case over:
			return p, fmt.Errorf("it ended without opening its ports: %s", logTail(dir))
		}
		select {
		case <-ctx.Done():
			return p, fmt.Errorf("it has not opened its ports: %w; see %s", ctx.Err(), filepath.Join(dir, logFile))
		case <-ended:
		case <-time.After(askInterval):
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// logTail returns the end of the log, quoted: it may contain what others have sent.
func logTail(dir string) string {
	b, _, err := readFile(dir, logFile)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(string(b))
	return fmt.Sprintf("%q", text[max(0, len(text)-maxErrorBytes):])
}

// Stop ends the forwarder of a VM, if one runs, and returns when its ports are free. A process that
// has the PID of a former forwarder is left alone.
func Stop(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	signal := syscall.SIGTERM
	for begin := time.Now(); ; {
		ended, err := hasEnded(dir)
		if err != nil {
			return fmt.Errorf("stop the port forwarder: %w", err)
		}
		if ended {
			return nil
		}
		if time.Since(begin) > killAfter {
			signal = syscall.SIGKILL
		}
		if holder, err := lockHolder(dir); err == nil {
			if err := holder.Signal(signal); err != nil {
				return fmt.Errorf("stop the port forwarder: %w", err)
			}
		}
		if err := wait(ctx, askInterval); err != nil {
			return fmt.Errorf("stop the port forwarder: its lock %s is still taken: %w", filepath.Join(dir, lockFile),
				err)
		}
	}
}

// hasEnded reports whether no forwarder has the lock and the last one that had it is gone: a process
// loses its lock a moment before it ends.
func hasEnded(dir string) (bool, error) {
	lock, err := tryLock(dir)
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	holder, err := lockHolder(dir)
	return err != nil || !holder.IsAlive(), nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
