package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/fault"
	"github.com/buildyard/buildyard/test/rig"
)

// caseTime bounds every wait of a case: a loaded machine is slow.
const caseTime = 90 * time.Second

// workload starts clients for a case.
func (s *suite) workload(ctx context.Context, c *cloud, name string) *fault.Workload {
	d := drill{cloud: c, seed: s.seed}
	return d.startLoad(ctx, name)
}

// underLoad runs a case while clients work, and checks their history.
func (s *suite) underLoad(
	ctx context.Context, c *cloud, name string, do func(ctx context.Context, load *fault.Workload) (string, error),
) verdict {
	load := s.workload(ctx, c, name)
	detail, err := "", load.AwaitProgress(ctx, usualStrikes.progress, usualStrikes.recovery)
	if err == nil {
		detail, err = do(ctx, load)
	}
	err = errors.Join(err, c.restart(ctx))
	if err == nil {
		err = load.AwaitProgress(ctx, usualStrikes.progress, usualStrikes.recovery)
	}
	load.Stop()
	found, checkErr := load.Check(ctx)
	r := drillResult{Verdict: found}
	detail = fmt.Sprintf("%s; %d acknowledged, lost %d, orphans %d, stuck %d, wrong %d", detail, r.Acknowledged, r.Lost,
		r.Orphans, r.Stuck, r.Wrong)
	err = errors.Join(err, checkErr)
	if err != nil || r.failed() {
		err = errors.Join(err, load.WriteHistory(filepath.Join(c.dir, "history-"+name+".jsonl")))
	}
	if err != nil {
		return verdict{name, false, detail + ": " + err.Error()}
	}
	return verdict{name, !r.failed(), detail}
}

// quorumLoss: without a majority of the etcd members nothing is acknowledged and no controller claims to be ready;
// with it everything continues.
func (s *suite) quorumLoss(ctx context.Context, c *cloud) verdict {
	return s.underLoad(ctx, c, "quorum loss", func(ctx context.Context, load *fault.Workload) (string, error) {
		frozen := c.etcd[:2]
		for _, m := range frozen {
			if err := syscall.Kill(m.PID(), syscall.SIGSTOP); err != nil {
				return "", err
			}
		}
		err := awaitAnswer(ctx, c.control[0].ready+"/readyz", http.StatusServiceUnavailable)
		before := load.Acknowledged()
		rig.Pause(ctx, 3*time.Second)
		during := load.Acknowledged() - before
		for _, m := range frozen {
			err = errors.Join(err, syscall.Kill(m.PID(), syscall.SIGCONT))
		}
		if err == nil && during > 0 {
			err = fmt.Errorf("%d calls were acknowledged without a majority", during)
		}
		return "nothing was acknowledged for 3 s", err
	})
}

// frozenLeader: a leader that freezes loses its lease, another one continues, and what the first does
// when it wakes up changes nothing.
func (s *suite) frozenLeader(ctx context.Context, c *cloud) verdict {
	return s.underLoad(ctx, c, "frozen leader", func(ctx context.Context, load *fault.Workload) (string, error) {
		leader, err := c.leader(ctx)
		if err != nil {
			return "", err
		}
		if err := syscall.Kill(leader.PID(), syscall.SIGSTOP); err != nil {
			return "", err
		}
		began := time.Now()
		err = load.AwaitProgress(ctx, 2*usualStrikes.progress, usualStrikes.recovery)
		took := time.Since(began)
		other, otherErr := c.leader(ctx)
		if otherErr == nil && other == leader {
			otherErr = errors.New("the frozen controller is still the leader")
		}
		return fmt.Sprintf("%d calls %s after the freeze", 2*usualStrikes.progress, took.Round(time.Millisecond)),
			errors.Join(err, otherErr, syscall.Kill(leader.PID(), syscall.SIGCONT))
	})
}

// leader finds the controller that places instances: its name is in the metric of its replica.
func (c *cloud) leader(ctx context.Context) (*member, error) {
	for deadline := time.Now().Add(caseTime); time.Now().Before(deadline); {
		for _, m := range c.control {
			if leads, err := isLeader(ctx, m); err == nil && leads {
				return m, nil
			}
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	return nil, errors.New("no controller is the leader")
}

// isLeader asks a controller's metrics.
func isLeader(ctx context.Context, m *member) (bool, error) {
	resp, err := get(ctx, "http://"+net.JoinHostPort(m.Address, metricsPort)+"/metrics")
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, isIt := strings.CutPrefix(lines.Text(), "buildyard_leader "); isIt {
			return value == "1", nil
		}
	}
	return false, errors.Join(lines.Err(), errors.New("no metric of the leader"))
}

// prober is for requests with a short time limit.
var prober = http.Client{Timeout: time.Second}

func get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	return prober.Do(req)
}

// awaitAnswer waits for an HTTP status.
func awaitAnswer(ctx context.Context, address string, status int) error {
	last := "no answer"
	for deadline := time.Now().Add(caseTime); time.Now().Before(deadline); {
		if resp, err := get(ctx, address); err == nil {
			_ = resp.Body.Close()
			if last = resp.Status; resp.StatusCode == status {
				return nil
			}
		}
		if !rig.Pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s answers %q, want %d", address, last, status)
}

// drainedController: a controller that is drained at the proxy gets no new calls and can be ended; no
// client notices.
func (s *suite) drainedController(ctx context.Context, c *cloud) verdict {
	return s.underLoad(ctx, c, "drained controller", func(ctx context.Context, load *fault.Workload) (string, error) {
		if err := c.proxyCommand(ctx, "set server controllers/c1 state drain"); err != nil {
			return "", err
		}
		if err := load.AwaitProgress(ctx, usualStrikes.progress, usualStrikes.recovery); err != nil {
			return "", err
		}
		if err := c.control[0].End(); err != nil {
			return "", err
		}
		if err := load.AwaitProgress(ctx, usualStrikes.progress, usualStrikes.recovery); err != nil {
			return "", err
		}
		err := errors.Join(c.restart(ctx), c.proxyCommand(ctx, "set server controllers/c1 state ready"))
		if err != nil {
			return "", err
		}
		return "drained, ended, started, ready", load.AwaitProgress(ctx, usualStrikes.progress, usualStrikes.recovery)
	})
}

// proxyCommand sends a command to the admin socket of the proxy.
func (c *cloud) proxyCommand(ctx context.Context, command string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.adminSocket(c.proxy.machine))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if text := strings.TrimSpace(answer); text != "" {
		return fmt.Errorf("%s: %s", command, text)
	}
	_ = err // the proxy closes the connection after the answer
	return nil
}
