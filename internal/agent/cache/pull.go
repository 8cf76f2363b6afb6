package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// sharedPull is one pull of one version, shared by all callers that wait for it. It ends early when
// the last of them has left.
type sharedPull struct {
	ref         Ref
	makePresent func(context.Context, *sharedPull) error // makes the version present
	ctx         context.Context
	cancel      context.CancelFunc
	startable   chan struct{} // closed when VMs may use the version, before all of it is here
	done        chan struct{} // closed at the end; err is set before
	err         error
	partial     atomic.Pointer[transfer.Partial] // what other nodes may read; nil: nothing yet

	// The cache's mu guards the fields below.
	waiters        map[*func(float64)]struct{}
	unwrittenBytes int64 // bytes that it may still write
	neededBytes    int64 // bytes that it had to write at its start
	progress       float64
	abandoned      bool // it is not wanted any more: it ends and must not be joined
	lazy           bool // VMs use the version before it is complete: it is wanted while that is pinned
}

// Fetch makes a version present: it returns immediately when the version is cached, even if the
// registry is unavailable, and otherwise joins or starts its pull. progress is called with 0..1
// until Fetch returns. The caller pins the version before, otherwise it may be removed again.
func (c *Cache) Fetch(ctx context.Context, ref Ref, progress func(float64)) error {
	if !contentIDPattern.MatchString(ref.ContentID) {
		return farm.Invalid("content_id", "%q is not a content ID", ref.ContentID)
	}
	for {
		f := c.joinPull(ctx, ref, &progress, c.pullVersion)
		if f == nil {
			return nil
		}
		select {
		case <-f.done:
			if f.err != nil && c.isAbandoned(f) {
				continue // it was already ending when this caller joined
			}
			return f.err
		case <-ctx.Done():
			c.leavePull(f, &progress)
			return context.Cause(ctx)
		}
	}
}

func (c *Cache) isAbandoned(f *sharedPull) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.abandoned
}

// joinPull returns the pull to wait for, or nil when the version is cached. Without one it
// starts a new one, which calls bring.
func (c *Cache) joinPull(
	ctx context.Context, ref Ref, progress *func(float64), bring func(context.Context, *sharedPull) error,
) *sharedPull {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[ref.ContentID] != nil {
		c.touchLocked(ref.ContentID)
		return nil
	}
	if f := c.pulls[ref.ContentID]; f != nil {
		if !f.abandoned {
			f.waiters[progress] = struct{}{}
		}
		return f
	}
	f := newPull(ctx, ref, bring)
	f.waiters[progress] = struct{}{}
	c.startPullLocked(f)
	return f
}

// newPull returns a pull that belongs to all its waiters, so that one of them does not end it by its context.
func newPull(ctx context.Context, ref Ref, bring func(context.Context, *sharedPull) error) *sharedPull {
	f := &sharedPull{
		ref: ref, makePresent: bring, startable: make(chan struct{}), done: make(chan struct{}),
		waiters: map[*func(float64)]struct{}{},
	}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return f
}

func (c *Cache) startPullLocked(f *sharedPull) {
	c.pulls[f.ref.ContentID] = f
	c.runningPulls.Go(func() { c.runPull(f.ctx, f) })
}

