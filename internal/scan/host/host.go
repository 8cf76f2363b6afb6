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
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Errors that callers receive; match them with errors.Is.
var (
	ErrBusy    = errors.New("a full scan is running: wait for its end or stop it")
	ErrPath    = errors.New("the path cannot be scanned")
	ErrClosed  = errors.New("the host scanner is closed")
	ErrDamaged = inventorydb.ErrDamaged // the inventory is damaged; it is rebuilt
	ErrInUse   = inventorydb.ErrInUse   // another process uses the inventory
)

// errRebuild is the cause with which scans end when the inventory is damaged.
var errRebuild = errors.New("the inventory is rebuilt")

// Host is the scanner of this machine. All methods are safe for concurrent use. Those that change
// the state wait until Run has begun.
type Host struct {
	o     Options
	log   *slog.Logger
	book  *inventorydb.DB
	names *catalog.Names
	sieve atomic.Pointer[match.RuleFilter]
	work  workCounters
	since atomic.Pointer[time.Time] // last start of a scan

	silent hungMounts // file systems that do not answer

	life context.Context // of everything that runs
	kill context.CancelFunc
	goes sync.WaitGroup

	closed func() error // waits for all goroutines, once

	on chan struct{} // closed when the scanner has resumed the state of the last process

	damage chan error // damage of the inventory, for Run

	judging sync.Mutex  // held by the goroutine that matches packages against the database
	again   atomic.Bool // another caller requested a match during this one
	judges  atomic.Bool

	turn sync.Mutex // held while a caller changes the state, however long that takes

	mu       sync.Mutex // guards the fields below
	state    State
	memory   savedState
	missed   bool          // no process watched for a while
	full     *fullScan     // nil when none runs
	live     *realTimeScan // nil without real-time scanning
	warnings []string
	looked   error // of the last check for a newer database
	unread   error // why the database cannot be read
	nextLook time.Time
}

// workCounters counts the scanner's work.
type workCounters struct {
	fullScans, changes, rescans, read, packages, findings, matched, updates, failures atomic.Uint64
}

// Open opens the inventory. A damaged one is moved aside, the status reports it, and Run begins
// with a full scan.
func Open(o Options) (*Host, error) {
	o.Database.Every = cmp.Or(o.Database.Every, usualEvery)
	o.MaxPackages, o.MaxBytes = cmp.Or(o.MaxPackages, usualPackages), cmp.Or(o.MaxBytes, usualBytes)
	o.settle = cmp.Or(o.settle, usualSettling)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Watch == nil {
		o.Watch = thisMachine
	}
	if o.Catalogue == "" {
		return nil, errors.New("the host scanner needs a file for its inventory")
	}
	o.Leave = slices.Clone(o.Leave)
	for i, l := range o.Leave {
		o.Leave[i] = filepath.Clean(l)
	}
	h := &Host{
		o: o, log: o.Log, names: catalog.NewNames(extractors.All()), state: Idle, on: make(chan struct{}),
		damage: make(chan error, 1),
	}
	if err := h.SetRules(o.Rules); err != nil {
		return nil, err
	}
	var err error
	h.book, err = inventorydb.Open(inventorydb.Options{
		Path: o.Catalogue, MaxPackages: o.MaxPackages, MaxBytes: o.MaxBytes, OnUse: o.Calm.begin, OnRest: o.Calm.done,
	})
	if h.book == nil {
		return nil, err
	}
	h.life, h.kill = context.WithCancel(context.Background())
	h.closed = sync.OnceValue(h.end)
	m, forgot := recall(h.memoryFile())
	h.memory = m
	h.since.Store(&m.Since)
	if forgot != nil {
		h.warnLocked(forgot.Error())
	}
	if errors.Is(err, ErrDamaged) {
		err = h.repairLocked(err)
	}
	if err != nil {
		return nil, errors.Join(err, h.book.Close())
	}
	return h, nil
}

func (h *Host) memoryFile() string { return h.o.Catalogue + ".state" }

// SetRules replaces the rules of reports immediately.
func (h *Host) SetRules(r Rules) error {
	if r.MinSeverity == vulndb.Low {
		r.MinSeverity = ""
	}
	s, err := match.NewRuleFilter(r)
	if err != nil {
		return err
	}
	h.sieve.Store(s)
	return nil
}

