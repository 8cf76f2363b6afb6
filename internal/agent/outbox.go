package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

// The limits of one report: statuses, and bytes of script output in them. A single status may have
// more, see maxReportedOutput.
const (
	maxStatuses          = 200
	maxReportOutputBytes = 1 << 20 // JSON may use six bytes for one, and a controller reads 8 MiB
)

// Delays after calls of the controller that failed.
const (
	callRetryFirst = 250 * time.Millisecond
	callRetryMax   = 5 * time.Second
)

// outbox is the set of instances whose last status the controller has not acknowledged. The agent
// always sends their current status, so no statuses queue up.
type outbox struct {
	mu      sync.Mutex
	unacked map[string]struct{}
	wake    chan struct{} // has a value when open got one
}

func newOutbox() outbox {
	return outbox{unacked: map[string]struct{}{}, wake: make(chan struct{}, 1)}
}

func (o *outbox) add(id string) {
	o.mu.Lock()
	o.unacked[id] = struct{}{}
	o.mu.Unlock()
	o.signal()
}

// signal wakes the report loop.
func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// takeIDs returns some open IDs, sorted, and closes them: a later change opens its ID again.
func (o *outbox) takeIDs() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]string, 0, len(o.unacked))
	for id := range o.unacked {
		list = append(list, id)
	}
	slices.Sort(list)
	list = list[:min(len(list), maxStatuses)]
	for _, id := range list {
		delete(o.unacked, id)
	}
	return list
}

// reportLoop sends statuses immediately; changes during a report are part of the next one. A status
// is sent until the controller acknowledges it.
func (a *Agent) reportLoop(ctx context.Context) error {
	pause := retry.New(callRetryFirst, callRetryMax)
	for seq := int64(1); ; seq++ {
		statuses, cacheJobs := a.statuses(), a.cacheJobs.Statuses()
		if len(statuses)+len(cacheJobs) == 0 {
			select {
			case <-a.outbox.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		_, err := a.opts.Controller.Report(ctx, api.Report{
			Protocol: api.LinkProtocol, NodeID: a.opts.Identity.NodeID, BootID: a.bootID,
			Seq: seq, Statuses: statuses, CacheJobs: cacheJobs,
		})
		if ctx.Err() == nil {
			a.metrics.reports.Observe(err)
		}
		switch {
		case err == nil:
			pause.Reset()
			a.recordAcks(statuses)
			a.cacheJobs.MarkReceived(cacheJobs)
		case ctx.Err() != nil:
			return nil
		default:
			// Also when the node is unknown: the next poll reports whether it was removed.
			a.log.Warn("report to the controller failed; retrying", "statuses", len(statuses), "cache_jobs",
				len(cacheJobs),
				"error", err)
			for _, s := range statuses {
				a.outbox.add(s.InstanceID)
			}
			a.cacheJobs.MarkUnsent(cacheJobs)
			_ = pause.Sleep(ctx) // the next report ends with it
		}
	}
}

// statuses returns what is to be reported now; what does not fit stays open.
func (a *Agent) statuses() []api.InstanceStatus {
	var list []api.InstanceStatus
	bytes := 0
	for _, id := range a.outbox.takeIDs() {
		in := a.instance(id)
		if in == nil {
			continue
		}
		status, tell := in.status()
		if !tell {
			continue
		}
		more := outputLength(status)
		if len(list) > 0 && bytes+more > maxReportOutputBytes {
			a.outbox.add(id)
			continue
		}
		list = append(list, status)
		bytes += more
	}
	return list
}

// outputLength is the length of the script output in a status.
func outputLength(s api.InstanceStatus) int {
	bytes := 0
	if s.Script != nil {
		bytes += len(s.Script.Stdout) + len(s.Script.Stderr)
	}
	if s.ScriptOutput != nil {
		bytes += len(s.ScriptOutput.Stdout) + len(s.ScriptOutput.Stderr)
	}
	if s.Task != nil && s.Task.Script != nil {
		bytes += len(s.Task.Script.Stdout) + len(s.Task.Script.Stderr)
	}
	return bytes
}

// recordAcks records what the controller received; workers that only wait for that continue.
func (a *Agent) recordAcks(sent []api.InstanceStatus) {
	for _, s := range sent {
		in := a.instance(s.InstanceID)
		if in == nil || !in.recordAck(s) {
			continue
		}
		if err := a.storeAndReport(in, func(*journal.State) {}); err != nil && !errors.Is(err, errEnding) {
			a.log.Warn("storing a task report failed; the next change reports it", "instance_id", in.id, "error", err)
		}
	}
}

// nodeUnknownError explains a credential that the controller does not know.
func nodeUnknownError(err error) error {
	return &farm.Error{
		Code: farm.CodeUnauthenticated, Err: err,
		Message: "The controller does not know this node, or not by this credential; VMs run on without it. Join " +
			"again with: buildnode join",
	}
}
