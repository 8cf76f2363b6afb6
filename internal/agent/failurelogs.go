package agent

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	maxFaults  = 32               // logs that wait to be sent
	maxFault   = 1 << 20          // bytes of one log
	faultLife  = 10 * time.Minute // how long the agent tries to send one
	faultPause = 5 * time.Second  // before the first retry
)

// What failed when it was not a task, as it appears in the name of the log.
const (
	faultStart = "start"
	faultRun   = "run"
)

// failureLog is the log of a failed VM, waiting to be sent to the registry.
type failureLog struct {
	registry string
	name     string // of the file
	text     []byte
}

// queueFailureLog sends the log of a failed start, run or task to the registry, where it outlives the
// node's copy.
func (a *Agent) queueFailureLog(in *instance, what, reason string) {
	a.mu.Lock()
	discreet := a.keepsLogs
	a.mu.Unlock()
	if a.opts.Uploads == nil || discreet || in.order.Start == nil {
		return
	}
	now := time.Now().UTC()
	f := failureLog{
		registry: a.registryAt(in.order.Start.Registry),
		name:     fmt.Sprintf("logs/%s/%s-%s.log", in.id, now.Format("20060102T150405.000Z"), what),
		text:     a.failureLogText(in, now, what+" failed: "+reason),
	}
	select {
	case a.faults <- f:
	default:
		a.metrics.faults.Failed.Inc()
		a.log.Warn("failure log not uploaded: upload queue full; it stays on the node", "instance", in.id)
	}
}

// failureLogText returns the log of a failure. A guest may have written parts of it.
func (a *Agent) failureLogText(in *instance, now time.Time, what string) []byte {
	o := in.order.Start
	var text bytes.Buffer
	fmt.Fprintf(&text, "Instance %s on node %s, %s\n", in.id, a.opts.Identity.NodeID, now.Format(time.RFC3339))
	fmt.Fprintf(&text, "Template %s (%s), tag %s, version %d\n%s\n", o.TemplateName, o.TemplateID, o.Tag, o.Version,
		what)
	keeper, keeps := a.opts.Driver.(hv.FailureLogger)
	for _, id := range []string{in.id, in.id + checkSuffix} {
		if !keeps {
			break
		}
		kept, err := keeper.FailureLog(id)
		if err != nil {
			fmt.Fprintf(&text, "\nThe hypervisor's log cannot be read: %v\n", err)
		}
		if len(kept) > 0 {
			fmt.Fprintf(&text, "\n--- log of %s ---\n%s", id, kept)
		}
	}
	return []byte(logs.Redact(string(text.Bytes()[:min(text.Len(), maxFault)])))
}

// failureLogLoop sends the logs of failed VMs.
func (a *Agent) failureLogLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-a.faults:
			err := a.sendFailureLog(ctx, f)
			a.metrics.faults.Observe(err)
			if err != nil && ctx.Err() == nil {
				a.log.Warn("uploading a failure log failed; it stays on the node", "file", f.name, "error", err)
			}
		}
	}
}

// sendFailureLog sends one log, with retries for faultLife.
func (a *Agent) sendFailureLog(ctx context.Context, f failureLog) error {
	ctx, cancel := context.WithTimeout(ctx, faultLife)
	defer cancel()
	pause := retry.New(faultPause, faultLife)
	for {
		err := a.opts.Uploads.Upload(ctx, f.registry, f.name, f.text)
		if err == nil || pause.Sleep(ctx) != nil {
			return err
		}
	}
}
