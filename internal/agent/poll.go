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
	usageInterval = 5 * time.Second
	// inventoryInterval is the minimum interval between two inventories of a busy node: a list of all
	// instances with every single order would cost both sides more than the orders.
	inventoryInterval = time.Second
	// minEmptyPollTime is the minimum time of an empty response. One that arrives sooner means that the
	// controller does not support long polls; then the agent pauses.
	minEmptyPollTime = 500 * time.Millisecond
)

// poller is the state that a poll loop keeps between polls.
type poller struct {
	agent              *Agent
	needFull           bool
	ackedInfoHash      string // of what the controller received and acknowledged
	ackedInventoryHash string
	inventoryAt        time.Time // when that list was made
	acks               []api.Ack // not yet delivered
	describeIDs        []string  // IDs that the controller asked about
	usageMeasuredAt    time.Time
	ackedUsage         api.Usage // that the controller received and acknowledged
	ackedFills         bool      // there were some
	reportedPullBytes  int64     // bytes that were reported
	refusedSince       time.Time // since when the controller prefers another agent
	backoff            *retry.Backoff
}

// pollLoop polls for work until the agent ends. It accesses neither the driver nor the cache's
// disk, so no running work can delay a heartbeat.
func (a *Agent) pollLoop(ctx context.Context) error {
	p := &poller{agent: a, needFull: true, backoff: retry.New(callRetryFirst, callRetryMax)}
	if a.opts.PulledBytes != nil {
		p.reportedPullBytes = a.opts.PulledBytes()
	}
	for ctx.Err() == nil {
		if err := p.pollOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pollOnce polls and processes the response. It returns an error only to end the agent.
func (p *poller) pollOnce(ctx context.Context) error {
	req := p.newRequest(time.Now())
	begun := time.Now()
	answer, err := p.agent.opts.Controller.Poll(ctx, p.pollWait(), req)
	if ctx.Err() != nil {
		return nil
	}
	p.agent.metrics.recordPoll(err, time.Now())
	if err != nil {
		return p.handleFailure(ctx, err)
	}
	if answer.Removed {
		return p.agent.leaveCloud(ctx)
	}
	p.refusedSince = time.Time{}
	p.ackedInfoHash, p.ackedInventoryHash = req.InfoHash, req.HeldHash
	if req.HasHeld {
		p.inventoryAt = begun
	}
	if req.Usage != nil {
		p.ackedUsage, p.ackedFills = *req.Usage, len(req.Fills) > 0
	}
	p.reportedPullBytes += req.Pulled
	p.needFull, p.describeIDs = answer.NeedFull, answer.Describe
	p.acks = p.acks[len(req.Acks):]
	p.agent.applyPollResponse(answer)
	if u := p.agent.opts.Updater; u != nil {
		u.HandleUpdate(answer.Update)
	}
	if cloud := p.agent.opts.Cloud; cloud != nil && answer.Cloud != nil {
		cloud.HandleAnnouncement(answer.Cloud)
	}
	if answer.NeedFull {
		p.agent.resendStatus()
	}
	p.agent.cacheJobs.Accept(ctx, answer.CacheJobs)
	p.agent.showConsoles(ctx, answer.Consoles)
	if len(answer.Orders)+len(answer.CacheJobs)+len(answer.Consoles) == 0 && len(req.Acks) == 0 &&
		time.Since(begun) < minEmptyPollTime {
		_ = p.backoff.Sleep(ctx)
		return nil
	}
	p.backoff.Reset()
	p.acks = append(p.acks, p.agent.acceptOrders(ctx, answer.Orders)...)
	return nil
}

// applyPollResponse applies what every response contains about the node.
func (a *Agent) applyPollResponse(answer api.PollAnswer) {
	a.mu.Lock()
	a.localLogsOnly = answer.NoCentralLog
	if answer.Registry != "" {
		a.defaultRegistry = answer.Registry
	}
	registry := a.defaultRegistry
	a.mu.Unlock()
	switch {
	case a.opts.CentralLog == nil:
	case answer.CentralLog && !answer.NoCentralLog && registry != "":
		a.opts.CentralLog.ShipTo(registry)
	default:
		a.opts.CentralLog.Discard()
	}
}

// resendStatus reports every instance again: a controller that asks for everything may have lost
// earlier reports.
func (a *Agent) resendStatus() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, in := range a.instances {
		in.resendStatus()
		a.outbox.add(id)
	}
	a.cacheJobs.ResendStatuses()
}

// pollWait returns how long the poll may wait; it varies, so that the polls of many nodes spread out.
func (p *poller) pollWait() time.Duration {
	w := p.agent.opts.PollWait
	return w - rand.N(w/10+1) //nolint:gosec // jitter need not be secret
}

// handleFailure decides whether a failed poll ends the agent.
func (p *poller) handleFailure(ctx context.Context, err error) error {
	switch farm.CodeOf(err) {
	case farm.CodeUnauthenticated:
		return nodeUnknownError(err)
	case farm.CodeConflict:
		if p.refusedSince.IsZero() {
			p.refusedSince = time.Now()
		}
		if time.Since(p.refusedSince) >= p.agent.opts.ConflictWait {
			return &farm.Error{
				Code: farm.CodeConflict, Message: "Another agent polls for this node: stop one of them", Err: err,
			}
		}
	}
	p.agent.log.Warn("poll of the controller failed", "error", err)
	p.needFull = true
	_ = p.backoff.Sleep(ctx)
	return nil
}

// newRequest returns what changed since the last acknowledged poll.
func (p *poller) newRequest(now time.Time) api.PollRequest {
	a := p.agent
	info := a.nodeInfo()
	req := api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: a.opts.Identity.NodeID, BootID: a.bootID,
		InfoHash: contentHash(info), HeldHash: p.ackedInventoryHash, Acks: p.acks, Host: a.opts.Identity.Host,
		Details: a.inventoryDetails(p.describeIDs),
	}
	if a.opts.Updater != nil {
		req.Update = a.opts.Updater.Status()
	}
	if a.opts.PulledBytes != nil {
		req.Pulled = a.opts.PulledBytes() - p.reportedPullBytes
	}
	if p.needFull || req.InfoHash != p.ackedInfoHash {
		req.Info = &info
	}
	if p.needFull || now.Sub(p.inventoryAt) >= inventoryInterval {
		held := a.inventory()
		if req.HeldHash = contentHash(held); p.needFull || req.HeldHash != p.ackedInventoryHash {
			req.Held, req.HasHeld = held, true
		}
	}
	if p.needFull || now.Sub(p.usageMeasuredAt) >= usageInterval {
		p.usageMeasuredAt = now
		usage, fills := a.measureUsage(now), a.diskFills(now)
		if p.needFull || p.ackedFills || len(fills) > 0 || isNewUsage(usage, p.ackedUsage) {
			req.Usage, req.Fills = &usage, fills
		}
	}
	return req
}
