package controller

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits of consoles.
const (
	ConsolesPerVM = 4
	MaxConsoles   = 64               // on this replica
	consoleWait   = 15 * time.Second // for the node
	consoleWrite  = 30 * time.Second // that a side may accept nothing
	consolePing   = 20 * time.Second
)

// ConsoleConn is one end of a console: it carries messages of bytes to a viewer or to a node, and from
// there. Its methods may be called from several goroutines, Read from one at a time.
type ConsoleConn interface {
	// Read returns the next message. When the other side has left it returns a ConsoleClosedError.
	Read(ctx context.Context) ([]byte, error)
	Write(ctx context.Context, message []byte) error
	// Ping waits until the other side has answered, which requires a concurrent Read.
	Ping(ctx context.Context) error
	// End sends the reason to the other side, and ends all calls.
	End(why string)
}

// ConsoleClosedError is the error of a connection that the other side has ended, with its reason;
// "" without one.
type ConsoleClosedError struct{ Why string }

// Error implements error.
func (l ConsoleClosedError) Error() string { return "the other side has left: " + l.Why }

// consoles are the VM screens that clients view through this replica. Nothing of them is stored.
type consoles struct {
	shown metric.Counter

	mu  sync.Mutex            // guards the fields below
	all map[string][]*Console // instance id -> its consoles
	n   int
}

func newConsoles() *consoles { return &consoles{all: map[string][]*Console{}} }

func (k *consoles) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.n
}

func (k *consoles) of(instance string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all[instance])
}

// add registers a console, unless there are too many.
func (k *consoles) add(con *Console) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case len(k.all[con.instance]) >= ConsolesPerVM:
		return farm.Errorf(farm.CodeBusy, "%d consoles of this instance are open already; close one of them", ConsolesPerVM)
	case k.n >= MaxConsoles:
		return farm.Errorf(farm.CodeBusy, "%d consoles are open on this controller already; try again when one was closed", MaxConsoles)
	}
	k.all[con.instance] = append(k.all[con.instance], con)
	k.n++
	return nil
}

func (k *consoles) remove(con *Console) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(k.all[con.instance], con)
	if i < 0 {
		return
	}
	k.n--
	if k.all[con.instance] = slices.Delete(k.all[con.instance], i, i+1); len(k.all[con.instance]) == 0 {
		delete(k.all, con.instance)
	}
}

// observe ends the consoles of instances that no longer run.
func (k *consoles) observe(events []store.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n == 0 {
		return
	}
	for _, e := range events {
		if e.Kind != record.KindInstance {
			continue
		}
		inst, _ := e.New.(*farm.Instance)
		for _, con := range k.all[e.ID] {
			con.check(inst)
		}
	}
}

// Console is a VM screen that a client views. The caller that opened it calls Serve, and Close.
type Console struct {
	c                              *Controller
	session, instance, claim, node string

	ctx    context.Context // ends with the console; its cause is the reason
	cancel context.CancelCauseFunc
	joined chan ConsoleConn // receives the node's connection, one time
	done   chan struct{}    // closed when all its goroutines have ended

	mu    sync.Mutex
	taken bool // by the node; guarded by mu
}

// check ends a console whose instance no longer matches; nil when that is removed.
func (k *Console) check(inst *farm.Instance) {
	switch {
	case inst == nil:
		k.cancel(closeReason("The instance is gone"))
	case inst.State != farm.Started || inst.Claim != k.claim:
		k.cancel(closeReason("The instance does not run any more: it is " + string(inst.State)))
	}
}

// ConsoleOf reports whether a console of an instance could be opened now.
func (c *Controller) ConsoleOf(ctx context.Context, id string) (api.Console, error) {
	inst, err := c.showable(ctx, id)
	if err != nil {
		return api.Console{}, err
	}
	return api.Console{InstanceID: inst.ID, NodeID: inst.NodeID, Open: c.consoles.of(inst.ID)}, nil
}