func (c *Cache) leavePull(f *sharedPull, progress *func(float64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(f.waiters, progress)
	c.abandonUnwantedLocked(f)
}

// abandonUnwantedLocked ends a pull that nothing waits for, and that no VM uses.
func (c *Cache) abandonUnwantedLocked(f *sharedPull) {
	if len(f.waiters) > 0 || f.lazy && len(c.pins[f.ref.ContentID]) > 0 {
		return
	}
	f.abandoned = true
	f.cancel()
}

func (c *Cache) runPull(ctx context.Context, f *sharedPull) {
	err := f.makePresent(ctx, f)
	c.mu.Lock()
	defer c.mu.Unlock()
	f.cancel()
	f.err = err
	delete(c.pulls, f.ref.ContentID)
	close(f.done)
}

// pullVersion pulls all of a version.
func (c *Cache) pullVersion(ctx context.Context, f *sharedPull) error {
	return c.pull(ctx, f, func(need SpaceNeed) error { return c.pullWhole(ctx, f, need) })
}

// pull asks for the space that a version needs, and has do pull it.
func (c *Cache) pull(ctx context.Context, f *sharedPull, do func(SpaceNeed) error) (err error) {
	defer func() {
		if !c.isAbandoned(f) {
			c.metrics.pulls.Observe(err)
		}
		prefix := fmt.Sprintf("pull %s %s: ", f.ref.Name, f.ref.Tag)
		if err != nil && !strings.HasPrefix(err.Error(), prefix) { // the transfer adds the same one
			err = fmt.Errorf("%s%w", prefix, err)
		}
	}()
	if err := c.awaitLazyEnd(ctx, f.ref.ContentID); err != nil {
		return err
	}
	need, err := c.opts.Source.SpaceNeed(ctx, f.ref, c.localContent())
	if err != nil {
		return err
	}
	return do(need)
}

// pullWhole pulls a version that no VM uses before it is complete.
func (c *Cache) pullWhole(ctx context.Context, f *sharedPull, need SpaceNeed) error {
	from, release := c.pinSources(f.ref, need.ChainIDs)
	defer release()
	part := c.path(f.ref.ContentID) + partSuffix
	if err := c.evictFor(ctx, f, need.Bytes, part); err != nil {
		return err
	}
	if err := os.MkdirAll(part, 0o700); err != nil {
		return err
	}
	begun := time.Now()
	built, err := c.opts.Source.Fetch(ctx, Pull{
		Ref: f.ref, DestDir: part, Local: from.localContent, Progress: func(p float64) { c.reportProgress(f, p) },
		OnPartial: f.partial.Store,
	})
	if err != nil {
		return err
	}
	files, err := from.describeFiles(built)
	if err == nil {
		err = c.listPulled(f.ref, files, part)
	}
	if err != nil {
		return err
	}
	c.recordRate(need.LazyBytes, time.Since(begun))
	c.opts.Logger.Info("template pulled", "template", f.ref.Name, "tag", f.ref.Tag, "content", f.ref.ContentID)
	return nil
}

// reportProgress reports to all waiters. It holds mu during the calls, so that no waiter is called after
// it has left: waiters only store the number.
func (c *Cache) reportProgress(f *sharedPull, at float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.progress = min(1, max(at, f.progress))
	f.unwrittenBytes = int64(float64(f.neededBytes) * (1 - f.progress))
	for w := range f.waiters {
		if *w != nil {
			(*w)(f.progress)
		}
	}
}

// Remove removes one version; it is refused while the version is in use.
func (c *Cache) Remove(contentID string) error {
	c.mu.Lock()
	if c.entries[contentID] == nil {
		c.mu.Unlock()
		return farm.NotFound()
	}
	pinned, above := len(c.pins[contentID]) > 0, c.dependentLocked(contentID)
	c.mu.Unlock()
	switch {
	case pinned:
		return farm.Refused("Template version %s is in use by a VM", contentID)
	case above != "":
		return farm.Refused("Template version %s is in use: version %s was made from it and uses its disk", contentID,
			above)
	}
	return c.evict(contentID)
}

// errPinned reports that a version was pinned before it could be removed.
var errPinned = errors.New("the cached version is in use")

// evict removes a version that is not in use. It is unlisted and renamed under mu; its files are
// removed without the lock.
func (c *Cache) evict(contentID string) error {
	gone := c.path(contentID) + goneSuffix
	c.mu.Lock()
	if c.isInUseLocked(contentID) {
		c.mu.Unlock()
		return errPinned
	}
	err := os.Rename(c.path(contentID), gone)
	if err == nil {
		delete(c.entries, contentID)
		c.entryChanges++
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("remove cached version: %w", err)
	}
	c.metrics.evicted.Inc()
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove cached version: %w", err)
	}
	c.opts.Logger.Info("cached version removed", "content", contentID)
	return nil
}
