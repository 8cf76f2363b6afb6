package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	idA     = "01890000-0000-7000-8000-00000000000a"
	content = "c0ffee"
)

// world is a node that outlives its agents: its disk, its hypervisor, its controller.
type world struct {
	t       *testing.T
	dir     string
	host    *sim.Host
	control *controller
	source  *source
	shop    *shop
	desk    *desk
	devices Devices // nil: none

	inhibitor SleepInhibitor // nil: none

	updater Updater       // of the agents that are booted from now on; nil: none
	over    chan struct{} // closed when the agent that was booted last has ended

	nodeID string // of the agents that are booted from now on
	agent  *Agent // that was booted last
	cache  *cache.Cache

	mu       sync.Mutex
	cling    bool             // VMs cannot be removed
	tree     *crashfs.Tree    // the synced content of the journal
	full     bool             // the disk has no free space for the journal
	free     int64            // bytes of the disk that are free without templates; 0: plenty
	removing map[string]bool  // VMs that are being removed
	listing  time.Duration    // duration of a list of the VMs
	bare     bool             // the driver can neither save nor restart
	broken   map[string]error // name of a driver call -> its error
	scripts  int              // startup scripts that were really begun in a guest
	shells   int              // shells that wait in a guest for a script
	deletes  int              // VMs that were really removed
	starts   int              // VMs of instances that were really started
	saved    int              // saves that were really begun
	grown    int              // guests that were asked to grow their file system
	restarts int              // restarts that were really begun
}

func newWorld(t *testing.T, o sim.Options) *world {
	t.Helper()
	h, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, dir: memoryDir(t), host: h, control: newController(), shop: newShop(), source: &source{},
		desk: &desk{}, nodeID: "node",
	}
	w.source.shop = w.shop
	return w
}

// memoryDir returns a directory that is removed with the test, in memory where such a file system
// exists: a killed process loses nothing there either, and the thousands of fsyncs of these tests
// cost nothing.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agent-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// boot starts an agent over the world. It ends when the returned function is called, which returns
// the result of Run.
func (w *world) boot(g *gate) (stop func() error) {
	w.t.Helper()
	j := w.openJournal(g)
	c, err := cache.Open(cache.Options{Dir: w.templates(), Source: gatedSource{w.source, g}, DiskSpace: w.disk})
	if err != nil {
		w.t.Fatal(err)
	}
	var driver hv.Driver = gatedDriver{w.host, g, w}
	if w.bare {
		driver = bare{driver}
	}
	a := New(Options{
		Identity:   datadir.Identity{NodeID: w.nodeID, Host: "192.0.2.7", RegistryAddress: "http://registry"},
		Controller: gatedLink{w.control, g}, Driver: driver, Templates: c, Journal: j,
		Machine: still{w}, Logger: slog.New(slog.DiscardHandler), Version: "test",
		Registries: gatedShop{w.shop, g}, SaveDir: w.saves(), LogUploader: w.desk, CentralLog: w.desk,
		Devices: w.devices,
		Updater: w.updater, SleepInhibitor: w.inhibitor,
	})
	w.agent, w.cache = a, c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	over := make(chan struct{})
	w.over = over
	go func() {
		done <- a.Run(ctx)
		close(over)
	}()
	go func() {
		select {
		case <-g.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return func() error {
		cancel()
		err := <-done
		_ = c.Close()
		_ = j.Close()
		return err
	}
}

// openJournal opens the journal on what a power loss leaves of the previous agent's.
func (w *world) openJournal(g *gate) *journal.Dir {
	w.t.Helper()
	dir := filepath.Join(w.dir, "instances")
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if w.tree == nil {
		must(os.MkdirAll(dir, 0o700))
	} else {
		left, err := w.tree.Crash(crashfs.Keep{})
		must(errors.Join(err, w.tree.Close(), os.RemoveAll(dir)))
		must(left.Write(dir))
	}
	tree, err := crashfs.Watch(dir)
	must(err)
	if w.tree == nil {
		w.t.Cleanup(func() { _ = w.tree.Close() })
	}
	w.tree = tree
	j, err := journal.Open(dir, journal.Options{
		BeforeStep: func(step string) error { return errors.Join(w.room(step), g.pass("journal "+step)) },
		SyncFile:   tree.Sync,
	})
	must(err)
	return j
}

// fill makes the disk full, or empties it.
func (w *world) fill(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
}

// slow sets the duration of lists of the VMs.
func (w *world) slow(listing time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listing = listing
}

// clings makes VMs impossible to remove, or possible again.
func (w *world) clings(cling bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cling = cling
}

func (w *world) clinging() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cling
}

// room fails a step that needs free space while the disk is full.
func (w *world) room(step string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full && step == journal.StepWrite {
		return syscall.ENOSPC
	}
	return nil
}

// vms returns the VMs that the hypervisor has.
func (w *world) vms() []hv.VM {
	list, err := w.host.List(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w *world) journalled() []string {
	list, err := journal.ReadEntries(filepath.Join(w.dir, "instances"))
	if err != nil {
		w.t.Fatal(err)
	}
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.Order.InstanceID
	}
	return ids
}

// entry returns the journal's only entry, if there is one.
func (w *world) entry() journal.Entry {
	list, err := journal.ReadEntries(filepath.Join(w.dir, "instances"))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(list) != 1 {
		return journal.Entry{}
	}
	return list[0]
}

func (w *world) saves() string { return filepath.Join(w.dir, "saves") }

// breaks makes calls of the driver fail from now on; nil lets them work again.
func (w *world) breaks(call string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = map[string]error{}
	}
	w.broken[call] = err
}

