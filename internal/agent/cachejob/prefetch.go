package cachejob

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	// patience is how long a pull without progress is retried, without the time in which it waited
	// for others.
	patience   = 10 * time.Minute
	retryFirst = 200 * time.Millisecond
	retryMost  = 30 * time.Second

	// tellStep and the interval after it limit progress reports: many nodes pull at the same time,
	// and each report is a call.
	tellStep  = 0.01
	tellEvery = 2 * time.Second
)

// pullVersion pulls a version.
func (r *Runner) pullVersion(ctx context.Context, e *job) {
	p := &prefetch{runner: r, job: e, progressedAt: time.Now()}
	pause := retry.New(retryFirst, retryMost)
	for {
		err := p.pullOnce(ctx)
		switch {
		case ctx.Err() != nil: // dropped, or the agent ends
			return
		case err == nil:
			r.opts.Logger.Info("distribution done", "cache_job", e.order.ID, "template", e.order.TemplateName, "tag",
				e.order.Tag)
			r.endJob(e, func(e *job) { e.stage, e.pullProgress, e.message = api.CacheJobDone, 1, "" })
			return
		case err == errInstancePulls: //nolint:errorlint // the sentinel itself, returned by once
			pause.Reset()
			continue
		case !transfer.IsTemporary(err) || p.sinceProgress() > patience:
			r.failJob(e, err)
			return
		}
		r.opts.Logger.Warn("pull for a distribution failed; retrying", "cache_job", e.order.ID, "error", err)
		p.recordWait(err)
		if pause.Sleep(ctx) != nil {
			return
		}
	}
}

// prefetch is the pull of one version, over all its attempts.
type prefetch struct {
	runner       *Runner
	job          *job
	progressedAt time.Time // when it last progressed; extended by the time in which it waited
}

// pullOnce tries the pull when it has a slot. It returns errInstancePulls when an instance needed to pull.
func (p *prefetch) pullOnce(ctx context.Context) error {
	asked := time.Now()
	hurry, err := p.runner.waitForSlot(ctx)
	if err != nil {
		return err
	}
	defer func() { <-p.runner.pullSlots }()
	p.runner.mu.Lock()
	p.progressedAt = p.progressedAt.Add(time.Since(asked))
	p.job.stage, p.job.message = api.CacheJobWorking, ""
	p.runner.mu.Unlock()
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-hurry:
			cancel(errInstancePulls)
		case <-over:
		}
	}()
	o := p.job.order
	err = p.runner.opts.Templates.Fetch(life, cache.Ref{
		Registry: p.runner.opts.RegistryAddress(o.Registry), TemplateID: o.TemplateID, Name: o.TemplateName, Tag: o.Tag,
		Version: o.Version, ContentID: o.ContentID,
	}, p.recordProgress)
	if err != nil && context.Cause(life) == errInstancePulls { //nolint:errorlint // the cause that was set above
		return errInstancePulls
	}
	return err
}

// waitForSlot waits until no instance pulls and a slot is free. hurry is closed when an instance pulls
// again; the caller releases the slot.
func (r *Runner) waitForSlot(ctx context.Context) (hurry <-chan struct{}, err error) {
	for {
		r.mu.Lock()
		calm := r.noInstancePulling
		r.mu.Unlock()
		select {
		case <-calm:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case r.pullSlots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r.mu.Lock()
		hurry, free := r.instancePulling, r.pullingInstances == 0
		r.mu.Unlock()
		if free {
			return hurry, nil
		}
		<-r.pullSlots
	}
}

// recordProgress records the progress of the pull. The cache calls it with its own lock held.
func (p *prefetch) recordProgress(at float64) {
	r, e, now := p.runner, p.job, time.Now()
	r.mu.Lock()
	if at > e.pullProgress {
		e.pullProgress, p.progressedAt = at, now
	}
	due := e.pullProgress >= e.reportMarkedProgress+tellStep && now.Sub(e.reportMarkedAt) >= tellEvery
	if due {
		e.reportMarkedProgress, e.reportMarkedAt = e.pullProgress, now
	}
	r.mu.Unlock()
	if due {
		r.markChanged(e.order.ID)
	}
}

// sinceProgress returns for how long the pull has made no progress.
func (p *prefetch) sinceProgress() time.Duration {
	p.runner.mu.Lock()
	defer p.runner.mu.Unlock()
	return time.Since(p.progressedAt)
}

// recordWait reports why the pull is retried.
func (p *prefetch) recordWait(why error) {
	p.runner.mu.Lock()
	p.job.stage, p.job.message = api.CacheJobAccepted, why.Error()
	p.runner.mu.Unlock()
	p.runner.markChanged(p.job.order.ID)
}
