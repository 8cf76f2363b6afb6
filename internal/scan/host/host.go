package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
	"github.com/buildyard/buildyard/internal/scan/glob"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Errors that callers receive; match them with errors.Is.
var (
	ErrBusy        = errors.New("a full scan is running: wait until it ends, or stop it")
	ErrInvalidPath = errors.New("the path cannot be scanned")
	ErrClosed      = errors.New("the host scanner is closed")
	ErrDamaged     = inventorydb.ErrDamaged // the inventory is damaged; it is rebuilt
	ErrInUse       = inventorydb.ErrInUse   // another process uses the inventory
)

// errRebuild is the cause with which scans end when the inventory is damaged.
var errRebuild = errors.New("the inventory is being rebuilt")

// Host is the scanner of this machine. All methods are safe for concurrent use. Those that change
// the state wait until Run has begun.
type Host struct {
	opts       Options
	log        *slog.Logger
	inventory  *inventorydb.DB
	nameFilter *catalog.NameFilter
	ruleFilter atomic.Pointer[match.RuleFilter]
	excluded   *glob.Set // directories that are neither scanned nor watched; nil: none
	counters   workCounters
	lastStart  atomic.Pointer[time.Time] // last start of a scan

	hungMounts hungMounts // file systems that do not answer

	runCtx     context.Context // of everything that runs
	cancelRun  context.CancelFunc
	goroutines sync.WaitGroup

	closeOnce func() error // waits for all goroutines, once

	resumed chan struct{} // closed when the scanner has resumed the state of the last process

	damageReports chan error // damage of the inventory, for Run

	matchMu    sync.Mutex  // held by the goroutine that matches packages against the database
	matchAgain atomic.Bool // another caller requested a match during this one
	matching   atomic.Bool

	transitionMu sync.Mutex // held while a caller changes the state, however long that takes

	mu            sync.Mutex // guards the fields below
	state         State
	saved         savedState
	missedChanges bool          // no process watched for a while
	unreadUnsaved bool          // saved.Unread is newer than its file
	fullScan      *fullScan     // nil when none runs
	realTime      *realTimeScan // nil without real-time scanning
	warnings      []string

	updateErr   error // of the last check for a newer database
	databaseErr error // why the database cannot be read
	nextUpdate  time.Time
}

// workCounters counts the scanner's work.
type workCounters struct {
	fullScans, changes, rescans, filesRead, packages, findings, matched, updates, failures atomic.Uint64
}

// Open opens the inventory. A damaged one is moved aside, the status reports it, and Run begins
// with a full scan.
func Open(o Options) (*Host, error) {
	o.Database.UpdateInterval = cmp.Or(o.Database.UpdateInterval, defaultUpdateInterval)
	o.MaxPackages, o.MaxBytes = cmp.Or(o.MaxPackages, defaultMaxPackages), cmp.Or(o.MaxBytes, defaultMaxInventoryBytes)
	o.debounce = cmp.Or(o.debounce, defaultDebounce)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.NewWatcher == nil {
		o.NewWatcher = newMachineWatcher
	}
	if o.InventoryPath == "" {
		return nil, errors.New("the path of the package inventory is required")
	}
	o.Exclude = slices.Clone(o.Exclude)
	for i, l := range o.Exclude {
		o.Exclude[i] = filepath.Clean(l)
	}
	h := &Host{
		opts: o, log: o.Log, nameFilter: catalog.NewNameFilter(extractors.All()), state: Idle,
		resumed:       make(chan struct{}),
		damageReports: make(chan error, 1),
	}
	var err error
	if h.excluded, err = glob.NewSet(o.Exclude); err != nil {
		return nil, fmt.Errorf("excluded directories: %w", err)
	}
	if err := h.SetRules(o.Rules); err != nil {
		return nil, err
	}
	h.inventory, err = inventorydb.Open(inventorydb.Options{
		Path: o.InventoryPath, MaxPackages: o.MaxPackages, MaxBytes: o.MaxBytes, OnOpen: o.GC.begin, OnClose: o.GC.done,
	})
	if h.inventory == nil {
		return nil, err
	}
	h.runCtx, h.cancelRun = context.WithCancel(context.Background())
	h.closeOnce = sync.OnceValue(h.waitGoroutines)
	m, forgot := loadState(h.stateFile())
	h.saved = m
	h.removeForeignMarksLocked()
	h.lastStart.Store(&m.LastStart)
	if forgot != nil {
		h.warnLocked(forgot.Error())
	}
	if errors.Is(err, ErrDamaged) {
		err = h.repairInventoryLocked(err)
	}
	if err != nil {
		return nil, errors.Join(err, h.inventory.Close())
	}
	return h, nil
}

func (h *Host) stateFile() string { return h.opts.InventoryPath + ".state" }