func (w *world) fault(call string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken[call]
}

// still is a host on which nothing happens.
type still struct{ w *world }

func (still) Facts() host.Facts {
	return host.Facts{Arch: "amd64", OS: "linux", CPUs: 4, MemoryMB: 8192}
}
func (still) FreeMemoryMB() int                           { return 4096 }
func (still) VMBytes(string) int64                        { return 1 << 20 }
func (still) Load(time.Time, []int) (cpu, memory float64) { return 0.5, 0.25 }

func (s still) Disk() (free, total, vms int64) {
	free, total, _ = s.w.disk()
	return free, total, 0
}

func (w *world) templates() string { return filepath.Join(w.dir, "templates") }

// disk simulates a disk on which every cached version uses 1 GiB.
func (w *world) disk() (free, total int64, err error) {
	list, _ := os.ReadDir(w.templates())
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.free, 1<<40) - int64(len(list))<<30, 2 << 40, nil
}

// source brings a template whose disk is empty, at a configured pace.
type source struct {
	mu    sync.Mutex
	takes time.Duration
	fail  error
	pulls int
	shop  *shop
}

func (s *source) set(takes time.Duration, fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.fail = takes, fail
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pulls
}

func (s *source) SpaceNeed(_ context.Context, ref cache.Ref, have cache.LocalContent) (cache.SpaceNeed, error) {
	var need cache.SpaceNeed
	if v := s.shop.version(ref.ContentID); v != nil {
		for _, tip := range v.below {
			if _, here := have[tip]; here {
				need.ChainIDs = append(need.ChainIDs, tip)
			}
		}
	}
	return need, nil
}

