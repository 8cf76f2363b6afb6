package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	usageEvery = 5 * time.Second
	// heldEvery is the minimum interval between two inventories of a busy node: a list of all
	// instances with every single order would cost both sides more than the orders.
	heldEvery = time.Second
	// quickAnswer is the minimum time of an empty response. One that arrives sooner means that the
	// controller does not support long polls; then the agent pauses.
	quickAnswer = 500 * time.Millisecond
)

// poller is the state that a poll loop keeps between polls.
type poller struct {
	a             *Agent
	needFull      bool
	infoHash      string // of what the controller received and acknowledged
	inventoryHash string
	inventoryAt   time.Time // when that list was made
	acks          []api.Ack // not yet delivered
	describe      []string  // IDs that the controller asked about
	usageAt       time.Time
	usage         api.Usage // that the controller received and acknowledged
	pulled        int64     // bytes that were reported
	refusedAt     time.Time // since when the controller prefers another agent
	pause         *retry.Backoff
}

// pollLoop polls for work until the agent ends. It accesses neither the driver nor the cache's
// disk, so no running work can delay a heartbeat.
func (a *Agent) pollLoop(ctx context.Context) error {
	p := &poller{a: a, needFull: true, pause: retry.New(callRetryFirst, callRetryMax)}
	if a.opts.Pulled != nil {
		p.pulled = a.opts.Pulled()
	}
	for ctx.Err() == nil {
		if err := p.once(ctx); err != nil {
			return err
		}
	}
	return nil
}

// once polls and processes the response. It returns an error only to end the agent.
func (p *poller) once(ctx context.Context) error {
	req := p.request(time.Now())
	begun := time.Now()
	answer, err := p.a.opts.Link.Poll(ctx, p.wait(), req)
	if ctx.Err() != nil {
		return nil
	}
	p.a.metrics.polledNow(err, time.Now())
	if err != nil {
		return p.failed(ctx, err)
	}
	if answer.Removed {
		return p.a.leave(ctx)
	}
	p.refusedAt = time.Time{}
	p.infoHash, p.inventoryHash = req.InfoHash, req.HeldHash
	if req.HasHeld {
		p.inventoryAt = begun
	}
	if req.Usage != nil {
		p.usage = *req.Usage
	}
	p.pulled += req.Pulled
	p.needFull, p.describe = answer.NeedFull, answer.Describe
	p.acks = p.acks[len(req.Acks):]
	p.a.applyPollResponse(answer)
	if u := p.a.opts.Updater; u != nil {
		u.HandleUpdate(answer.Update)
	}
	if answer.NeedFull {
		p.a.resendStatus()
	}
	p.a.cacheJobs.Accept(ctx, answer.CacheJobs)
	p.a.show(ctx, answer.Consoles)
	if len(answer.Orders)+len(answer.CacheJobs)+len(answer.Consoles) == 0 && len(req.Acks) == 0 &&
		time.Since(begun) < quickAnswer {
		_ = p.pause.Sleep(ctx)
		return nil
	}
	p.pause.Reset()
	p.acks = append(p.acks, p.a.acceptOrders(ctx, answer.Orders)...)
	return nil
}

// applyPollResponse applies what every response contains about the node.
func (a *Agent) applyPollResponse(answer api.PollAnswer) {
	a.mu.Lock()
	a.keepsLogs = answer.NoCentralLog
	if answer.Registry != "" {
		a.registry = answer.Registry
	}
	registry := a.registry
	a.mu.Unlock()
	switch {
	case a.opts.CentralLog == nil:
	case answer.CentralLog && !answer.NoCentralLog && registry != "":
		a.opts.CentralLog.Ship(registry)
	default:
		a.opts.CentralLog.Drop()
	}
}

// resendStatus reports every instance again: a controller that asks for everything may have lost
// earlier reports.
func (a *Agent) resendStatus() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, in := range a.instances {
		in.resendStatus()
		a.out.add(id)
	}
	a.cacheJobs.ResendStatuses()
}

// wait returns how long the poll may wait; it varies, so that the polls of many nodes spread out.
func (p *poller) wait() time.Duration {
	w := p.a.opts.PollWait
	return w - rand.N(w/10+1) //nolint:gosec // jitter need not be secret
}

// failed decides whether a failed poll ends the agent.
func (p *poller) failed(ctx context.Context, err error) error {
	switch farm.CodeOf(err) {
	case farm.CodeUnauthenticated:
		return removed(err)
	case farm.CodeConflict:
		if p.refusedAt.IsZero() {
			p.refusedAt = time.Now()
		}
		if time.Since(p.refusedAt) >= p.a.opts.ConflictWait {
			return &farm.Error{Code: farm.CodeConflict, Message: "Another agent speaks for this node", Err: err}
		}
	}
	p.a.log.Warn("poll of the controller failed", "error", err)
	p.needFull = true
	_ = p.pause.Sleep(ctx)
	return nil
}

// request returns what changed since the last acknowledged poll.
func (p *poller) request(now time.Time) api.PollRequest {
	a := p.a
	info := a.info()
	req := api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: a.opts.Identity.NodeID, BootID: a.boot,
		InfoHash: hash(info), HeldHash: p.inventoryHash, Acks: p.acks, Host: a.opts.Identity.Host,
		Details: a.details(p.describe),
	}
	if a.opts.Updater != nil {
		req.Update = a.opts.Updater.Status()
	}
	if a.opts.Pulled != nil {
		req.Pulled = a.opts.Pulled() - p.pulled
	}
	if p.needFull || req.InfoHash != p.infoHash {
		req.Info = &info
	}
	if p.needFull || now.Sub(p.inventoryAt) >= heldEvery {
		held := a.inventory()
		if req.HeldHash = hash(held); p.needFull || req.HeldHash != p.inventoryHash {
			req.Held, req.HasHeld = held, true
		}
	}
	if p.needFull || now.Sub(p.usageAt) >= usageEvery {
		p.usageAt = now
		if usage := a.usage(now); p.needFull || usage != p.usage {
			req.Usage = &usage
		}
	}
	return req
}
