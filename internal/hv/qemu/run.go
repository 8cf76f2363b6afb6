package qemu

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// run is one run of a QEMU process, from its start or its adoption to its end.
type run struct {
	machine         *machine
	proc            process
	guestAgent      *guestAgent
	exited          chan struct{} // closed when the process has ended and that is recorded
	agentOpened     chan struct{} // closed when the guest has opened its agent port
	agentOpenedOnce sync.Once     // closes agentOpened

	viewerMu sync.Mutex // held while QEMU is given a viewer of the screen

	mu           sync.Mutex    // guards the fields below
	qmp          *qmpConn      // nil while not connected
	qmpConnected chan struct{} // closed when qmp is set, replaced when the connection is lost
	endCause     endCause      // what QEMU reported before it ended
	ip           string        // the guest's address; "" until asked for
	vncListener  net.Listener  // of VNC connections; nil while not listening
}

// attach creates the run of the machine's process and watches it. exited delivers the exit status
// of a child process, and is nil for an adopted process. The run owns screen from now on; for an
// adopted process the run opens the listener.
func (m *machine) attach(exited <-chan string, screen net.Listener) *run {
	r := &run{
		machine: m, proc: m.proc, exited: make(chan struct{}), agentOpened: make(chan struct{}),
		qmpConnected: make(chan struct{}),
		vncListener:  screen,
	}
	r.guestAgent = newGuestAgent(func(ctx context.Context) (net.Conn, error) {
		return dialSocket(ctx, m.dir, qgaSocket)
	})
	m.mu.Lock()
	m.run = r
	port := m.config.VNCPort
	m.mu.Unlock()
	m.driver.watchers.Go(func() { r.watch(m.driver.ctx, exited) })
	if port != 0 {
		m.driver.watchers.Go(func() { r.serveVNC(m.driver.ctx, screen, port) })
	}
	return r
}

// watch keeps a monitor connection while the process lives, and records its end. The end of the
// connection is the first sign of that.
func (r *run) watch(quit context.Context, exited <-chan string) {
	defer r.guestAgent.close()
	for quit.Err() == nil {
		err := r.monitor(quit)
		if quit.Err() != nil {
			return
		}
		for range 100 { // the connection ends a moment before the process
			if !r.proc.isAlive() {
				r.recordRunEnd(exited) //nolint:contextcheck // noting the end is not given up when the driver closes
				return
			}
			if sleep(quit, 20*time.Millisecond) != nil {
				return
			}
		}
		r.machine.driver.log.Warn("QMP connection of a running VM lost", "vm", r.machine.id, "error", err)
	}
}

// monitor connects and serves events until the connection ends.
func (r *run) monitor(quit context.Context) error {
	ctx, cancel := context.WithTimeout(quit, time.Minute)
	defer cancel()
	c, err := dialSocket(ctx, r.machine.dir, qmpSocket)
	if err != nil {
		return err
	}
	q, err := newQMP(ctx, c)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(quit, func() { _ = c.Close() })
	defer stop()
	served := make(chan error, 1)
	go func() { served <- q.serve(r.handleEvent) }()
	r.mu.Lock()
	r.qmp = q
	close(r.qmpConnected)
	r.mu.Unlock()
	r.configureMonitor(quit, q)
	r.readMissedState(quit, q)
	r.machine.driver.watchers.Go(func() { r.endLeftoverSave(quit) })
	err = <-served
	r.mu.Lock()
	r.qmp, r.qmpConnected = nil, make(chan struct{})
	r.mu.Unlock()
	return err
}

// readMissedState reads what happened before this connection was made.
func (r *run) readMissedState(ctx context.Context, q *qmpConn) {
	var devices []struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	if err := q.call(ctx, "query-chardev", nil, &devices); err != nil {
		return // the connection ended; watch sees that
	}
	for _, d := range devices {
		if d.Label == "qga" && d.Open {
			r.agentOpenedOnce.Do(func() { close(r.agentOpened) })
		}
	}
	r.checkState(ctx, q)
}

// endCause is why a run ended without a request. The zero value is not known.
type endCause struct {
	text  string
	class farm.FailureClass
}

// fatalStates are the causes by QEMU's name of a state. QEMU stays in them until it is killed.
var fatalStates = map[string]endCause{
	"internal-error": {
		"QEMU could not run the guest under this accelerator (internal error)", farm.FailureHypervisor,
	},
	"guest-panicked": {"the guest's kernel panicked", farm.FailureGuestStopped},
	"shutdown":       {"the guest powered itself off", farm.FailureGuestStopped},
	"io-error": {
		"a disk of the VM could not be read or written; the node's disk may be full", farm.FailureDisk,
	},
}

// causeDiskFull: QEMU stopped the VM because the host's disk was full at a write.
var causeDiskFull = endCause{"The node's disk is full", farm.FailureDisk}