func (s *source) Fetch(ctx context.Context, p cache.Pull) (map[string]cache.BuiltFile, error) {
	s.mu.Lock()
	s.pulls++
	takes, fail := s.takes, s.fail
	s.mu.Unlock()
	for i := range 10 {
		select {
		case <-time.After(takes / 10):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.Progress(float64(i+1) / 10)
	}
	if fail != nil {
		return nil, fail
	}
	if v := s.shop.version(p.Ref.ContentID); v != nil {
		built := builtOf(v.roots)
		for name, tip := range v.below {
			if _, here := p.Local[tip]; !here {
				return nil, errors.New("this source brings what a save changed, and nothing beneath it")
			}
			built[name] = cache.BuiltFile{
				ChainID: v.roots[name], Format: "raw", Form: transfer.FormOverlay, BaseChainID: tip,
			}
		}
		return built, v.write(p.DestDir)
	}
	base := &sold{
		config: `{"ram":"2G","cpu":{"cores":2},"hard_drives":[{"file":"disk.qcow2"}],"kept":{"a":1},` +
			`"network_cards":[{"port_forwarding_rules":[{"rule_name":"ssh","guest_port":22}]}]}`,
		files: map[string]string{"disk.qcow2": "base"},
	}
	roots := map[string]string{"disk.qcow2": rootOf("base")}
	return builtOf(roots), base.write(p.DestDir)
}

func builtOf(roots map[string]string) map[string]cache.BuiltFile {
	built := map[string]cache.BuiltFile{}
	for name, root := range roots {
		built[name] = cache.BuiltFile{ChainID: root, Format: "raw"}
	}
	return built
}

func (w *world) number(n *int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *n
}

func (w *world) count(n *int) { w.add(n, 1) }

func (w *world) add(n *int, more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n += more
}

// controller is the other end of the node link: it keeps orders pending until they are acknowledged
// (terminations: until they are done) and records every status.
type controller struct {
	mu        sync.Mutex
	due       []api.Order
	update    *api.AgentUpdate // that is requested
	sent      map[string]time.Time
	claims    map[string]string             // instance ID -> its claim
	last      map[string]api.InstanceStatus // instance ID -> last status received
	history   map[string][]api.InstanceStatus
	deleted   map[string]time.Time // when a termination was acknowledged
	faults    []string
	polls     []api.PollRequest
	wake      chan struct{}
	pollErr   error
	reportOK  func() error
	needFull  bool
	removed   bool     // an operator removed the node
	central   bool     // nodes send their logs
	keepsLogs bool     // but not this one
	asks      []string // IDs to ask about with the next response
}

func newController() *controller {
	return &controller{
		sent: map[string]time.Time{}, claims: map[string]string{}, last: map[string]api.InstanceStatus{},
		history: map[string][]api.InstanceStatus{}, deleted: map[string]time.Time{}, wake: make(chan struct{}, 1),
	}
}

func (c *controller) order(o api.Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Kind == api.OrderTerminate {
		c.due = slices.DeleteFunc(c.due, func(d api.Order) bool { return d.InstanceID == o.InstanceID })
	}
	if o.Claim != "" && c.claims[o.InstanceID] != o.Claim {
		c.claims[o.InstanceID] = o.Claim
		delete(c.deleted, o.InstanceID)
	}
	c.due = append(c.due, o)
	c.ringLocked()
}

func (c *controller) ringLocked() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *controller) Poll(ctx context.Context, wait time.Duration, in api.PollRequest) (api.PollAnswer, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	c.mu.Lock()
	c.polls = append(c.polls, in)
	if c.pollErr != nil {
		defer c.mu.Unlock()
		return api.PollAnswer{}, c.pollErr
	}
	if c.removed {
		defer c.mu.Unlock()
		return api.PollAnswer{Removed: true}, nil
	}
	for _, ack := range in.Acks {
		if ack.Kind == api.OrderTerminate {
			c.deleted[ack.InstanceID] = time.Now()
			continue
		}
		c.due = slices.DeleteFunc(c.due, func(o api.Order) bool {
			return o.InstanceID == ack.InstanceID && o.Claim == ack.Claim && o.Kind == ack.Kind && o.Task == ack.Task
		})
	}
	full, asks := c.needFull, c.asks
	c.needFull, c.asks = false, nil
	answer := api.PollAnswer{CentralLog: c.central, NoCentralLog: c.keepsLogs, Update: c.update}
	c.mu.Unlock()
	if full || len(asks) > 0 {
		answer.NeedFull, answer.Describe = full, asks
		return answer, nil
	}
	for {
		if answer.Orders = c.take(); len(answer.Orders) > 0 {
			return answer, nil
		}
		select {
		case <-c.wake:
		case <-timer.C:
			answer.Orders = c.take()
			return answer, nil
		case <-ctx.Done():
			return api.PollAnswer{}, ctx.Err()
		}
	}
}

// take returns the orders that were never sent, or not within the last 5 s.
func (c *controller) take() []api.Order {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []api.Order
	for _, o := range c.due {
		key := fmt.Sprint(o.Kind, o.InstanceID, o.Claim, o.Task)
		if at, sent := c.sent[key]; sent && time.Since(at) < 5*time.Second {
			continue
		}
		c.sent[key] = time.Now()
		out = append(out, o)
	}
	return out
}