// SetRules replaces the rules of reports immediately.
func (h *Host) SetRules(r Rules) error {
	if r.MinSeverity == vulndb.Low {
		r.MinSeverity = ""
	}
	s, err := match.NewRuleFilter(r)
	if err != nil {
		return err
	}
	h.ruleFilter.Store(s)
	return nil
}

// Run resumes the state of the last process, keeps the database up to date, and works until ctx
// ends; it is called once. It returns nil when ctx ends, and closes the scanner.
func (h *Host) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, h.cancelRun)()
	if err := h.resumeState(); err != nil { //nolint:contextcheck // scans have the scanner's life
		h.warn(err.Error())
	}
	close(h.resumed)
	h.goroutines.Go(func() { h.runDatabaseUpdates(h.runCtx) })
	for {
		select {
		case err := <-h.damageReports:
			h.rebuildInventory(err) //nolint:contextcheck // scans have the scanner's life
		case <-h.runCtx.Done():
			return h.Close()
		}
	}
}

// hangTimeout limits the wait for goroutines that read files: one that hangs cannot be stopped.
const hangTimeout = 10 * time.Second

// Close ends all goroutines and leaves the saved state, which the next process resumes. A goroutine
// that hangs is left behind: the process can end at any moment.
func (h *Host) Close() error {
	h.cancelRun()
	return h.closeOnce()
}

// waitGoroutines waits for the goroutines to end.
func (h *Host) waitGoroutines() error {
	done := make(chan error, 1)
	go func() { done <- h.closeAll() }()
	select {
	case err := <-done:
		return err
	case <-time.After(hangTimeout):
		return errors.New("a file system does not respond; the scan that waits for it is abandoned")
	}
}

func (h *Host) closeAll() error {
	h.transitionMu.Lock()
	defer h.transitionMu.Unlock()
	h.mu.Lock()
	live := h.realTime
	h.realTime = nil
	h.mu.Unlock()
	if live != nil {
		live.abort()
		live.finderCloser.Close()
	}
	h.goroutines.Wait()
	return h.inventory.Close()
}

