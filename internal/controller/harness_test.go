package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/transfer"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// What nodes may rely on; packages nodelink and nodes have these values.
const (
	takeoverAfter    = 3 * time.Second
	askAfter         = 5 * time.Second
	askAgain         = 30 * time.Second
	tickInterval     = 500 * time.Millisecond
	silentSlot       = time.Minute
	stuckSlot        = 15 * time.Minute
	updateReportTime = time.Minute
	missedDigests    = 3
	writeBurst       = 6
	writeInterval    = 10 * time.Second
	unhealthyAfter   = 30 * time.Second
	maxOrphans       = nodeinput.MaxCapacity
)

// The limits of the steps of instances; package reconcile has these values.
const (
	acknowledgeLimit = 2 * time.Minute
	startSlack       = 5 * time.Minute
	stopLimit        = 10 * time.Minute
	restartSlack     = 10 * time.Minute
	scriptLimit      = 6*time.Hour + 10*time.Minute
	saveLimit        = 2*time.Hour + 10*time.Minute
	confirmLimit     = time.Minute
	resumeTime       = 5 * time.Second
)

// shelf is a registry with one template of two versions; down makes it fail, and pin makes its
// second version a suspended one.
type shelf struct {
	mu   sync.Mutex
	down bool
	pin  *api.StateRequirements
	mac  bool // there is a third version, of macOS

	changed []string // the requests that changed it
	gone    bool     // the template was deleted
	lost    bool     // the response to a deletion is lost
}

func (s *shelf) fail() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("connection refused")
	}
	return nil
}

func (s *shelf) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *shelf) template() api.TemplateDetail {
	version := func(n int) api.TemplateVersion {
		return api.TemplateVersion{
			Tag: fmt.Sprintf("v%d", n+1), Number: n, ContentID: fmt.Sprintf("content-%d", n), Arch: "amd64", Size: 100,
		}
	}
	second := version(1)
	if s.suspended() != nil {
		second.StateFiles = []string{"s.ank"}
	}
	versions := []api.TemplateVersion{version(0), second}
	if s.hasMac() {
		versions = append(versions, version(2))
	}
	return api.TemplateDetail{
		Template: api.Template{ID: templateID, Name: "base", Arch: "amd64", Size: 200}, Versions: versions,
	}
}

func (s *shelf) hasMac() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mac
}

func (s *shelf) addMac() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mac = true
}

func (s *shelf) suspended() *api.StateRequirements {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pin
}

func (s *shelf) suspend(pin api.StateRequirements) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pin = &pin
}

func (s *shelf) ListTemplates(context.Context) ([]api.Template, error) {
	return []api.Template{s.template().Template}, s.fail()
}

func (s *shelf) TemplateDetail(_ context.Context, id string) (api.TemplateDetail, error) {
	if err := s.fail(); err != nil {
		return api.TemplateDetail{}, err
	}
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if id != templateID || gone {
		return api.TemplateDetail{}, farm.NotFound()
	}
	return s.template(), nil
}

func (s *shelf) VersionConfig(_ context.Context, ref transfer.VersionRef) (api.TemplateConfig, error) {
	config := api.TemplateConfig{RAM: "512M", CPU: &api.ConfigCPU{Cores: 1}}
	if pin := s.suspended(); pin != nil && *ref.Number == 1 {
		config.StateFile, config.StatePin = "state", pin
	}
	if *ref.Number == 2 {
		config.OS = farm.OSMacOS
	}
	return config, s.fail()
}

func (s *shelf) DiskInfo(context.Context) (api.DiskInfo, error) {
	return api.DiskInfo{Free: 1, Total: 2}, s.fail()
}

func (s *shelf) Status(context.Context) (api.RegistryStatus, error) {
	return api.RegistryStatus{Status: "Running"}, s.fail()
}

func (s *shelf) DeleteTemplate(_ context.Context, id string) error {
	if id != templateID {
		return farm.NotFound()
	}
	s.note("delete")
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	if lost {
		return errors.New("connection reset")
	}
	return s.fail()
}