func (c *controller) Report(_ context.Context, in api.Report) (api.ReportAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return api.ReportAnswer{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	if c.reportOK != nil {
		if err := c.reportOK(); err != nil {
			return api.ReportAnswer{}, err
		}
	}
	for _, s := range in.Statuses {
		if claim, known := c.claims[s.InstanceID]; !known || claim == s.Claim {
			c.takeStatusLocked(s)
		}
	}
	return api.ReportAnswer{}, nil
}

func (c *controller) takeStatusLocked(s api.InstanceStatus) {
	old, known := c.last[s.InstanceID]
	// A report that was on its way when the termination arrived is not an error: it arrives at the
	// same instant of the bubble's time.
	if at, yes := c.deleted[s.InstanceID]; yes && time.Now().After(at) && s.Phase != api.PhaseTerminated {
		c.faults = append(c.faults, fmt.Sprintf("%s reported after a termination was acknowledged", s.Phase))
	}
	if known && old.Claim == s.Claim && s.No == old.No && s.Phase != old.Phase && s.Phase != api.PhaseTerminated {
		c.faults = append(c.faults, fmt.Sprintf("number %d means %s and %s", s.No, old.Phase, s.Phase))
	}
	if known && old.Claim == s.Claim && s.No < old.No && s.Phase != api.PhaseTerminated {
		c.faults = append(c.faults, fmt.Sprintf("number %d after %d", s.No, old.No))
	}
	if t, was := s.Task, old.Task; known && t != nil && was != nil && t.ID == was.ID && t.Stage != was.Stage &&
		(was.Stage == api.TaskDone || was.Stage == api.TaskFailed) {
		c.faults = append(c.faults, fmt.Sprintf("task %s is %s after it was %s", t.ID, t.Stage, was.Stage))
	}
	c.last[s.InstanceID] = s
	c.history[s.InstanceID] = append(c.history[s.InstanceID], s)
	if s.Phase == api.PhaseTerminated {
		c.due = slices.DeleteFunc(c.due, func(o api.Order) bool { return o.InstanceID == s.InstanceID })
	}
}

// told returns every reported status of an instance.
func (c *controller) told(id string) []api.InstanceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.history[id])
}

// seen returns every poll.
func (c *controller) seen() []api.PollRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.polls)
}

func (c *controller) lastPoll() api.PollRequest {
	polls := c.seen()
	return polls[len(polls)-1]
}

// answerReports decides whether reports are accepted.
func (c *controller) answerReports(ok func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reportOK = ok
}

func (c *controller) phase(id string) api.Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[id].Phase
}

func (c *controller) status(id string) api.InstanceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[id]
}

func (c *controller) phasesOf(id string) []api.Phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []api.Phase
	for _, s := range c.history[id] {
		if len(out) == 0 || out[len(out)-1] != s.Phase {
			out = append(out, s.Phase)
		}
	}
	return out
}

// startOrder is the order for idA; edit changes it.
func startOrder(edit func(*api.StartOrder)) api.Order {
	o := api.Order{Kind: api.OrderStart, InstanceID: idA, Claim: "1", Start: &api.StartOrder{
		TemplateID: "t", TemplateName: "debian", Tag: "v1", ContentID: content, VMName: "mgmtManaged-x",
		StartTimeout: 60,
	}}
	if edit != nil {
		edit(o.Start)
	}
	return o
}

func withScript(s api.Script) func(*api.StartOrder) {
	return func(o *api.StartOrder) { o.Script = &s }
}

func terminate(claim string) api.Order {
	return api.Order{Kind: api.OrderTerminate, InstanceID: idA, Claim: claim}
}

// until waits, in the bubble's own time, for a phase to be reported.
func (w *world) until(phases ...api.Phase) {
	w.t.Helper()
	for range 6000 {
		if slices.Contains(phases, w.control.phase(idA)) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("never reported one of %v; last %+v", phases, w.control.status(idA))
}

// wantFailure checks the class and the step that the agent reports.
func (w *world) wantFailure(class, step string) {
	w.t.Helper()
	got := w.control.status(idA).Failure
	if got == nil || got.Class != class || got.Step != step {
		w.t.Errorf("failure %+v, want class %s in step %s", got, class, step)
	}
}

// checkClean checks the state once everything has been terminated.
func (w *world) checkClean() {
	w.t.Helper()
	if left := w.vms(); len(left) != 0 {
		w.t.Errorf("VMs are left: %+v", left)
	}
	if left := w.journalled(); len(left) != 0 {
		w.t.Errorf("journal entries are left: %v", left)
	}
	if left, _ := os.ReadDir(w.saves()); len(left) != 0 {
		w.t.Errorf("saves are left: %v", left)
	}
	w.checkFaults()
}

func (w *world) checkFaults() {
	w.t.Helper()
	w.control.mu.Lock()
	defer w.control.mu.Unlock()
	for _, f := range w.control.faults {
		w.t.Errorf("on the wire: %s", f)
	}
}

// inWorld runs a test with one agent in a bubble with its own time.
func inWorld(t *testing.T, o sim.Options, do func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, o)
		stop := w.boot(newGate(-1))
		do(w)
		if err := stop(); err != nil && farm.CodeOf(err) != farm.CodeUnauthenticated &&
			farm.CodeOf(err) != farm.CodeRefused {
			t.Errorf("Run: %v", err)
		}
		w.checkFaults()
	})
}