// Run resumes the state of the last process, keeps the database up to date, and works until ctx
// ends; it is called once. It returns nil when ctx ends, and closes the scanner.
func (h *Host) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, h.kill)()
	if err := h.resume(); err != nil { //nolint:contextcheck // scans have the scanner's life
		h.warn(err.Error())
	}
	close(h.on)
	h.goes.Go(func() { h.keepDatabase(h.life) })
	for {
		select {
		case err := <-h.damage:
			h.rebuild(err) //nolint:contextcheck // scans have the scanner's life
		case <-h.life.Done():
			return h.Close()
		}
	}
}

// hangMost limits the wait for goroutines that read files: one that hangs cannot be stopped.
const hangMost = 10 * time.Second

// Close ends all goroutines and leaves the saved state, which the next process resumes. A goroutine
// that hangs is left behind: the process can end at any moment.
func (h *Host) Close() error {
	h.kill()
	return h.closed()
}

// end waits for the goroutines to end.
func (h *Host) end() error {
	done := make(chan error, 1)
	go func() { done <- h.endAll() }()
	select {
	case err := <-done:
		return err
	case <-time.After(hangMost):
		return errors.New("a file system does not answer: what waits for it is left behind")
	}
}

func (h *Host) endAll() error {
	h.turn.Lock()
	defer h.turn.Unlock()
	h.mu.Lock()
	live := h.live
	h.live = nil
	h.mu.Unlock()
	if live != nil {
		live.halt()
		live.closer.Close()
	}
	h.goes.Wait()
	return h.book.Close()
}