func (s *shelf) Revert(_ context.Context, ref transfer.VersionRef) error {
	s.note(fmt.Sprintf("revert %s %d %s", ref.Tag, *ref.Number, ref.ContentID))
	return s.fail()
}

// note records a request that changes the registry.
func (s *shelf) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, what)
}

var _ Registry = (*shelf)(nil)

// cloud is a controller on an in-memory store, inside a synctest bubble: its clock
// is the bubble's.
type cloud struct {
	*Controller
	t       *testing.T
	shelf   *shelf
	backend *mem.Backend
	stop    func()

	firstMAC func() farm.MAC // for manage; nil: a random one
}

// inCloud runs a test in a bubble with a running controller.
func inCloud(t *testing.T, test func(t *testing.T, c *cloud)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{t: t, shelf: &shelf{}, backend: mem.New()}
		c.start(Options{})
		defer func() { c.stop() }()
		test(t, c)
	})
}

// start opens a controller on the backend, as after a (re)start of the process.
func (c *cloud) start(opts Options) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tables := record.NewTables(nil)
	st, err := store.Open(ctx, c.backend, store.Options{Tables: tables.All()})
	if err != nil {
		c.t.Fatal(err)
	}
	if opts.Registry == nil {
		opts.Registry = c.shelf
	}
	opts.RegistryAddress, opts.VMNamePrefix = "http://registry", "mgmtManaged-"
	if c.Controller != nil { // a restarted one knows only the digest of a token that it created
		opts.JoinTokens.PermanentToken = c.Nodes.JoinToken()
	}
	if c.Controller, err = New(ctx, st, tables, opts); err != nil {
		c.t.Fatal(err)
	}
	var wg sync.WaitGroup
	core := c.Controller
	wg.Go(func() { _ = core.Run(ctx) })
	c.stop = func() {
		cancel()
		wg.Wait()
		if err := st.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// replica opens a second controller on the same backend.
func (c *cloud) replica() *cloud {
	c.t.Helper()
	synctest.Wait() // the first one has the lease
	second := &cloud{t: c.t, shelf: c.shelf, backend: c.backend}
	second.start(Options{})
	return second
}

// restart ends the controller and starts another one on the same store.
func (c *cloud) restart() {
	c.stop()
	c.start(Options{})
}

// away stops the controller and starts it again after so much time, which costs nothing: a running
// controller checks its instances every second of it.
func (c *cloud) away(length time.Duration) {
	c.stop()
	time.Sleep(length)
	c.start(Options{})
}

// mustStart creates instances.
func (c *cloud) mustStart(req StartRequest) []string {
	c.t.Helper()
	if req.TemplateID == "" {
		req.TemplateID = templateID
	}
	req.Count = max(req.Count, 1)
	if req.Options.Priority == 0 {
		req.Options.Priority = farm.DefaultPriority
	}
	ids, err := c.Start(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return ids
}

// state returns the state of an instance, Gone when it has no record.
func (c *cloud) state(id string) farm.InstanceState {
	c.t.Helper()
	synctest.Wait()
	inst, err := c.Instances.Get(c.t.Context(), id)
	if farm.CodeOf(err) == farm.CodeNotFound {
		return farm.InstanceRemoved
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return inst.State
}

// used returns what the instances on a node use of it, according to the index of the placer.
func (c *cloud) used(a *agent) sched.Load {
	used, _ := c.placer.Used(a.id)
	return used
}

// wantSlots checks how many VMs of capacity the instances on a node use.
func (c *cloud) wantSlots(a *agent, want int) {
	c.t.Helper()
	synctest.Wait()
	if got := c.used(a).VMs; got != want {
		c.t.Errorf("%d slots of the node are taken, want %d", got, want)
	}
}

func (c *cloud) wantState(id string, want farm.InstanceState) {
	c.t.Helper()
	if got := c.state(id); got != want {
		c.t.Fatalf("instance %s is %q, want %q", id, got, want)
	}
}

// agent is a node's side of the node API, driven step by step by the test.
type agent struct {
	c     *cloud
	t     *testing.T
	id    string
	cred  string
	boot  string
	info  *api.NodeInfo // its description of itself
	seq   int64
	no    int64
	held  []api.InventoryItem
	early []api.Order // came with the response to a poll that was sent for something else
}

// join adds a node with a number of slots and makes its first contact.
func (c *cloud) join(name string, capacity int) *agent {
	c.t.Helper()
	answer, err := c.Nodes.Join(c.t.Context(), api.JoinRequest{
		Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: name, Host: "10.0.0.1", Capacity: capacity,
		Arch: "amd64",
	})
	if err != nil {
		c.t.Fatal(err)
	}
	a := &agent{c: c, t: c.t, id: answer.NodeID, cred: answer.Credential, boot: uuid.NewString()}
	a.info = &api.NodeInfo{Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim"}
	a.early = a.contact()
	synctest.Wait() // until the placer knows of it
	return a
}

// contact polls in full without waiting.
func (a *agent) contact() []api.Order {
	a.t.Helper()
	return a.poll(api.PollRequest{Info: a.info, Held: a.held, HasHeld: true}, 0)
}

func (a *agent) poll(req api.PollRequest, wait time.Duration) []api.Order {
	a.t.Helper()
	answer, err := a.tryPoll(req, wait)
	if err != nil {
		a.t.Fatal(err)
	}
	return answer.Orders
}

func (a *agent) tryPoll(req api.PollRequest, wait time.Duration) (*api.PollAnswer, error) {
	req.Protocol, req.NodeID, req.BootID = api.LinkProtocol, a.id, a.boot
	req.InfoHash, req.HeldHash = "info", fmt.Sprint(len(a.held))
	synctest.Wait()
	return a.c.Link.Poll(a.t.Context(), a.cred, req, wait)
}

// next returns the orders that are due now, and acknowledges them.
func (a *agent) next() []api.Order {
	a.t.Helper()
	var orders []api.Order
	var acks []api.Ack
	for _, o := range slices.Concat(a.early, a.contact()) {
		ack := api.Ack{InstanceID: o.InstanceID, Claim: o.Claim, Kind: o.Kind, Task: o.Task}
		if !slices.Contains(acks, ack) { // an order that came early may come again
			orders, acks = append(orders, o), append(acks, ack)
		}
	}
	a.early = a.poll(api.PollRequest{Acks: acks, HasHeld: true, Held: a.held}, 0)
	return orders
}

// take returns the one order that is due.
func (a *agent) take(kind api.OrderKind) api.Order {
	a.t.Helper()
	orders := a.next()
	if len(orders) != 1 || orders[0].Kind != kind {
		a.t.Fatalf("orders = %+v, want one %s", orders, kind)
	}
	return orders[0]
}

// say reports a phase of an order's instance.
func (a *agent) say(o api.Order, phase api.Phase, change ...func(*api.InstanceStatus)) api.ReportAnswer {
	a.t.Helper()
	a.no++
	a.seq++
	a.hold(o, phase != api.PhaseTerminated)
	status := api.InstanceStatus{InstanceID: o.InstanceID, Claim: o.Claim, No: a.no, Phase: phase}
	if phase == api.PhaseRunning || phase == api.PhaseScriptOK {
		status.VM = &api.NodeVM{UUID: "vm-" +
			o.InstanceID, Name: "vm", Status: "running", IP: "10.0.2.15", HostIP: "10.0.0.1"}
	}
	for _, f := range change {
		f(&status)
	}
	answer, err := a.c.Link.Report(a.t.Context(), a.cred, api.Report{
		Protocol: api.LinkProtocol, NodeID: a.id, BootID: a.boot, Seq: a.seq, Statuses: []api.InstanceStatus{status},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
	return answer
}

// hold updates the agent's inventory to match its report.
func (a *agent) hold(o api.Order, has bool) {
	a.held = slices.DeleteFunc(a.held, func(h api.InventoryItem) bool { return h.InstanceID == o.InstanceID })
	if has {
		a.held = append(a.held, api.InventoryItem{InstanceID: o.InstanceID, Claim: o.Claim})
	}
}

// putNode replaces the record of a node.
func (c *cloud) putNode(n *farm.Node) {
	c.t.Helper()
	if err := c.store.Commit(c.t.Context(), store.Put(c.tables.Nodes, n.ID, n, store.Any)); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}