// showable returns an instance whose screen can be shown.
func (c *Controller) showable(ctx context.Context, id string) (*farm.Instance, error) {
	inst, _, err := c.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	if inst.State != farm.Started {
		return nil, farm.Refused("The instance is %s; only one that runs (%s) has a console", inst.State, farm.Started)
	}
	node, _, ok := c.tables.Nodes.Get(inst.NodeID)
	if !ok {
		return nil, farm.Refused("The node of the instance is gone")
	}
	_, seen := c.link.usage(node.ID)
	switch {
	case node.State == farm.NodeOffline:
		return nil, farm.Refused("Console unavailable: node %s is offline", node.Name)
	case !slices.Contains(c.infoOn(node.ID).Abilities, abilityConsole):
		return nil, farm.Refused("Node %s cannot show screens: its agent is older than consoles are; update it", node.Name)
	case c.now().Sub(seen) > contactGap:
		return nil, farm.Refused("Node %s does not call this replica of the controller: it cannot be asked from here", node.Name)
	}
	return inst, nil
}

// abilityConsole is the ability that nodes report which can show screens.
const abilityConsole = "console"

// OpenConsole requests the screen of an instance from its node. The console ends with ctx.
func (c *Controller) OpenConsole(ctx context.Context, id string) (*Console, error) {
	inst, err := c.showable(ctx, id)
	if err != nil {
		return nil, err
	}
	k := &Console{
		c: c, session: rand.Text(), instance: inst.ID, claim: inst.Claim, node: inst.NodeID,
		joined: make(chan ConsoleConn), done: make(chan struct{}),
	}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	if err := c.consoles.add(k); err != nil {
		k.cancel(nil)
		return nil, err
	}
	now, _, _ := c.tables.Instances.Get(inst.ID)
	k.check(now) // it may have ended before this console was registered
	if s := c.link.session(k.node); s != nil {
		s.wantConsole(api.ConsoleRequest{Session: k.session, InstanceID: k.instance, Claim: k.claim})
	}
	return k, nil
}

// Instance returns the id of the instance.
func (k *Console) Instance() string { return k.instance }

// Close ends the console and frees its resources.
func (k *Console) Close() {
	k.cancel(context.Canceled)
	k.forget()
}

// forget withdraws the request to the node.
func (k *Console) forget() {
	k.c.consoles.remove(k)
	if s := k.c.link.find(k.node); s != nil {
		s.dropConsole(k.session)
	}
}

