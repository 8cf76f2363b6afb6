package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

// A version that is pulled lazily is in its final directory from the beginning, so that the paths of a VM's files stay
// the same. The directory of its process stands next to it until all of the version is here and no VM reads from the
// process any more.
const (
	lazySuffix = ".fill"        // of the directory of the process
	bookFile   = "booking.json" // in that directory: a booking
)

// booking is what the cache knows of a lazy pull.
type booking struct {
	Ref   Ref   `json:"ref"`
	Bytes int64 `json:"bytes"` // that it may use
}

// LazyMode defines which versions are pulled while VMs use them already.
type LazyMode string

// The modes.
const (
	LazyOff  LazyMode = "off"
	LazyOn   LazyMode = "on"
	LazyAuto LazyMode = "auto" // those whose pull would take long
)

const (
	// longPull is from which expected duration on the mode auto pulls lazily.
	longPull = 10 * time.Second
	// firstRate is the rate of pulls that is assumed before one was measured, in bytes a second: 1 Gbit/s.
	firstRate = 125e6
	// minMeasuredBytes is what a pull must have fetched for its rate to count.
	minMeasuredBytes = 32 << 20
	// minLazyBytes is what must be missing of a disk: less is fetched before a VM starts.
	minLazyBytes = 1 << 20
	listAgain    = 200 * time.Millisecond // between two attempts to list a version that VMs use, or to end its process
	maxListAgain = 10 * time.Second
	// endTimeout is how long the end of a process may take.
	endTimeout = 30 * time.Second
)

// LazyPulls are the options of pulls whose disks VMs read before they end.
type LazyPulls struct {
	Mode        LazyMode
	SocketDir   string
	SocketGroup int           // that VMs run in; -1: that of this process
	BootTime    time.Duration // see lazyfill.Order
	Program     lazyfill.Program
	// Order completes the order of a process with what it needs to reach the registry.
	Order func(Ref, *lazyfill.Order)
	// Token is lazyfill.SupervisorOptions.Token.
	Token func(ctx context.Context, ref Ref, last string, refused bool) (string, error)
	// Peers returns other nodes that have, or pull, a version, except those that have sent wrong bytes; nil: none is
	// used.
	Peers func(ctx context.Context, contentID string, excluded []string) ([]api.Peer, error)
	// Pulled is called with the bytes that a process has pulled, from the registry and from other nodes; nil: nothing.
	Pulled func(registry, peers int64)
}

// lazyPull is a version that VMs may use before all of it is here.
type lazyPull struct {
	ref        Ref
	supervisor *lazyfill.Supervisor
	startable  chan struct{} // closed when VMs may start
	ended      chan struct{} // closed when its process has ended, and its directory is gone
	isComplete bool          // the version is listed, and VMs are being moved to its files; the cache's mu guards it
	hasFailed  bool          // its VMs are being ended, and it is not continued; the cache's mu guards it
}

// PullsLazily reports whether versions are pulled lazily unless their templates say otherwise.
func (c *Cache) PullsLazily() bool {
	return c.opts.Lazy != nil && c.opts.Lazy.Mode != LazyOff && c.opts.Lazy.Mode != ""
}

// FetchStartable is Fetch, except that it may return while the version is still being pulled, once VMs can be started
// from it: see ServeDisks.
func (c *Cache) FetchStartable(ctx context.Context, ref Ref, progress func(float64)) error {
	if !contentIDPattern.MatchString(ref.ContentID) {
		return farm.Invalid("content_id", "%q is not a content ID", ref.ContentID)
	}
	for {
		f := c.joinPull(ctx, ref, &progress, c.pullStartable)
		if f == nil {
			return nil
		}
		startable, isEnding := f.startable, c.isEndingLazily(ref.ContentID)
		if isEnding {
			startable = nil
		}
		select {
		case <-startable:
			c.leavePull(f, &progress)
			return nil
		case <-f.done:
			if f.err != nil && (isEnding || c.isAbandoned(f)) {
				continue // it was already ending when this caller joined
			}
			return f.err
		case <-ctx.Done():
			c.leavePull(f, &progress)
			return context.Cause(ctx)
		}
	}
}

