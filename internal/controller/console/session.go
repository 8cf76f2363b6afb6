package console

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of consoles.
const (
	MaxPerInstance = 4
	MaxOpen        = 64               // on this replica
	nodeTimeout    = 15 * time.Second // for the node
	writeTimeout   = 30 * time.Second // that a side may accept nothing
	pingInterval   = 20 * time.Second
)

// Conn is one end of a console: it carries messages of bytes to a viewer or to a node, and from
// there. Its methods may be called from several goroutines, Read from one at a time.
type Conn interface {
	// Read returns the next message. When the other side has left it returns a ClosedError.
	Read(ctx context.Context) ([]byte, error)
	Write(ctx context.Context, message []byte) error
	// Ping waits until the other side has answered, which requires a concurrent Read.
	Ping(ctx context.Context) error
	// End sends the reason to the other side, and ends all calls.
	End(why string)
}

// ClosedError is the error of a connection that the other side has ended, with its reason;
// "" without one.
type ClosedError struct{ Why string }

// Error implements error.
func (l ClosedError) Error() string { return "the other side has left: " + l.Why }

// Session is a VM screen that a client views. The caller that opened it calls Serve, and Close.
type Session struct {
	relay                     *Relay
	id, instance, claim, node string

	ctx    context.Context // ends with the console; its cause is the reason
	cancel context.CancelCauseFunc
	joined chan Conn     // receives the node's connection, one time
	done   chan struct{} // closed when all its goroutines have ended

	mu    lockorder.Mutex[lockorder.Console]
	taken bool // by the node; guarded by mu
}

// check ends a console whose instance no longer matches; nil when that is removed.
func (s *Session) check(inst *farm.Instance) {
	switch {
	case inst == nil:
		s.cancel(closeReason("The instance no longer exists"))
	case inst.State != farm.Started || inst.Claim != s.claim:
		s.cancel(closeReason("The instance is no longer running: its state is " + string(inst.State)))
	}
}

// Instance returns the id of the instance.
func (s *Session) Instance() string { return s.instance }

// Close ends the console and frees its resources.
func (s *Session) Close() {
	s.cancel(context.Canceled)
	s.forget()
}

// forget withdraws the request to the node.
func (s *Session) forget() {
	s.relay.remove(s)
	s.relay.nodes.DropConsole(s.node, s.id)
}

// Join hands a console the connection to its node, and returns when the console is over.
func (s *Session) Join(node Conn) {
	select {
	case s.joined <- node:
		<-s.done
	case <-s.ctx.Done():
		node.End(s.why())
	}
}

// Serve shows the screen to a viewer until one of them leaves, the instance ends, or the context
// that the console was opened with.
func (s *Session) Serve(viewer Conn) {
	defer close(s.done)
	began := s.relay.db.Now()
	var wg sync.WaitGroup
	ready := make(chan struct{}) // closed when there is a node
	var node Conn
	wg.Go(func() { s.up(viewer, &node, ready) })
	select {
	case node = <-s.joined:
		close(ready)
		s.relay.connected.Inc()
		wg.Go(func() { s.down(node, viewer) })
		for _, line := range []Conn{viewer, node} {
			wg.Go(func() { s.watch(line) })
		}
		<-s.ctx.Done()
	case <-time.After(nodeTimeout):
		s.cancel(closeReason(
			fmt.Sprintf("The node has not answered within %s. Its agent may be busy or gone; try again", nodeTimeout)))
	case <-s.ctx.Done():
	}
	s.forget()
	why := s.why()
	var ends sync.WaitGroup
	ends.Go(func() { viewer.End(why) })
	if node != nil {
		ends.Go(func() { node.End(why) })
	}
	ends.Wait()
	wg.Wait()
	s.relay.db.Log.Info("console closed", "instance_id", s.instance, "node_id", s.node, "shown", node != nil, "took",
		s.relay.db.Now().Sub(began).String(), "why", why)
}

// why returns why the console is over, as a sentence.
func (s *Session) why() string {
	err := context.Cause(s.ctx)
	if errors.Is(err, context.Canceled) {
		return "You may no longer see the instance, or the controller is stopping"
	}
	return err.Error()
}

// closeReason is why a console is over: a sentence for people.
type closeReason string

// Error implements error.
func (b closeReason) Error() string { return string(b) }

// The reasons that come from the connections.
const (
	errViewerLeft = closeReason("The viewer has left")
	errNodeLeft   = closeReason("The node was removed, or its agent has restarted")
	errSlow       = closeReason("The connection is too slow, or does not answer")
)

// up forwards the viewer's messages to the node. Before the node has joined, it accepts one message
// at most.
func (s *Session) up(viewer Conn, node *Conn, ready <-chan struct{}) {
	for {
		message, err := viewer.Read(context.WithoutCancel(s.ctx)) // End unblocks it, and has the reason
		if err != nil {
			s.cancel(errViewerLeft)
			return
		}
		select {
		case <-ready:
		case <-s.ctx.Done():
			return
		}
		if !s.pass(*node, message) {
			return
		}
	}
}

// down forwards the screen's messages to the viewer.
func (s *Session) down(node, viewer Conn) {
	for {
		message, err := node.Read(context.WithoutCancel(s.ctx)) // as in up
		if err != nil {
			why := errNodeLeft
			if left, ok := errors.AsType[ClosedError](err); ok && left.Why != "" {
				why = closeReason(nodeinput.Text(left.Why, nodeinput.MaxField))
			}
			now, _, _ := s.relay.db.Tables.Instances.Get(s.instance)
			s.check(now) // a node can stop a VM before this relay observes that the instance ends
			s.cancel(why)
			return
		}
		if !s.pass(viewer, message) {
			return
		}
	}
}

// pass sends a message to the other side, which has to accept it within some time. Where that side
// has left, the goroutine that reads from it reports why.
func (s *Session) pass(to Conn, message []byte) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), writeTimeout)
	defer cancel()
	err := to.Write(ctx, message)
	if ctx.Err() != nil {
		s.cancel(errSlow)
	}
	return err == nil
}

// watch pings a side periodically.
func (s *Session) watch(line Conn) {
	ticks := time.NewTicker(pingInterval)
	defer ticks.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticks.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, writeTimeout)
		err := line.Ping(ctx)
		cancel()
		if err != nil {
			s.cancel(errSlow)
			return
		}
	}
}
