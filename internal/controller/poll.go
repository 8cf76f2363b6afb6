package controller

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// MaxWait is the longest wait of one poll.
const MaxWait = 30 * time.Second

// Poll is a node's heartbeat and its request for work. It returns immediately when there are orders
// or something is missing, else after wait.
func (c *Controller) Poll(
	ctx context.Context, credential string, req api.PollRequest, wait time.Duration,
) (*api.PollAnswer, error) {
	return c.poll(ctx, credential, &decodedPoll{req: req}, wait)
}

// poll uses little of its stack while it waits, and so do its callers: ten thousand nodes wait at
// the same time.
func (c *Controller) poll(
	ctx context.Context, credential string, h *decodedPoll, wait time.Duration,
) (*api.PollAnswer, error) {
	s, answer, err := c.hear(ctx, credential, h)
	if err != nil || answer.Removed {
		return answer, err
	}
	if answer.NeedFull || len(answer.Describe) > 0 {
		wait = 0
	}
	c.await(ctx, s, min(wait, MaxWait), answer)
	answer.Removed = s.removed()
	answer.Update = c.offer(s)
	return answer, nil
}

// hear processes a poll, and begins its response.
func (c *Controller) hear(ctx context.Context, credential string, h *decodedPoll) (*session, *api.PollAnswer, error) {
	req := &h.req
	node, err := c.authenticate(req.NodeID, credential)
	if errors.Is(err, errRemoved) {
		return nil, &api.PollAnswer{Removed: true}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if !h.bounded {
		if err := nodeinput.Poll(req); err != nil {
			return nil, nil, err
		}
		h.bounded = true
	}
	s := c.link.session(node.ID)
	if s == nil { // removed a moment ago
		return nil, &api.PollAnswer{Removed: true}, nil
	}
	answer := c.EmptyPollResponse()
	answer.NoCentralLog = node.NoCentralLog
	if err := s.contact(req.BootID, c.now()); err != nil {
		return nil, nil, err
	}
	if answer.NeedFull, err = c.describe(ctx, s, req); err != nil {
		return nil, nil, err
	}
	if err := c.greet(ctx, s, node, req.Host); err != nil {
		return nil, nil, err
	}
	if !answer.NeedFull {
		if err := c.hearUpdate(ctx, s, node, req); err != nil {
			return nil, nil, err
		}
	}
	s.remember(h)
	s.acknowledge(req.Acks)
	if len(req.Details) > 0 {
		s.learn(req.Details)
		c.placer.Touch(s.node)
		c.MACs.Retry()
	}
	answer.Describe = s.curious(c.now())
	return s, answer, nil
}

// await waits until there is work for the node, or the time is up.
func (c *Controller) await(ctx context.Context, s *session, wait time.Duration, answer *api.PollAnswer) {
	done := s.park()
	defer func() { done(ctx.Err() != nil, c.now()) }()
	defer c.meters.park()()
	var end <-chan struct{}
	if wait > 0 {
		end = c.beats.after(wait)
	}
	for over := wait <= 0; ; {
		again, found := c.look(ctx, s, answer)
		if found || over {
			return
		}
		select {
		case <-s.wake:
			if s.removed() {
				return
			}
		case <-again:
		case <-end:
			over = true
		case <-ctx.Done():
			return
		}
	}
}

// look writes the pending work of the node into a response. If it finds none, it returns a channel
// that has a value when an order is due again; nil: none is.
func (c *Controller) look(
	ctx context.Context, s *session, answer *api.PollAnswer,
) (again <-chan time.Time, found bool) {
	ids, next := s.take(c.now(), c.opts.OrderResend)
	list, other := s.takeCacheJobs(c.now(), c.opts.OrderResend)
	calls, later := s.takeConsoles(c.now(), c.opts.OrderResend)
	answer.Orders, answer.CacheJobs, answer.Consoles = c.orders(ctx, s, ids), c.cacheJobsFor(list), calls
	if len(answer.Orders)+len(answer.CacheJobs)+len(answer.Consoles) > 0 || s.hasUpdate() {
		return nil, true
	}
	if next = sooner(sooner(next, other), later); next.IsZero() {
		return nil, false
	}
	return time.After(max(next.Sub(c.now()), time.Millisecond)), false
}

// describe processes the description in a poll; needFull requests what came only as a hash that
// this replica does not know.
func (c *Controller) describe(ctx context.Context, s *session, req *api.PollRequest) (needFull bool, err error) {
	s.mu.Lock()
	if req.Usage != nil {
		s.usage = *req.Usage
	}
	infoKnown, heldKnown := s.infoHash == req.InfoHash, s.heldHash == req.HeldHash
	s.mu.Unlock()
	if req.Pulled > 0 {
		c.Usage.Pulled(req.Pulled)
	}
	switch {
	case req.Info != nil:
		if err := c.storeInfo(ctx, s, infoOf(req.NodeID, req.Info)); err != nil {
			return false, err
		}
		s.mu.Lock()
		s.infoHash = req.InfoHash
		s.mu.Unlock()
	case !infoKnown:
		needFull = true
	}
	switch {
	case req.HasHeld:
		c.reconcile(ctx, s, req.Held)
		s.mu.Lock()
		s.heldHash = req.HeldHash
		s.mu.Unlock()
	case !heldKnown:
		needFull = true
	default:
		c.countOrphans(ctx, s)
	}
	return needFull, nil
}

// storeInfo writes the description that a node sent, unless nothing in it that justifies a write
// has changed. If the node has sent new ones too often it is written later.
func (c *Controller) storeInfo(ctx context.Context, s *session, info *farm.NodeInfo) error {
	s.describing.Lock()
	defer s.describing.Unlock()
	s.dropWrite(func(w *pacedWrites) { w.info, w.base = nil, nil })
	old, _, _ := c.tables.Infos.Get(s.node)
	if old != nil && sameInfo(old, info) {
		return nil
	}
	if !c.mayWrite(ctx, s, func(w *pacedWrites) { w.info, w.base = info, old }) {
		return nil
	}
	return c.writeInfo(ctx, s, info, nil)
}

// writeInfo writes the description of a node. For a delayed write, base is the record at that time:
// if another replica has written one since, that stays, and the node is asked for everything when
// it polls here again.
func (c *Controller) writeInfo(ctx context.Context, s *session, info, base *farm.NodeInfo) error {
	overtaken := false
	_, err := store.Update(ctx, c.store, c.tables.Infos, s.node, func(old *farm.NodeInfo) (*farm.NodeInfo, error) {
		overtaken = base != nil && old != nil && !sameInfo(old, base)
		if overtaken || old != nil && sameInfo(old, info) {
			return old, nil
		}
		return info, nil
	})
	if overtaken {
		s.mu.Lock()
		s.infoHash = ""
		s.mu.Unlock()
	}
	return err
}

// greet brings an offline node back, and stores a changed address. If the address has changed too
// often it is written later.
func (c *Controller) greet(ctx context.Context, s *session, node *farm.Node, host string) error {
	moves := func(n *farm.Node) bool { return host != "" && host != n.Host && !n.HostFixed }
	s.dropWrite(func(w *pacedWrites) { w.host = "" })
	if node.State != farm.NodeOffline && (!moves(node) || !c.mayWrite(ctx, s, func(w *pacedWrites) { w.host = host })) {
		return nil
	}
	v := heardVerdict(c.infoOn(node.ID), c.now())
	was := node.State
	now, err := store.Update(ctx, c.store, c.tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil {
			return nil, farm.Errorf(farm.CodeUnauthenticated, "the node was removed")
		}
		was = n.State
		to := n.Clone()
		if !to.Enter(v.event, v.reason, c.now()) && !moves(n) {
			return n, nil
		}
		to.ResumeUpdate(c.now())
		if moves(n) {
			to.Host = host
		}
		return to, nil
	})
	if err == nil && was != now.State {
		c.log.InfoContext(ctx, "node contact restored", "node", node.ID, "was", string(was), "state", string(now.State),
			"reason", now.StateReason)
		c.nodeBack(ctx, node.ID)
	}
	return err
}

// nodeBack lets the instances of a returned node continue.
func (c *Controller) nodeBack(ctx context.Context, node string) {
	for _, inst := range c.instancesOn(node) {
		if inst.Lost.IsZero() {
			continue
		}
		err := c.modify(ctx, c.store, inst.ID, func(i *farm.Instance) (*farm.Instance, error) {
			return foundAgain(i, c.now()), nil
		})
		if err != nil {
			c.log.WarnContext(ctx, "could not bring back an instance", "instance", inst.ID, "error", err)
		}
	}
}
