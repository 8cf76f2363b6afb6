package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store"
)

// Nodes passes console requests to nodes.
type Nodes interface {
	// RequestConsole sends a request to a node until it is dropped.
	RequestConsole(node string, call api.ConsoleRequest)
	// DropConsole withdraws the request of a session.
	DropConsole(node, session string)
	// HasContact reports whether a node polls this replica.
	HasContact(node string) bool
}

// Relay has the consoles that clients view through this replica. Nothing of them is stored.
type Relay struct {
	connected metric.Counter // sessions that a node has connected

	db    record.DB
	nodes Nodes

	mu  sync.Mutex            // guards the fields below
	all map[string][]*Session // instance id -> its consoles
	n   int
}

// New returns a relay that passes requests to nodes.
func New(db record.DB, nodes Nodes) *Relay {
	return &Relay{db: db, nodes: nodes, all: map[string][]*Session{}}
}

// Count returns how many consoles are open or wait for their node.
func (r *Relay) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// Families returns the metrics of the consoles.
func (r *Relay) Families() []metric.Family {
	return []metric.Family{
		metric.GaugeFamily("buildyard_consoles",
			"Console sessions that are open or wait for a connection from their node",
			func() float64 { return float64(r.Count()) }),
		metric.CounterFamily("buildyard_console_sessions_total", "Console sessions that a node has connected",
			&r.connected),
	}
}

// countOf returns how many consoles of an instance there are.
func (r *Relay) countOf(instance string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all[instance])
}

// add registers a console, unless there are too many.
func (r *Relay) add(s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.all[s.instance]) >= MaxPerInstance:
		return farm.Errorf(farm.CodeBusy, "Limit of open consoles per instance (%d) reached; close one of them",
			MaxPerInstance)
	case r.n >= MaxOpen:
		return farm.Errorf(farm.CodeBusy,
			"Limit of open consoles of this controller (%d) reached; try again when one has been closed", MaxOpen)
	}
	r.all[s.instance] = append(r.all[s.instance], s)
	r.n++
	return nil
}

func (r *Relay) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.all[s.instance], s)
	if i < 0 {
		return
	}
	r.n--
	if r.all[s.instance] = slices.Delete(r.all[s.instance], i, i+1); len(r.all[s.instance]) == 0 {
		delete(r.all, s.instance)
	}
}

// Observe ends the consoles of instances that no longer run.
func (r *Relay) Observe(events []store.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return
	}
	for _, e := range events {
		if e.Kind != record.KindInstance {
			continue
		}
		inst, _ := e.New.(*farm.Instance)
		for _, s := range r.all[e.ID] {
			s.check(inst)
		}
	}
}

// Open requests the screen of an instance from its node. The session ends with ctx.
func (r *Relay) Open(ctx context.Context, instance string) (*Session, error) {
	inst, err := r.viewable(ctx, instance)
	if err != nil {
		return nil, err
	}
	s := &Session{
		relay: r, id: rand.Text(), instance: inst.ID, claim: inst.Claim, node: inst.NodeID,
		joined: make(chan Conn), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if err := r.add(s); err != nil {
		s.cancel(nil)
		return nil, err
	}
	now, _, _ := r.db.Tables.Instances.Get(inst.ID)
	s.check(now) // it may have ended before this session was registered
	r.nodes.RequestConsole(s.node, api.ConsoleRequest{Session: s.id, InstanceID: s.instance, Claim: s.claim})
	return s, nil
}

// Take returns the session that a node was asked to show, to one caller only.
func (r *Relay) Take(node, session string) (*Session, error) {
	r.mu.Lock()
	var found *Session
	for _, list := range r.all {
		for _, s := range list {
			if s.node == node && subtle.ConstantTimeCompare([]byte(s.id), []byte(session)) == 1 {
				found = s
			}
		}
	}
	r.mu.Unlock()
	if found == nil {
		return nil, farm.Errorf(farm.CodeNotFound, "Console session not found")
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.taken || found.ctx.Err() != nil {
		return nil, farm.Errorf(farm.CodeNotFound, "Console session not found")
	}
	found.taken = true
	r.nodes.DropConsole(node, session)
	return found, nil
}
