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

// pull pulls a version.
func (r *Runner) pull(ctx context.Context, e *job) {
	p := &prefetch{r: r, e: e, moved: time.Now()}
	pause := retry.New(retryFirst, retryMost)
	for {
		err := p.once(ctx)
		switch {
		case ctx.Err() != nil: // dropped, or the agent ends
			return
		case err == nil:
			r.o.Logger.Info("distribution done", "cache_job", e.order.ID, "template", e.order.TemplateName, "tag",
				e.order.Tag)
			r.end(e, func(e *job) { e.stage, e.done, e.message = api.CacheJobDone, 1, "" })
			return
		case err == errYield: //nolint:errorlint // the sentinel itself, returned by once
			pause.Reset()
			continue
		case !transfer.IsTemporary(err) || p.stuck() > patience:
			r.fail(e, err)
			return
		}
		r.o.Logger.Warn("pull for a distribution failed; retrying", "cache_job", e.order.ID, "error", err)
		p.wait(err)
		if pause.Sleep(ctx) != nil {
			return
		}
	}
}

// prefetch is the pull of one version, over all its attempts.
type prefetch struct {
	r     *Runner
	e     *job
	moved time.Time // when it last progressed; extended by the time in which it waited
}

// once tries the pull when it has a slot. It returns errYield when an instance needed to pull.
func (p *prefetch) once(ctx context.Context) error {
	asked := time.Now()
	hurry, err := p.r.waitForSlot(ctx)
	if err != nil {
		return err
	}
	defer func() { <-p.r.turns }()
	p.r.mu.Lock()
	p.moved = p.moved.Add(time.Since(asked))
	p.e.stage, p.e.message = api.CacheJobWorking, ""
	p.r.mu.Unlock()
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-hurry:
			cancel(errYield)
		case <-over:
		}
	}()
	o := p.e.order
	err = p.r.o.Templates.Fetch(life, cache.Ref{
		Registry: p.r.o.Registry(o.Registry), TemplateID: o.TemplateID, Name: o.TemplateName, Tag: o.Tag,
		Version: o.Version, ContentID: o.ContentID,
	}, p.progress)
	if err != nil && context.Cause(life) == errYield { //nolint:errorlint // the cause that was set above
		return errYield
	}
	return err
}

// waitForSlot waits until no instance pulls and a slot is free. hurry is closed when an instance pulls
// again; the caller releases the slot.
func (r *Runner) waitForSlot(ctx context.Context) (hurry <-chan struct{}, err error) {
	for {
		r.mu.Lock()
		calm := r.idle
		r.mu.Unlock()
		select {
		case <-calm:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case r.turns <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r.mu.Lock()
		hurry, free := r.hurry, r.starts == 0
		r.mu.Unlock()
		if free {
			return hurry, nil
		}
		<-r.turns
	}
}

// progress records the progress of the pull. The cache calls it with its own lock held.
func (p *prefetch) progress(at float64) {
	r, e, now := p.r, p.e, time.Now()
	r.mu.Lock()
	if at > e.done {
		e.done, p.moved = at, now
	}
	due := e.done >= e.toldOf+tellStep && now.Sub(e.toldAt) >= tellEvery
	if due {
		e.toldOf, e.toldAt = e.done, now
	}
	r.mu.Unlock()
	if due {
		r.markChanged(e.order.ID)
	}
}

// stuck returns for how long the pull has made no progress.
func (p *prefetch) stuck() time.Duration {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	return time.Since(p.moved)
}

// wait records why the pull is retried.
func (p *prefetch) wait(why error) {
	p.r.mu.Lock()
	p.e.stage, p.e.message = api.CacheJobAccepted, why.Error()
	p.r.mu.Unlock()
}
