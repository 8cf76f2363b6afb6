package nodelink

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
)

// MaxWait is the longest wait of one poll.
const MaxWait = 30 * time.Second

// Poll is a node's heartbeat and its request for work. It returns immediately when there are orders
// or something is missing, else after wait.
func (l *Link) Poll(
	ctx context.Context, credential string, req api.PollRequest, wait time.Duration,
) (*api.PollAnswer, error) {
	return l.poll(ctx, credential, &decodedPoll{req: req}, time.Time{}, wait)
}

// poll uses little of its stack while it waits, and so do its callers: ten thousand nodes wait at
// the same time. sent is the node's time when it sent the poll; zero: not known.
func (l *Link) poll(
	ctx context.Context, credential string, p *decodedPoll, sent time.Time, wait time.Duration,
) (*api.PollAnswer, error) {
	s, answer, err := l.receive(ctx, credential, p, sent)
	if err != nil || answer.Removed {
		return answer, err
	}
	if answer.NeedFull || len(answer.Describe) > 0 {
		wait = 0
	}
	l.waitForWork(ctx, s, min(wait, MaxWait), answer)
	answer.Removed = s.removed()
	answer.Update = l.updateOffer(s)
	return answer, nil
}

// receive processes a poll, and begins its response.
func (l *Link) receive(
	ctx context.Context, credential string, p *decodedPoll, sent time.Time,
) (*session, *api.PollAnswer, error) {
	req, now := &p.req, l.db.Now()
	node, err := l.Authenticate(req.NodeID, credential)
	if errors.Is(err, ErrRemoved) {
		return nil, &api.PollAnswer{Removed: true}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if !p.bounded {
		if err := nodeinput.Poll(req); err != nil {
			return nil, nil, err
		}
		p.bounded = true
	}
	s := l.Sessions.session(node.ID)
	if s == nil { // removed a moment ago
		return nil, &api.PollAnswer{Removed: true}, nil
	}
	answer := l.EmptyPollResponse()
	answer.NoCentralLog = node.NoCentralLog
	if err := s.recordContact(req.BootID, l.db.Now()); err != nil {
		return nil, nil, err
	}
	s.recordClock(sent, now)
	if answer.NeedFull, err = l.applyDescription(ctx, s, req); err != nil {
		return nil, nil, err
	}
	if err := l.restoreContact(ctx, s, node, req.Host); err != nil {
		return nil, nil, err
	}
	if !answer.NeedFull {
		if err := l.applyUpdateStatus(ctx, s, node, req); err != nil {
			return nil, nil, err
		}
	}
	s.cachePoll(p)
	s.acknowledge(req.Acks)
	if len(req.Details) > 0 {
		s.addDetails(req.Details)
		l.opts.Placer.Touch(s.node)
		l.opts.RetryMACs()
	}
	answer.Describe = s.requestedDetails(l.db.Now())
	if req.Info != nil { // at the start of either program, and rarely later
		answer.Cloud = l.opts.Announcement()
	}
	return s, answer, nil
}

// waitForWork waits until there is work for the node, or the time is up.
func (l *Link) waitForWork(ctx context.Context, s *session, wait time.Duration, answer *api.PollAnswer) {
	done := s.beginWait()
	defer func() { done(ctx.Err() != nil, l.db.Now()) }()
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	var end <-chan struct{}
	if wait > 0 {
		end = l.ticker.after(wait)
	}
	for over := wait <= 0; ; {
		again, found := l.pendingWork(ctx, s, answer)
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

// pendingWork writes the pending work of the node into a response. If it finds none, it returns a channel
// that has a value when an order is due again; nil: none is.
func (l *Link) pendingWork(
	ctx context.Context, s *session, answer *api.PollAnswer,
) (again <-chan time.Time, found bool) {
	ids, next := s.takeOrders(l.db.Now(), l.opts.OrderResend)
	list, other := s.takeCacheJobs(l.db.Now(), l.opts.OrderResend)
	calls, later := s.takeConsoles(l.db.Now(), l.opts.OrderResend)
	answer.Orders, answer.CacheJobs, answer.Consoles = l.orders(ctx, s, ids), l.cacheJobsFor(list), calls
	if len(answer.Orders)+len(answer.CacheJobs)+len(answer.Consoles) > 0 || s.hasUpdate() {
		return nil, true
	}
	if next = earlier(earlier(next, other), later); next.IsZero() {
		return nil, false
	}
	return time.After(max(next.Sub(l.db.Now()), time.Millisecond)), false
}

// applyDescription processes the description in a poll; needFull requests what came only as a hash that
// this replica does not know.
func (l *Link) applyDescription(ctx context.Context, s *session, req *api.PollRequest) (needFull bool, err error) {
	s.mu.Lock()
	if req.Usage != nil {
		s.usage, s.fills = *req.Usage, req.Fills
	}
	s.pulled += max(req.Pulled, 0)
	infoKnown, inventoryKnown := s.infoHash == req.InfoHash, s.inventoryHash == req.HeldHash
	s.mu.Unlock()
	if req.Pulled > 0 {
		l.opts.Pulls.Pulled(req.NodeID, req.Pulled)
	}
	switch {
	case req.Info != nil:
		if err := l.storeInfo(ctx, s, infoOf(req.NodeID, req.Info)); err != nil {
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
		l.applyInventory(ctx, s, req.Held)
		s.mu.Lock()
		s.inventoryHash = req.HeldHash
		s.mu.Unlock()
	case !inventoryKnown:
		needFull = true
	default:
		l.Orphans.count(ctx, s)
	}
	return needFull, nil
}