// resume resumes the state of the last process.
func (h *Host) resume() error {
	h.turn.Lock()
	defer h.turn.Unlock()
	h.mu.Lock()
	m := h.memory
	h.missed = true
	h.mu.Unlock()
	var live *realTimeScan
	var failed error
	if m.State == RealTime {
		if live, failed = h.newLive(cmp.Or(m.Path, "/")); failed != nil {
			failed = fmt.Errorf("real-time scanning did not go on: %w", failed)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live = live; live != nil {
		h.state = RealTime
	}
	if m.Full != nil {
		h.state = RunningFull
		h.beginFullLocked(*m.Full)
	}
	if live != nil {
		live.catchUpLocked()
	}
	return failed
}

// Scan is a request for a full scan.
type Scan struct {
	Path         string // directory, absolute; "" is the whole host
	ThenRealTime bool   // real-time scanning of Path follows
}

// FullScan begins a full scan and returns the state RunningFull. It fails with ErrBusy while one
// runs, and with ErrPath when the path is not a directory.
func (h *Host) FullScan(o Scan) (State, error) { return h.start(o, startFull) }

// StartRealTime begins real-time scanning. With a path it is restricted to that, begins with a full
// scan of it and returns RunningFull.
func (h *Host) StartRealTime(path string) (State, error) {
	if path != "" {
		return h.start(Scan{Path: path, ThenRealTime: true}, startRealTime)
	}
	defer h.takeTurn()()
	to, err := h.may(startRealTime, noPath)
	if err != nil {
		return to, err
	}
	if err := h.watch("/"); err != nil {
		return h.Status().State, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full == nil { // it may have ended since
		to = RealTime
	}
	h.state, h.memory.State, h.memory.Since = to, RealTime, h.begins()
	h.rememberLocked()
	h.live.catchUpLocked()
	return h.state, nil
}

// takeTurn waits until the state of the last process is resumed, then lets the caller change the
// state until it calls leave.
func (h *Host) takeTurn() (leave func()) {
	select {
	case <-h.on:
	case <-h.life.Done():
	}
	h.turn.Lock()
	return h.turn.Unlock
}

// start begins a full scan.
func (h *Host) start(o Scan, by trigger) (State, error) {
	defer h.takeTurn()()
	folder, err := h.dirOf(o.Path)
	if err != nil {
		return h.Status().State, err
	}
	to, err := h.may(by, withPath)
	if err != nil {
		return to, err
	}
	if o.ThenRealTime {
		if err := h.watch(folder); err != nil {
			return h.Status().State, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	or := scanRequest{Started: h.begins()}
	if o.Path != "" {
		or.Path = folder
	}
	h.state, h.memory.Since, h.memory.Full = to, or.Started, &or
	if o.ThenRealTime {
		h.memory.State = RealTime
	}
	h.rememberLocked()
	h.beginFullLocked(or)
	if h.live != nil && o.ThenRealTime {
		h.live.catchUpLocked()
	}
	return h.state, nil
}

// may returns the state that a trigger leads to, or the current state and why it is refused.
func (h *Host) may(by trigger, c condition) (State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return h.state, ErrClosed
	}
	to, ok := next(h.state, by, c)
	if !ok {
		return h.state, ErrBusy
	}
	return to, nil
}

// coarse is how far the clock of a file system may lag.
const coarse = 50 * time.Millisecond

// watch makes sure that only the given directory is watched. The caller holds the turn.
func (h *Host) watch(root string) error {
	h.mu.Lock()
	old := h.live
	h.mu.Unlock()
	if old != nil && old.root == root {
		return nil
	}
	began := clock().Add(-coarse)
	live, err := h.newLive(root)
	if err != nil {
		return err
	}
	if old != nil {
		old.end()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live = live
	h.memory.Watched, h.memory.Noted, h.memory.Path = began, false, root
	if root == "/" {
		h.memory.Path = ""
	}
	return nil
}

// Stop cancels a full scan, ends real-time scanning, and returns when every noticed change is
// cataloged and matched. When ctx ends first, it returns the error of ctx and the work continues.
func (h *Host) Stop(ctx context.Context) (State, error) {
	done := make(chan State, 1)
	go func() { done <- h.stop() }() //nolint:contextcheck // it continues when ctx ends
	select {
	case s := <-done:
		return s, nil
	case <-ctx.Done():
		return h.Status().State, context.Cause(ctx)
	}
}

func (h *Host) stop() State {
	defer h.takeTurn()()
	h.mu.Lock()
	full, live := h.full, h.live
	h.full = nil
	h.mu.Unlock()
	if full != nil {
		full.cancel(errStopped)
		h.await(full)
	}
	if live != nil {
		live.end()
	}
	if h.life.Err() == nil {
		s := &step{cause: ByRealTime}
		if err := h.matchAll(h.life, s); err != nil {
			h.failed(err, "Packages could not be compared with the database.")
		}
		h.tell(s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return h.state
	}
	h.state, _ = next(h.state, stop, always)
	h.live = nil
	h.memory.State, h.memory.Path, h.memory.Full, h.memory.Noted = Idle, "", nil, false
	h.rememberLocked()
	return h.state
}

// await waits for the end of a canceled full scan. Where a file system blocks that end, await
// records it instead.
func (h *Host) await(f *fullScan) {
	select {
	case <-f.done:
		return
	case <-time.After(hangMost):
	}
	h.warn("a full scan that was stopped is left behind: a file system does not answer")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.memory.Last = &ScanResult{
		Path: f.order.Path, Started: f.order.Started,
		Took: time.Since(f.order.Started).Round(time.Millisecond), Canceled: true,
	}
}

// Reset empties the report: packages are cataloged again when a full scan finds them, or when their
// files are written again.
func (h *Host) Reset(context.Context) (State, error) {
	if h.life.Err() != nil {
		return Idle, ErrClosed
	}
	if err := h.book.Reset(); err != nil {
		h.failed(err, "The report could not be reset.")
		return h.Status().State, err
	}
	defer h.ended(ByReset)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, _ = next(h.state, reset, always)
	h.memory.Reset = h.now()
	h.rememberLocked()
	return h.state, nil
}

// Wait returns when no full scan runs.
func (h *Host) Wait(ctx context.Context) error {
	h.mu.Lock()
	full := h.full
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

// rememberLocked writes the state to disk.
func (h *Host) rememberLocked() {
	if err := h.memory.keep(h.memoryFile()); err != nil {
		h.warnLocked("what is done cannot be kept for the next start: " + err.Error())
	}
}

// mostWarnings is how many warnings are kept; the oldest are dropped first.
const mostWarnings = 20

func (h *Host) warn(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnLocked(text)
}

func (h *Host) warnLocked(text string) {
	h.log.Warn("The host scanner warns.", "text", text)
	if slices.Contains(h.warnings, text) {
		return
	}
	h.warnings = append(h.warnings, text)
	h.warnings = h.warnings[max(len(h.warnings)-mostWarnings, 0):]
}

// failed records an error. A damaged inventory is rebuilt.
func (h *Host) failed(err error, what string) {
	h.log.Error("The host scanner failed.", "what", what, "error", err)
	if errors.Is(err, ErrDamaged) {
		select {
		case h.damage <- err:
		default: // already recorded
		}
	}
}

// moment formats a time for warnings.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
