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
	"time"
)

// run is one run of a QEMU process, from its start or its adoption to its end.
type run struct {
	m     *machine
	proc  process
	agent *guestAgent
	gone  chan struct{} // closed when the process has ended and that is recorded
	open  chan struct{} // closed when the guest has opened its agent port
	once  sync.Once     // closes open

	viewing sync.Mutex // held while QEMU is given a viewer of the screen

	mu     sync.Mutex    // guards the fields below
	qmp    *qmpConn      // nil while not connected
	linked chan struct{} // closed when qmp is set, replaced when the connection is lost
	cause  string        // what QEMU printed before it ended
	ip     string        // the guest's address; "" until asked for
	screen net.Listener  // of VNC connections; nil while not listening
}

// attach creates the run of the machine's process and watches it. exited delivers the exit status
// of a child process, and is nil for an adopted process. The run owns screen from now on; for an
// adopted process the run opens the listener.
func (m *machine) attach(exited <-chan string, screen net.Listener) *run {
	r := &run{
		m: m, proc: m.proc, gone: make(chan struct{}), open: make(chan struct{}), linked: make(chan struct{}),
		screen: screen,
	}
	r.agent = newGuestAgent(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, m.dir, qgaSocket) })
	m.mu.Lock()
	m.run = r
	port := m.cfg.VNCPort
	m.mu.Unlock()
	m.d.watch.Go(func() { r.watch(m.d.quit, exited) })
	if port != 0 {
		m.d.watch.Go(func() { r.showScreen(m.d.quit, screen, port) })
	}
	return r
}

// watch keeps a monitor connection while the process lives, and records its end. The end of the
// connection is the first sign of that.
func (r *run) watch(quit context.Context, exited <-chan string) {
	defer r.agent.close()
	for quit.Err() == nil {
		err := r.monitor(quit)
		if quit.Err() != nil {
			return
		}
		for range 100 { // the connection ends a moment before the process
			if !r.proc.alive() {
				r.ended(exited) //nolint:contextcheck // noting the end is not given up when the driver closes
				return
			}
			if pause(quit, 20*time.Millisecond) != nil {
				return
			}
		}
		r.m.d.log.Warn("QMP connection of a running VM lost", "vm", r.m.id, "error", err)
	}
}

// monitor connects and serves events until the connection ends.
func (r *run) monitor(quit context.Context) error {
	ctx, cancel := context.WithTimeout(quit, time.Minute)
	defer cancel()
	c, err := dialSocket(ctx, r.m.dir, qmpSocket)
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
	go func() { served <- q.serve(r.event) }()
	r.mu.Lock()
	r.qmp = q
	close(r.linked)
	r.mu.Unlock()
	r.configureMonitor(quit, q)
	r.catchUp(quit, q)
	r.m.d.watch.Go(func() { r.settleLeft(quit) })
	err = <-served
	r.mu.Lock()
	r.qmp, r.linked = nil, make(chan struct{})
	r.mu.Unlock()
	return err
}

// catchUp reads what happened before this connection was made.
func (r *run) catchUp(ctx context.Context, q *qmpConn) {
	var devices []struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	if err := q.call(ctx, "query-chardev", nil, &devices); err != nil {
		return // the connection ended; watch sees that
	}
	for _, d := range devices {
		if d.Label == "qga" && d.Open {
			r.once.Do(func() { close(r.open) })
		}
	}
	r.checkState(ctx, q)
}

// fatal states, by QEMU's name. QEMU stays in them until it is killed.
var fatal = map[string]string{
	"internal-error": "QEMU could not run the guest under this accelerator (internal error)",
	"guest-panicked": "the guest's kernel panicked",
	"shutdown":       "the guest powered itself off",
	"io-error":       "a disk of the VM could not be read or written; the node's disk may be full",
}

// diskFull is the failure of a VM that QEMU stopped because the host's disk was full at a write.
const diskFull = "The node's disk is full"

// checkState ends a VM that has stopped permanently.
func (r *run) checkState(ctx context.Context, q *qmpConn) {
	var state struct {
		Status string `json:"status"`
	}
	if err := q.call(ctx, "query-status", nil, &state); err != nil || fatal[state.Status] == "" {
		return
	}
	r.saveSerial(ctx, q)
	r.note(fatal[state.Status])
	if err := r.proc.kill(); err != nil {
		r.m.d.log.Error("killing a failed VM failed", "vm", r.m.id, "error", err)
	}
}

// event handles QEMU's events. It runs in the reading goroutine, so it sends commands in another one.
func (r *run) event(m qmpMessage) {
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
	r.m.d.log.Debug("QEMU event", "vm", r.m.id, "event", m.Event, "at", m.At.time(), "port", d.ID, "open", d.Open)
	switch m.Event {
	case "VSERPORT_CHANGE":
		if d.ID == "qga0" && d.Open {
			r.once.Do(func() { close(r.open) })
		}
	case "SHUTDOWN":
		if d.Guest {
			r.note(fatal["shutdown"])
		}
	case "BLOCK_IO_ERROR": // STOP follows
		if d.Full {
			r.note(diskFull)
		}
	case "STOP", "GUEST_PANICKED":
		if q, ok := r.link(); ok {
			r.m.d.watch.Go(func() { r.checkState(r.m.d.quit, q) })
		}
	}
}

// note stores the first reported cause of the end.
func (r *run) note(cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause == "" {
		r.cause = cause
	}
}

// said returns the first reported cause of the end; "" if none.
func (r *run) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause
}

// link returns the current connection, if any.
func (r *run) link() (*qmpConn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.qmp, r.qmp != nil
}

// monitorWithin waits for a monitor connection.
func (r *run) monitorWithin(ctx context.Context) (*qmpConn, error) {
	for {
		r.mu.Lock()
		q, linked := r.qmp, r.linked
		r.mu.Unlock()
		if q != nil {
			return q, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.gone:
			return nil, errGone
		case <-r.m.d.quit.Done():
			return nil, errClosed
		case <-linked:
		}
	}
}

// ended records the end of the process, with the best known reason.
func (r *run) ended(exited <-chan string) {
	cause := r.said()
	status := "QEMU ended"
	if exited != nil {
		status = <-exited
	}
	if cause == "" {
		cause = r.m.because(status)
	}
	if lock, err := lockWithin(context.Background(), r.m.dir, lockGrace); err == nil {
		_ = lock.Close() // its last thread has ended, too
	}
	if why := r.m.d.groups.leave(r.m.id); why != "" {
		cause = why
	}
	r.closeScreen() // a following start may need the port
	r.m.finish(r, cause)
	close(r.gone)
}

// hasEnded reports whether the process has ended and that is recorded.
func (r *run) hasEnded() bool {
	select {
	case <-r.gone:
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
	args := map[string]any{"device": "serial", "size": serialBytes, "format": "base64"}
	if err := q.call(ctx, "ringbuf-read", args, &text); err != nil || text == "" {
		return
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(r.m.dir, serialFile), b, 0o600); err != nil {
		r.m.d.log.Warn("storing the serial console output failed", "vm", r.m.id, "error", err)
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

// legible returns the end of a log as one sanitized line: a guest wrote it.
func legible(b []byte) string {
	b = b[max(0, len(b)-logTail):]
	clean := strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || c == '\r' {
			return ' '
		}
		if steers(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(string(b), ""))
	return strings.Join(strings.Fields(clean), " ")
}