// pullStartable pulls a version, lazily where that is worth it.
func (c *Cache) pullStartable(ctx context.Context, f *sharedPull) error {
	return c.pull(ctx, f, func(need SpaceNeed) error {
		if c.opts.Lazy == nil || !c.isLazy(need) {
			return c.pullWhole(ctx, f, need)
		}
		if err := c.beginLazyPull(ctx, f, need); err != nil {
			return err
		}
		return c.runLazyPull(ctx, f, c.addLazyPull(f))
	})
}

// isLazy reports whether a version is pulled lazily.
func (c *Cache) isLazy(need SpaceNeed) bool {
	mode := c.opts.Lazy.Mode
	if need.Lazy != "" && mode != LazyOff {
		mode = need.Lazy
	}
	switch {
	case mode == LazyOff || need.LazyBytes < minLazyBytes:
		return false
	case mode == LazyOn:
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(need.LazyBytes) > c.pullRate*longPull.Seconds()
}

// recordRate records how fast a pull was.
func (c *Cache) recordRate(bytes int64, took time.Duration) {
	if bytes < minMeasuredBytes || took <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pullRate = (c.pullRate + float64(bytes)/took.Seconds()) / 2
}

// beginLazyPull books the space of a version and makes its directories. What an interrupted pull has fetched is used.
func (c *Cache) beginLazyPull(ctx context.Context, f *sharedPull, need SpaceNeed) error {
	dir := c.path(f.ref.ContentID)
	if err := c.evictFor(ctx, f, need.Bytes, dir+partSuffix); err != nil {
		return err
	}
	raw, err := json.Marshal(booking{f.ref, need.Bytes})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir+lazySuffix, 0o700); err != nil {
		return err
	}
	if err := datadir.WriteFile(filepath.Join(dir+lazySuffix, bookFile), raw); err != nil {
		return err
	}
	err = os.Rename(dir+partSuffix, dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Mkdir(dir, 0o700)
	}
	return err
}

// runLazyPull supervises the process of a version until all of the version is here, and lists it. VMs are moved to its
// files afterwards.
//
//nolint:contextcheck // the supervision of the process outlives the pull, and its end must not be canceled
func (c *Cache) runLazyPull(ctx context.Context, f *sharedPull, l *lazyPull) error {
	supervision, stop := context.WithCancel(c.life)
	supervised := make(chan struct{})
	c.runningPulls.Go(func() {
		defer close(supervised)
		l.supervisor.Run(supervision)
	})
	conclude := func() error {
		defer stop()
		if err := c.awaitNoVMs(l); err != nil {
			return err // the cache is closed, and the next agent continues
		}
		stop()
		<-supervised
		defer close(l.ended)
		for wait := retry.New(listAgain, maxListAgain); ; {
			err := c.endLazyPull(l.ref.ContentID)
			if err == nil || c.life.Err() != nil {
				return err
			}
			c.opts.Logger.Error("ending the process that filled a version failed; retrying", "content",
				l.ref.ContentID, "error", err)
			if wait.Sleep(c.life) != nil {
				return err // the next agent ends it
			}
		}
	}
	if err := c.followLazyPull(ctx, f, l); err != nil {
		c.mu.Lock()
		l.hasFailed = true
		c.mu.Unlock()
		return errors.Join(err, conclude())
	}
	c.runningPulls.Go(func() {
		if err := conclude(); err != nil && c.life.Err() == nil {
			c.opts.Logger.Error("ending the process that filled a version failed", "content", l.ref.ContentID,
				"error", err)
		}
	})
	return nil
}

// isEndingLazily reports whether the lazy pull of a version has failed, and waits for its VMs to end.
func (c *Cache) isEndingLazily(contentID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lazyPulls[contentID]
	return l != nil && l.hasFailed
}