// checkState ends a VM that has stopped permanently.
func (r *run) checkState(ctx context.Context, q *qmpConn) {
	var state struct {
		Status string `json:"status"`
	}
	if err := q.call(ctx, "query-status", nil, &state); err != nil || fatalStates[state.Status] == (endCause{}) {
		return
	}
	r.saveSerial(ctx, q)
	r.setEndCause(fatalStates[state.Status])
	if err := r.proc.kill(); err != nil {
		r.machine.driver.log.Error("killing a failed VM failed", "vm", r.machine.id, "error", err)
	}
}

// handleEvent handles QEMU's events. It runs in the reading goroutine, so it sends commands in another one.
func (r *run) handleEvent(m qmpMessage) {
	var d struct {
		ID     string `json:"id"`
		Open   bool   `json:"open"`
		Guest  bool   `json:"guest"`
		Reason string `json:"reason"`
		Full   bool   `json:"nospace"`
	}
	if json.Unmarshal(m.Data, &d) != nil {
		d.Reason = "" // events without data have none to read
	}
	r.machine.driver.log.Debug("QEMU event", "vm", r.machine.id, "event", m.Event, "at", m.Timestamp.time(), "port",
		d.ID, "open", d.Open)
	switch m.Event {
	case "VSERPORT_CHANGE":
		if d.ID == "qga0" && d.Open {
			r.agentOpenedOnce.Do(func() { close(r.agentOpened) })
		}
	case "SHUTDOWN":
		if d.Guest {
			r.setEndCause(fatalStates["shutdown"])
		}
	case "BLOCK_IO_ERROR": // STOP follows
		if d.Full {
			r.setEndCause(causeDiskFull)
		}
	case "STOP", "GUEST_PANICKED":
		if q, ok := r.currentQMP(); ok {
			r.machine.driver.watchers.Go(func() { r.checkState(r.machine.driver.ctx, q) })
		}
	}
}

// setEndCause stores the first reported cause of the end.
func (r *run) setEndCause(cause endCause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endCause == (endCause{}) {
		r.endCause = cause
	}
}

// reportedCause returns the first reported cause of the end; the zero value if none.
func (r *run) reportedCause() endCause {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endCause
}

// currentQMP returns the current connection, if any.
func (r *run) currentQMP() (*qmpConn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.qmp, r.qmp != nil
}

// awaitMonitor waits for a monitor connection.
func (r *run) awaitMonitor(ctx context.Context) (*qmpConn, error) {
	for {
		r.mu.Lock()
		q, linked := r.qmp, r.qmpConnected
		r.mu.Unlock()
		if q != nil {
			return q, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.exited:
			return nil, errProcessGone
		case <-r.machine.driver.ctx.Done():
			return nil, errClosed
		case <-linked:
		}
	}
}

// recordRunEnd records the end of the process, with the best known reason.
func (r *run) recordRunEnd(exited <-chan string) {
	cause := r.reportedCause()
	status := "QEMU ended"
	if exited != nil {
		status = <-exited
	}
	if cause == (endCause{}) {
		cause = causeInLog(r.machine.withLogTail(status))
	}
	if lock, err := lockWithin(context.Background(), r.machine.dir, lockTimeout); err == nil {
		_ = lock.Close() // its last thread has ended, too
	}
	if why := r.machine.driver.cgroups.removeFor(r.machine.id); why != "" {
		cause = endCause{why, farm.FailureMemory}
	}
	r.closeVNC() // a following start may need the port
	r.machine.recordEnd(r, cause)
	close(r.exited)
}

// causeInLog returns the cause of an end that QEMU did not report, from the end of its log: without memory for the
// guest it prints the system's error.
func causeInLog(text string) endCause {
	if strings.Contains(text, syscall.ENOMEM.Error()) || strings.Contains(text, "Cannot allocate memory") {
		return endCause{text, farm.FailureMemory}
	}
	return endCause{text, farm.FailureHypervisor}
}

// hasEnded reports whether the process has ended and that is recorded.
func (r *run) hasEnded() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// address returns the guest's last reported address; "" before the first query.
func (r *run) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ip
}

// saveSerial writes the end of the serial console into the VM's directory. QEMU returns it only once.
func (r *run) saveSerial(ctx context.Context, q *qmpConn) {
	var text string
	args := map[string]any{"device": "serial", "size": serialBufferBytes, "format": "base64"}
	if err := q.call(ctx, "ringbuf-read", args, &text); err != nil || text == "" {
		return
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(r.machine.dir, serialFile), b, 0o600); err != nil {
		r.machine.driver.log.Warn("storing the serial console output failed", "vm", r.machine.id, "error", err)
	}
}

// exitStatus waits for a child and returns how it ended.
func exitStatus(cmd *exec.Cmd) string {
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case err == nil:
		return "QEMU exited"
	case errors.As(err, &exit):
		return "QEMU ended (" + exit.Error() + ")"
	default:
		return "QEMU ended (" + err.Error() + ")"
	}
}

// sanitizedTail returns the end of a log as one sanitized line: a guest wrote it.
func sanitizedTail(b []byte) string {
	b = b[max(0, len(b)-logTailBytes):]
	clean := strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || c == '\r' {
			return ' '
		}
		if isControlRune(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(string(b), ""))
	return strings.Join(strings.Fields(clean), " ")
}