// resumeState resumes the state of the last process.
func (h *Host) resumeState() error {
	h.transitionMu.Lock()
	defer h.transitionMu.Unlock()
	h.mu.Lock()
	m := h.saved
	h.missedChanges = true
	h.mu.Unlock()
	var live *realTimeScan
	var failed error
	if m.State == RealTime {
		if live, failed = h.newRealTimeScan(cmp.Or(m.Path, "/")); failed != nil {
			failed = fmt.Errorf("resume real-time scanning: %w", failed)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.realTime = live; live != nil {
		h.state = RealTime
	}
	if m.FullScan != nil {
		h.state = RunningFull
		h.beginFullLocked(*m.FullScan)
	}
	if live != nil {
		live.catchUpLocked()
	}
	return failed
}

// FullScanOptions is a request for a full scan.
type FullScanOptions struct {
	Path         string // directory, absolute; "" is the whole host
	ThenRealTime bool   // real-time scanning of Path follows
}

// FullScan begins a full scan and returns the state RunningFull. It fails with ErrBusy while one
// runs, and with ErrInvalidPath when the path is not a directory.
func (h *Host) FullScan(o FullScanOptions) (State, error) { return h.startFullScan(o, triggerFullScan) }

// StartRealTime begins real-time scanning. With a path it is restricted to that, begins with a full
// scan of it and returns RunningFull.
func (h *Host) StartRealTime(path string) (State, error) {
	if path != "" {
		return h.startFullScan(FullScanOptions{Path: path, ThenRealTime: true}, triggerRealTime)
	}
	defer h.beginTransition()()
	to, err := h.checkTransition(triggerRealTime, noPath)
	if err != nil {
		return to, err
	}
	if err := h.watchRoot("/"); err != nil {
		return h.Status().State, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fullScan == nil { // it may have ended since
		to = RealTime
	}
	h.state, h.saved.State, h.saved.LastStart = to, RealTime, h.newStartTime()
	h.saveStateLocked()
	h.realTime.catchUpLocked()
	return h.state, nil
}

// beginTransition waits until the state of the last process is resumed, then lets the caller change the
// state until it calls leave.
func (h *Host) beginTransition() (leave func()) {
	select {
	case <-h.resumed:
	case <-h.runCtx.Done():
	}
	h.transitionMu.Lock()
	return h.transitionMu.Unlock
}

// startFullScan begins a full scan.
func (h *Host) startFullScan(o FullScanOptions, by trigger) (State, error) {
	defer h.beginTransition()()
	dir, err := h.resolveDir(o.Path)
	if err != nil {
		return h.Status().State, err
	}
	to, err := h.checkTransition(by, withPath)
	if err != nil {
		return to, err
	}
	if o.ThenRealTime {
		if err := h.watchRoot(dir); err != nil {
			return h.Status().State, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	or := scanRequest{Started: h.newStartTime()}
	if o.Path != "" {
		or.Path = dir
	}
	h.state, h.saved.LastStart, h.saved.FullScan = to, or.Started, &or
	if o.ThenRealTime {
		h.saved.State = RealTime
	}
	h.saveStateLocked()
	h.beginFullLocked(or)
	if h.realTime != nil && o.ThenRealTime {
		h.realTime.catchUpLocked()
	}
	return h.state, nil
}

// checkTransition returns the state that a trigger leads to, or the current state and why it is refused.
func (h *Host) checkTransition(by trigger, c condition) (State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runCtx.Err() != nil {
		return h.state, ErrClosed
	}
	to, ok := nextState(h.state, by, c)
	if !ok {
		return h.state, ErrBusy
	}
	return to, nil
}

// clockGranularity is how far the clock of a file system may lag.
const clockGranularity = 50 * time.Millisecond

// watchRoot makes sure that only the given directory is watched, again where its watcher has ended. The caller holds
// the turn.
func (h *Host) watchRoot(root string) error {
	h.mu.Lock()
	old := h.realTime
	h.mu.Unlock()
	again := old != nil && old.root == root
	if again && !old.hasEnded() {
		return nil
	}
	began := wallClock().Add(-clockGranularity)
	live, err := h.newRealTimeScan(root)
	if err != nil {
		return err
	}
	if old != nil {
		old.finish()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.realTime = live
	if again {
		h.missedChanges = true // they are searched, as after a restart
		return nil
	}
	for i := range h.saved.Marks {
		h.saved.Marks[i].Interrupted = true
	}
	h.saved.WatchedSince, h.saved.BaselineKnown, h.saved.Path = began, false, root
	if root == "/" {
		h.saved.Path = ""
	}
	return nil
}

// Stop cancels a full scan, ends real-time scanning, and returns when every noticed change is
// cataloged and matched. When ctx ends first, it returns the error of ctx and the work continues.
func (h *Host) Stop(ctx context.Context) (State, error) {
	done := make(chan State, 1)
	go func() { done <- h.stopAndWait() }() //nolint:contextcheck // it continues when ctx ends
	select {
	case s := <-done:
		return s, nil
	case <-ctx.Done():
		return h.Status().State, context.Cause(ctx)
	}
}

func (h *Host) stopAndWait() State {
	defer h.beginTransition()()
	h.mu.Lock()
	full, live := h.fullScan, h.realTime
	h.fullScan = nil
	h.mu.Unlock()
	if full != nil {
		full.cancel(errStopped)
		h.awaitFullScan(full)
	}
	if live != nil {
		live.finish()
	}
	if h.runCtx.Err() == nil {
		s := &changeCollector{cause: ByRealTime}
		if err := h.matchAll(h.runCtx, s); err != nil {
			h.recordFailure(err, "Packages could not be compared with the database.")
		}
		h.notifyChange(s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runCtx.Err() != nil {
		return h.state
	}
	h.state, _ = nextState(h.state, triggerStop, unconditional)
	if live != nil {
		h.noteStopLocked()
	}
	h.realTime = nil
	h.saved.State, h.saved.Path, h.saved.FullScan, h.saved.BaselineKnown = Idle, "", nil, false
	h.saveStateLocked()
	return h.state
}

// awaitFullScan waits for the end of a canceled full scan. Where a file system blocks that end, await
// records it instead.
func (h *Host) awaitFullScan(f *fullScan) {
	select {
	case <-f.done:
		return
	case <-time.After(hangTimeout):
	}
	h.warn("a full scan that was stopped is abandoned: a file system does not respond")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.saved.LastResult = &ScanResult{
		Path: f.request.Path, Started: f.request.Started,
		Took: time.Since(f.request.Started).Round(time.Millisecond), Canceled: true,
	}
}

// Reset empties the report: packages are cataloged again when a full scan finds them, or when their
// files are written again.
func (h *Host) Reset(context.Context) (State, error) {
	if h.runCtx.Err() != nil {
		return Idle, ErrClosed
	}
	if err := h.inventory.Reset(); err != nil {
		h.recordFailure(err, "The report could not be reset.")
		return h.Status().State, err
	}
	defer h.notifyEnd(ByReset)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, _ = nextState(h.state, triggerReset, unconditional)
	h.saved.ResetAt = h.monotonicNow()
	h.saveStateLocked()
	return h.state, nil
}

// Wait returns when no full scan runs.
func (h *Host) Wait(ctx context.Context) error {
	h.mu.Lock()
	full := h.fullScan
	h.mu.Unlock()
	if full == nil {
		return nil
	}
	select {
	case <-full.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// saveStateLocked writes the state to disk.
func (h *Host) saveStateLocked() {
	if err := h.saved.save(h.stateFile()); err != nil {
		h.warnLocked("what is done cannot be kept for the next start: " + err.Error())
	}
}

// formatTime formats a time for warnings.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