// awaitLazyEnd waits until the process of an earlier lazy pull of a version has ended.
func (c *Cache) awaitLazyEnd(ctx context.Context, contentID string) error {
	c.mu.Lock()
	l := c.lazyPulls[contentID]
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// addLazyPull adds the lazy pull of a version, whose directories exist.
func (c *Cache) addLazyPull(f *sharedPull) *lazyPull {
	dir := c.path(f.ref.ContentID)
	o := lazyfill.Order{
		Registry: f.ref.Registry, TemplateID: f.ref.TemplateID, ContentID: f.ref.ContentID, Dir: dir,
		SocketDir: c.opts.Lazy.SocketDir, SocketGroup: c.opts.Lazy.SocketGroup, MinBytes: minLazyBytes,
		BootTime: c.opts.Lazy.BootTime,
	}
	c.opts.Lazy.Order(f.ref, &o)
	l := &lazyPull{ref: f.ref, startable: f.startable, ended: make(chan struct{})}
	var sources func(context.Context, []string) ([]api.Peer, error)
	if c.opts.Lazy.Peers != nil {
		sources = func(ctx context.Context, excluded []string) ([]api.Peer, error) {
			return c.opts.Lazy.Peers(ctx, f.ref.ContentID, excluded)
		}
	}
	l.supervisor = lazyfill.NewSupervisor(lazyfill.SupervisorOptions{
		Dir: dir + lazySuffix, Order: o, Program: c.opts.Lazy.Program, Logger: c.opts.Logger, Peers: sources,
		Token: func(ctx context.Context, last string, refused bool) (string, error) {
			return c.opts.Lazy.Token(ctx, f.ref, last, refused)
		},
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lazyPulls[f.ref.ContentID] = l
	f.lazy = true
	return l
}

// followLazyPull waits until all of a version is here, and lists it. While VMs use it, what is here is not given up
// because it could not be listed.
func (c *Cache) followLazyPull(ctx context.Context, f *sharedPull, l *lazyPull) error {
	begun, isOpen, isCounted := time.Now(), false, false
	for wait := retry.New(listAgain, maxListAgain); ; {
		state, err := l.supervisor.Next(ctx)
		if err != nil {
			return err
		}
		c.reportProgress(f, state.Progress)
		c.releaseUnpinned(ctx, l, state)
		switch {
		case state.Phase == lazyfill.Failed:
			return state.Failure()
		case state.Phase == lazyfill.Complete:
			if !isCounted {
				isCounted = true
				c.recordRate(state.Fetched+state.PeerBytes, time.Since(begun))
				if c.opts.Lazy.Pulled != nil {
					c.opts.Lazy.Pulled(state.Fetched, state.PeerBytes)
				}
			}
			err := c.listLazyPulled(l, state)
			if err == nil || len(state.VMs) == 0 {
				return err
			}
			c.opts.Logger.Error("listing a version of which all is here failed; its VMs cannot be saved; retrying",
				"content", l.ref.ContentID, "error", err)
			if err := wait.Sleep(ctx); err != nil {
				return err
			}
		case state.Phase == lazyfill.Serving && !isOpen:
			isOpen = true
			close(l.startable)
		}
	}
}

// listLazyPulled lists a version of which all is here.
func (c *Cache) listLazyPulled(l *lazyPull, state lazyfill.State) error {
	files := map[string]File{}
	for name, file := range state.Files {
		files[name] = File{ChainID: file.ChainID, Format: file.Format}
	}
	if err := c.listPulled(l.ref, files, c.path(l.ref.ContentID)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.isComplete = true
	return nil
}

// awaitNoVMs waits until no VM reads from the process of a version any more: they were moved to its files, or ended.
func (c *Cache) awaitNoVMs(l *lazyPull) error {
	for {
		state, err := l.supervisor.Next(c.life)
		if err != nil {
			return err
		}
		c.releaseUnpinned(c.life, l, state)
		if len(state.VMs) == 0 {
			return nil
		}
	}
}

// releaseUnpinned closes the sockets of VMs that no longer use a version.
func (c *Cache) releaseUnpinned(ctx context.Context, l *lazyPull, state lazyfill.State) {
	for vm := range state.VMs {
		c.mu.Lock()
		_, isUsed := c.pins[l.ref.ContentID][vm]
		_, isOrphan := c.pins[l.ref.ContentID][OrphanHolder(vm)]
		wasRemoved := l.isComplete && c.entries[l.ref.ContentID] == nil // its holders use the next pull
		c.mu.Unlock()
		if (isUsed || isOrphan) && !wasRemoved {
			continue
		}
		if err := l.supervisor.Release(ctx, vm); err != nil && ctx.Err() == nil {
			c.opts.Logger.Warn("closing the sockets of a VM failed; retrying", "vm", vm, "error", err)
		}
	}
}

// OrphanHolder is the holder of a version for a VM without an instance.
func OrphanHolder(vm string) string { return "vm:" + vm }

// endLazyPull ends the process of a version. A version that is not complete becomes an interrupted pull.
func (c *Cache) endLazyPull(contentID string) error {
	dir := c.path(contentID)
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := lazyfill.EndProcess(ctx, dir+lazySuffix); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[contentID] == nil { // what is here is an interrupted pull
		if err := os.Rename(dir, dir+partSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(dir + lazySuffix); err != nil {
		return err
	}
	delete(c.lazyPulls, contentID)
	return nil
}

// IsStartable reports whether VMs can be started from a version: it is cached, or is pulled lazily and far enough.
func (c *Cache) IsStartable(contentID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[contentID] != nil || c.startableLocked(contentID) != nil
}

// startableLocked returns the lazy pull of a version if VMs can be started from it; nil otherwise.
func (c *Cache) startableLocked(contentID string) *lazyPull {
	l := c.lazyPulls[contentID]
	if l == nil || l.hasFailed {
		return nil
	}
	select {
	case <-l.startable:
		return l
	default:
		return nil
	}
}

// LazyState is how far the lazy pull of a version is.
type LazyState struct {
	ContentID  string
	IsComplete bool // the version is listed: VMs can be moved to its files
	lazyfill.State
}

// LazyPulls returns the lazy pulls that run, ordered by content ID.
func (c *Cache) LazyPulls() []LazyState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]LazyState, 0, len(c.lazyPulls))
	for id, l := range c.lazyPulls {
		out = append(out, LazyState{ContentID: id, IsComplete: l.isComplete, State: l.supervisor.State()})
	}
	slices.SortFunc(out, func(a, b LazyState) int { return strings.Compare(a.ContentID, b.ContentID) })
	return out
}

// ResumeLazyPulls continues the lazy pulls of an earlier agent. The versions that VMs use are pinned before. It is
// called once.
func (c *Cache) ResumeLazyPulls() error {
	list, err := os.ReadDir(c.opts.Dir)
	if err != nil {
		return fmt.Errorf("resume lazy pulls: %w", err)
	}
	for _, item := range list {
		id, isLazy := strings.CutSuffix(item.Name(), lazySuffix)
		if !isLazy || !contentIDPattern.MatchString(id) {
			continue
		}
		if err := c.resumeLazyPull(id); err != nil {
			return fmt.Errorf("resume the lazy pull of version %s: %w", id, err)
		}
	}
	return nil
}

func (c *Cache) resumeLazyPull(id string) error {
	var b booking
	raw, err := readSmallFile(filepath.Join(c.path(id)+lazySuffix, bookFile))
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	c.mu.Lock()
	isUsed := len(c.pins[id]) > 0
	c.mu.Unlock()
	if err != nil || b.Ref.ContentID != id || c.opts.Lazy == nil || !isUsed {
		return c.endLazyPull(id)
	}
	var l *lazyPull
	f := newPull(c.life, b.Ref, func(ctx context.Context, f *sharedPull) error {
		if err := c.evictFor(ctx, f, b.Bytes, c.path(id)); err != nil {
			c.opts.Logger.Warn("a lazy pull continues without the space that it may need", "content", id, "error", err)
		}
		return c.runLazyPull(ctx, f, l)
	})
	l = c.addLazyPull(f) // from now on LazyPulls has it
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startPullLocked(f)
	return nil
}