// TakeConsole returns the console that a node was asked to show, to one caller only.
func (c *Controller) TakeConsole(node, session string) (*Console, error) {
	c.consoles.mu.Lock()
	var found *Console
	for _, list := range c.consoles.all {
		for _, k := range list {
			if k.node == node && subtle.ConstantTimeCompare([]byte(k.session), []byte(session)) == 1 {
				found = k
			}
		}
	}
	c.consoles.mu.Unlock()
	if found == nil {
		return nil, farm.Errorf(farm.CodeNotFound, "Console session not found")
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.taken || found.ctx.Err() != nil {
		return nil, farm.Errorf(farm.CodeNotFound, "Console session not found")
	}
	found.taken = true
	if s := c.link.find(node); s != nil {
		s.dropConsole(session)
	}
	return found, nil
}

// Join hands a console the connection to its node, and returns when the console is over.
func (k *Console) Join(node ConsoleConn) {
	select {
	case k.joined <- node:
		<-k.done
	case <-k.ctx.Done():
		node.End(k.why())
	}
}

// Serve shows the screen to a viewer until one of them leaves, the instance ends, or the context
// that the console was opened with.
func (k *Console) Serve(viewer ConsoleConn) {
	defer close(k.done)
	began := k.c.now()
	var wg sync.WaitGroup
	ready := make(chan struct{}) // closed when there is a node
	var node ConsoleConn
	wg.Go(func() { k.up(viewer, &node, ready) })
	select {
	case node = <-k.joined:
		close(ready)
		k.c.consoles.shown.Inc()
		wg.Go(func() { k.down(node, viewer) })
		for _, line := range []ConsoleConn{viewer, node} {
			wg.Go(func() { k.watch(line) })
		}
		<-k.ctx.Done()
	case <-time.After(consoleWait):
		k.cancel(closeReason(fmt.Sprintf("The node has not answered within %s. Its agent may be busy or gone; try again", consoleWait)))
	case <-k.ctx.Done():
	}
	k.forget()
	why := k.why()
	var ends sync.WaitGroup
	ends.Go(func() { viewer.End(why) })
	if node != nil {
		ends.Go(func() { node.End(why) })
	}
	ends.Wait()
	wg.Wait()
	k.c.log.Info("a console was closed", "instance", k.instance, "node", k.node, "shown", node != nil, "took", k.c.now().Sub(began).String(), "why", why)
}

// why returns why the console is over, as a sentence.
func (k *Console) why() string {
	err := context.Cause(k.ctx)
	if errors.Is(err, context.Canceled) {
		return "You may not see it any more, or the controller is stopping"
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
func (k *Console) up(viewer ConsoleConn, node *ConsoleConn, ready <-chan struct{}) {
	for {
		message, err := viewer.Read(context.WithoutCancel(k.ctx)) // End unblocks it, and has the reason
		if err != nil {
			k.cancel(errViewerLeft)
			return
		}
		select {
		case <-ready:
		case <-k.ctx.Done():
			return
		}
		if !k.pass(*node, message) {
			return
		}
	}
}

// down forwards the screen's messages to the viewer.
func (k *Console) down(node, viewer ConsoleConn) {
	for {
		message, err := node.Read(context.WithoutCancel(k.ctx)) // as in up
		if err != nil {
			why := errNodeLeft
			if left, ok := errors.AsType[ConsoleClosedError](err); ok && left.Why != "" {
				why = closeReason(nodeinput.Text(left.Why, nodeinput.MaxField))
			}
			k.cancel(why)
			return
		}
		if !k.pass(viewer, message) {
			return
		}
	}
}

// pass sends a message to the other side, which has to accept it within some time. Where that side
// has left, the goroutine that reads from it reports why.
func (k *Console) pass(to ConsoleConn, message []byte) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), consoleWrite)
	defer cancel()
	err := to.Write(ctx, message)
	if ctx.Err() != nil {
		k.cancel(errSlow)
	}
	return err == nil
}

// watch pings a side periodically.
func (k *Console) watch(line ConsoleConn) {
	ticks := time.NewTicker(consolePing)
	defer ticks.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-ticks.C:
		}
		ctx, cancel := context.WithTimeout(k.ctx, consoleWrite)
		err := line.Ping(ctx)
		cancel()
		if err != nil {
			k.cancel(errSlow)
			return
		}
	}
}

// pendingConsole is a console request that a node has not answered yet.
type pendingConsole struct {
	call api.ConsoleRequest
	sent time.Time // zero: not yet
}

// wantConsole sends a console request to the node.
func (s *session) wantConsole(call api.ConsoleRequest) {
	s.mu.Lock()
	if s.consoles == nil {
		s.consoles = map[string]pendingConsole{}
	}
	s.consoles[call.Session] = pendingConsole{call: call}
	s.mu.Unlock()
	s.ring()
}

func (s *session) dropConsole(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.consoles, id)
}

// takeConsoles returns the console requests that are to be sent now, with the time at which the
// next one is due again.
func (s *session) takeConsoles(now time.Time, resend time.Duration) (calls []api.ConsoleRequest, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.consoles {
		if again := d.sent.Add(resend); !d.sent.IsZero() && now.Before(again) {
			next = sooner(next, again)
			continue
		}
		d.sent = now
		s.consoles[id] = d
		calls = append(calls, d.call)
	}
	return calls, next
}
