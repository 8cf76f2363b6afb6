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
	maxFailureLogs        = 32               // logs that wait to be sent
	maxFailureLogBytes    = 1 << 20          // bytes of one log
	failureLogSendTimeout = 10 * time.Minute // how long the agent tries to send one
	failureLogRetryDelay  = 5 * time.Second  // before the first retry
)

// What failed when it was not a task, as it appears in the name of the log.
const (
	failedStart = "start"
	failedRun   = "run"
)

// failureLog is the log of a failed VM, waiting to be sent to the registry.
type failureLog struct {
	registryAddress string
	fileName        string // of the file
	text            []byte
}

// queueFailureLog sends the log of a failed start, run or task to the registry, where it outlives the
// node's copy.
func (a *Agent) queueFailureLog(in *instance, what, reason string) {
	a.mu.Lock()
	discreet := a.localLogsOnly
	a.mu.Unlock()
	if a.opts.LogUploader == nil || discreet || in.order.Start == nil {
		return
	}
	now := time.Now().UTC()
	f := failureLog{
		registryAddress: a.registryAddress(in.order.Start.Registry),
		fileName:        fmt.Sprintf("logs/%s/%s-%s.log", in.id, now.Format("20060102T150405.000Z"), what),
		text:            a.failureLogText(in, now, what+" failed: "+reason),
	}
	select {
	case a.failureLogs <- f:
	default:
		a.metrics.failureLogs.Failed.Inc()
		a.log.Warn("failure log not uploaded: upload queue full; it stays on the node", "instance_id", in.id)
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
	for _, id := range []string{in.id, in.id + testVMSuffix} {
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
	return []byte(logs.Redact(string(text.Bytes()[:min(text.Len(), maxFailureLogBytes)])))
}

// failureLogLoop sends the logs of failed VMs.
func (a *Agent) failureLogLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-a.failureLogs:
			err := a.sendFailureLog(ctx, f)
			a.metrics.failureLogs.Observe(err)
			if err != nil && ctx.Err() == nil {
				a.log.Warn("uploading a failure log failed; it stays on the node", "file", f.fileName, "error", err)
			}
		}
	}
}

// sendFailureLog sends one log, with retries for failureLogSendTimeout.
func (a *Agent) sendFailureLog(ctx context.Context, f failureLog) error {
	ctx, cancel := context.WithTimeout(ctx, failureLogSendTimeout)
	defer cancel()
	pause := retry.New(failureLogRetryDelay, failureLogSendTimeout)
	for {
		err := a.opts.LogUploader.Upload(ctx, f.registryAddress, f.fileName, f.text)
		if err == nil || pause.Sleep(ctx) != nil {
			return err
		}
	}
}
