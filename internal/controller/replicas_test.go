package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/election"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// pair is two replicas over one backend, each with its own faults, and a checker that reads every
// revision.
type pair struct {
	t       *testing.T
	backend *mem.Backend
	judge   *judge
	shelf   *shelf
	ends    [2]*end
	nodes   []api.JoinAnswer                        // that have joined
	held    map[string]map[string]api.InventoryItem // node -> instance -> the node's inventory item
}

// end is one replica.
type end struct {
	*Controller
	faults *storetest.Faults
	stop   func()
}

func newPair(t *testing.T) *pair {
	p := &pair{
		t: t, backend: mem.New(), shelf: &shelf{}, judge: newJudge(), held: map[string]map[string]api.InventoryItem{},
	}
	for i := range p.ends {
		p.start(i)
	}
	// The template is known: the first read of it writes nothing.
	if _, err := p.ends[0].Templates.Get(t.Context(), templateID); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return p
}

func (p *pair) start(i int) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &end{faults: storetest.NewFaults(p.backend)}
	tables := record.NewTables(nil)
	st, err := store.Open(ctx, e.faults, store.Options{Tables: tables.All()})
	if err != nil {
		p.t.Fatal(err)
	}
	e.Controller, err = New(ctx, st, tables, Options{
		Registry: p.shelf, RegistryAddress: "http://registry",
		JoinTokens: jointokens.Options{PermanentToken: "token"}, NodeTimeout: 24 * time.Hour,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	e.stop = func() {
		cancel()
		e.faults.Mend()
		wg.Wait()
		if err := st.Close(); err != nil {
			p.t.Error(err)
		}
	}
	p.ends[i] = e
	synctest.Wait()
	for _, node := range p.nodes {
		p.poll(e, node)
	}
}

func (p *pair) stop() {
	for _, e := range p.ends {
		e.stop()
	}
	if err := p.backend.Close(); err != nil {
		p.t.Error(err)
	}
}

// loseLease takes the lease from its holder, without notice.
func (p *pair) loseLease() {
	kv, err := p.backend.Get(p.t.Context(), store.DefaultPrefix+"/lease/"+election.Lease)
	if err != nil {
		p.t.Fatal(err)
	}
	if kv.ModRev > 0 {
		p.backend.ExpireLease(store.Fence{Key: kv.Key, CreateRev: kv.ModRev})
	}
}

// join adds a node through a replica and makes its first contact with both.
func (p *pair) join(e *end, name string, capacity int) api.JoinAnswer {
	answer, err := e.Nodes.Join(p.t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: "token", Name: name, Capacity: capacity})
	if err != nil {
		p.t.Fatal(err)
	}
	p.nodes = append(p.nodes, answer)
	p.held[answer.NodeID] = map[string]api.InventoryItem{}
	p.poll(e, answer)
	synctest.Wait()
	for _, other := range p.ends {
		if other != e {
			p.poll(other, answer)
		}
	}
	return answer
}

// poll requests a node's orders. It returns none when the node or the replica is unavailable.
func (p *pair) poll(e *end, node api.JoinAnswer) []api.Order {
	answer, err := e.Link.Poll(p.t.Context(), node.Credential, api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: node.NodeID, BootID: "boot", InfoHash: "info", HeldHash: "held",
		Info: &api.NodeInfo{Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim"},
		Held: slices.Collect(maps.Values(p.held[node.NodeID])), HasHeld: true,
	}, 0)
	if err != nil {
		return nil
	}
	return answer.Orders
}

func (p *pair) create(e *end, count int) ([]string, error) {
	return p.createFor(e, count, "root")
}

func (p *pair) createFor(e *end, count int, owner string) ([]string, error) {
	return e.Start(p.t.Context(), StartRequest{
		TemplateID: templateID, Count: count, Owner: owner, Options: farm.StartOptions{Priority: farm.DefaultPriority},
	})
}

// judge reads every revision of the backend and checks the invariants.
type judge struct {
	nodes     map[string]farm.Node
	instances map[string]farm.Instance
	next      int64
	broken    []string
}

func newJudge() *judge {
	return &judge{nodes: map[string]farm.Node{}, instances: map[string]farm.Instance{}, next: 2}
}

var errRead = errors.New("read up to here")

// read reads up to the present revision.
func (j *judge) read(t *testing.T, b *mem.Backend) {
	last, err := b.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last < j.next {
		return
	}
	err = b.Watch(t.Context(), store.DefaultPrefix+"/v1/", j.next, func(batch store.WatchBatch) error {
		if batch.Rev >= j.next {
			j.revision(batch)
		}
		if batch.Rev >= last {
			return errRead
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	j.next = last + 1
}

// revision checks what one transaction did. A placement may share it with a change of its node: it
// then counts as the earlier one, as if it had been written alone.
func (j *judge) revision(batch store.WatchBatch) {
	filled := map[string]bool{}
	for _, ev := range batch.Events {
		if id, ok := idOf(record.KindInstance, ev.Key); ok {
			was := j.instances[id]
			now := keep(j.instances, id, ev)
			j.step(batch.Rev, id, was, now)
			filled[now.NodeID] = filled[now.NodeID] || was.NodeID == "" && now.NodeID != ""
		}
	}
	for node, more := range filled {
		if more {
			j.placedOn(batch.Rev, node)
		}
	}
	for _, ev := range batch.Events {
		if id, ok := idOf(record.KindNode, ev.Key); ok {
			keep(j.nodes, id, ev)
		}
	}
}

func idOf(kind store.Kind, key string) (id string, ok bool) {
	return strings.CutPrefix(key, store.DefaultPrefix+"/v1/"+string(kind)+"/")
}

// keep applies a change of a record and returns its new state, the zero value for none.
func keep[T any](records map[string]T, id string, ev store.RawEvent) (now T) {
	delete(records, id)
	if !ev.Deleted && json.Unmarshal(ev.Value, &now) == nil {
		records[id] = now
	}
	return now
}

// step checks a change of one instance. The zero record stands for none.
func (j *judge) step(rev int64, id string, was, now farm.Instance) {
	switch {
	case was.NodeID != "" && now.ID != "" && (now.NodeID != was.NodeID || now.Claim != was.Claim):
		j.blame(rev, "%s moved from %s to %s", id, was.NodeID, now.NodeID)
	case was.State == farm.Terminating && now.ID != "" && now.State != farm.Terminating && now.State != farm.Terminated,
		was.State == farm.Terminated && now.ID != "" && now.State != farm.Terminated:
		j.blame(rev, "%s went from %s to %s", id, was.State, now.State)
	case was.State == farm.Terminating && was.NodeID == "" && now.NodeID != "":
		j.blame(rev, "%s was placed although it is terminating", id)
	}
}

// placedOn checks a node on which an instance was placed.
func (j *judge) placedOn(rev int64, id string) {
	node, ok := j.nodes[id]
	if !ok || !node.AcceptsStarts() {
		j.blame(rev, "placed on node %s, which takes no starts (known: %v)", id, ok)
	}
	if held := j.held(id); held > takes(node) {
		j.blame(rev, "%d instances on node %s, which takes %d", held, id, takes(node))
	}
}

// takes returns how many instances a node of a trial has capacity for; each uses one virtual CPU
// and 512 MiB.
func takes(n farm.Node) int {
	if n.CapacityMode != farm.CapacityByResources {
		return n.Capacity
	}
	vcpu, memory := sched.ResourceLimits(&n, &farm.NodeInfo{CPUs: 8, MemoryMB: 16384})
	return min(vcpu, memory/512)
}

func (j *judge) held(node string) (n int) {
	for _, i := range j.instances {
		if i.NodeID == node && i.UsesCapacity() {
			n++
		}
	}
	return n
}

func (j *judge) blame(rev int64, format string, args ...any) {
	j.broken = append(j.broken, fmt.Sprintf("revision %d: ", rev)+fmt.Sprintf(format, args...))
}

// free returns the number of free slots, and of instances that wait for one.
func (j *judge) free() (slots, waiting int) {
	for id, n := range j.nodes {
		if n.AcceptsStarts() {
			slots += max(0, takes(n)-j.held(id))
		}
	}
	for _, i := range j.instances {
		if i.AwaitsPlacement() {
			waiting++
		}
	}
	return slots, waiting
}

// act is one random operation: its name, through which replica, on which of the existing objects,
// with which number, and whether to wait for it.
type act struct {
	deed      string
	end       int
	which, by int
	wait      bool
}

func (s act) String() string {
	return fmt.Sprintf("%s(replica %d, %d, %d, wait %v)", s.deed, s.end, s.which, s.by, s.wait)
}

// actsOf draws operations of a kind.
func actsOf[D any](deeds map[string]D) *rapid.Generator[[]act] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) act {
		return act{
			deed: rapid.SampledFrom(slices.Sorted(maps.Keys(deeds))).Draw(t, "deed"),
			end:  rapid.IntRange(0, 1).Draw(t, "replica"), which: rapid.IntRange(0, 9).Draw(t, "which"),
			by: rapid.IntRange(0, 3).Draw(t, "by"), wait: rapid.Bool().Draw(t, "wait"),
		}
	}), 1, 60)
}

// trial is one run of random operations. Requests of clients and nodes run in the background, as
// they may block.
type trial struct {
	*pair
	running sync.WaitGroup
	mu      sync.Mutex
	ids     []string
}

func (r *trial) async(s act, deed func(ctx context.Context)) {
	r.running.Go(func() { deed(r.t.Context()) })
	if s.wait {
		synctest.Wait()
	}
}

// deeds are the random actions, each through one replica.
var deeds = map[string]func(*trial, *end, act){
	"create":     (*trial).creates,
	"terminate":  (*trial).terminates,
	"join":       (*trial).joins,
	"delete":     (*trial).deletes,
	"agents":     (*trial).agents,
	"capacity":   func(r *trial, e *end, s act) { r.change(e, s, func(n *farm.Node) { n.Capacity = s.by }) },
	"drain":      func(r *trial, e *end, s act) { r.change(e, s, func(n *farm.Node) { n.Drain = !n.Drain }) },
	"configure":  (*trial).configures,
	"lose lease": func(r *trial, _ *end, _ act) { r.loseLease() },
	"restart": func(r *trial, e *end, s act) {
		e.stop()
		r.start(s.end)
	},
	"end in a pass": (*trial).endsInAPass,
	"late commits":  func(_ *trial, e *end, _ act) { e.faults.HoldCommits() },
	"late watch":    func(_ *trial, e *end, _ act) { e.faults.StallWatch() },
	"lost reply":    func(_ *trial, e *end, _ act) { e.faults.Next(storetest.LoseReply) },
	"mend":          func(r *trial, _ *end, _ act) { r.mend() },
	"time":          func(_ *trial, _ *end, s act) { time.Sleep(time.Duration(s.which*s.by*100+1) * time.Millisecond) },
}

func (r *trial) mend() {
	for _, e := range r.ends {
		e.faults.Mend()
	}
}

// endsInAPass ends the leader term of a replica while it writes placements: those of a creation,
// and those of a pass for pending instances.
func (r *trial) endsInAPass(e *end, s act) {
	e.faults.HoldCommits()
	s.wait = true
	r.creates(e, s)
	e.placer.Wake()
	synctest.Wait()
	if term := e.placer.Term(); term != nil {
		term.End()
	}
	if s.by%2 == 0 {
		e.faults.Mend()
	}
}

func (r *trial) creates(e *end, s act) {
	r.async(s, func(context.Context) {
		ids, err := r.createFor(e, s.by+1, fmt.Sprint("owner-", s.which%3))
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			r.ids = append(r.ids, ids...)
		}
	})
}

func (r *trial) terminates(e *end, s act) {
	r.mu.Lock()
	ids := r.ids
	r.mu.Unlock()
	if len(ids) > 0 {
		id := ids[s.which%len(ids)]
		r.async(s, func(ctx context.Context) { _ = e.Instances.Terminate(ctx, id) })
	}
}

func (r *trial) joins(e *end, s act) {
	if len(r.nodes) < 3 {
		r.mend()
		r.join(e, "node", s.by+1)
	}
}

func (r *trial) deletes(e *end, s act) {
	if len(r.nodes) == 0 {
		return
	}
	i := s.which % len(r.nodes)
	id := r.nodes[i].NodeID
	r.nodes = slices.Delete(r.nodes, i, i+1)
	r.async(s, func(ctx context.Context) { _ = e.Nodes.Delete(ctx, id) })
}

func (r *trial) change(e *end, s act, change func(*farm.Node)) {
	if len(r.nodes) == 0 {
		return
	}
	id := r.nodes[s.which%len(r.nodes)].NodeID
	r.async(s, func(ctx context.Context) {
		_, _ = store.Update(ctx, e.store, e.tables.Nodes, id, func(n *farm.Node) (*farm.Node, error) {
			if n == nil {
				return nil, nil // it is already removed
			}
			n = n.Clone()
			change(n)
			return n, nil
		})
	})
}

// configures changes a node as an operator does.
func (r *trial) configures(e *end, s act) {
	if len(r.nodes) == 0 {
		return
	}
	mode, drain := farm.CapacityByVMs, s.by == 3
	if s.which >= 5 {
		mode = farm.CapacityByResources
	}
	conf := nodes.Config{Mode: &mode, Drain: &drain}
	switch {
	case mode == farm.CapacityByVMs:
		conf.Capacity = new(s.by + 1)
	case s.by > 1:
		conf.RAMOverride = new(512 * s.by)
	default:
		conf.VCPUOverride = new(s.by + 1)
	}
	if drain {
		conf.DrainFor = new(time.Duration(s.which) * 100 * time.Millisecond)
	}
	id := r.nodes[s.which%len(r.nodes)].NodeID
	r.async(s, func(ctx context.Context) { _ = e.Nodes.Configure(ctx, id, conf) })
}

// agents makes every node carry out its orders through one replica.
func (r *trial) agents(e *end, s act) {
	for _, node := range r.nodes {
		var statuses []api.InstanceStatus
		for i, o := range r.poll(e, node) {
			phase := api.PhaseRunning
			switch {
			case o.Kind == api.OrderTerminate:
				phase = api.PhaseTerminated
			case i == s.which:
				phase = api.PhaseFailed
			}
			p := api.InstanceStatus{InstanceID: o.InstanceID, Claim: o.Claim, No: 1, Phase: phase}
			if delete(r.held[node.NodeID], o.InstanceID); phase == api.PhaseRunning {
				r.held[node.NodeID][o.InstanceID] = api.InventoryItem{InstanceID: o.InstanceID, Claim: o.Claim}
			}
			statuses = append(statuses, p)
		}
		r.async(s, func(ctx context.Context) {
			_, _ = e.Link.Report(ctx, node.Credential, api.Report{
				Protocol: api.LinkProtocol, NodeID: node.NodeID, BootID: "boot", Statuses: statuses,
			})
		})
	}
}

// TestReplicasPlace lets two replicas place through lost leases, stuck and lost commits, restarts,
// and changes of the nodes. Nothing is placed twice or beyond the capacity of a node, a termination
// has precedence, and in the end nothing is pending while there is free capacity.
func TestReplicasPlace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := actsOf(deeds).Draw(rt, "steps")
		var broken []string
		synctest.Test(t, func(t *testing.T) { broken = try(t, steps) })
		if len(broken) > 0 {
			rt.Fatalf("%s", strings.Join(broken, "\n"))
		}
	})
}

// TestControllerStopsDuringARollback stops replicas while one of them still looks for instances of
// a failed creation: nothing of it continues.
func TestControllerStopsDuringARollback(t *testing.T) {
	steps := []act{
		{deed: "join", which: 3},
		{deed: "create", which: 6, by: 1},
		{deed: "configure", by: 1, wait: true},
		{deed: "agents", end: 1, by: 1, wait: true},
		{deed: "terminate", end: 1, which: 1, by: 3},
		{deed: "end in a pass", which: 1, by: 3},
		{deed: "agents"},
		{deed: "agents", which: 3},
	}
	synctest.Test(t, func(t *testing.T) {
		if broken := try(t, steps); len(broken) > 0 {
			t.Error(broken)
		}
	})
}

func try(t *testing.T, steps []act) []string {
	r := &trial{pair: newPair(t)}
	defer r.stop()
	for _, s := range steps {
		deeds[s.deed](r, r.ends[s.end], s)
	}
	r.mend()
	r.running.Wait()
	for _, e := range r.ends {
		for _, node := range r.nodes {
			r.poll(e, node)
		}
	}
	// A holder that lost the lease without notice learns it with its next write.
	for range 3 {
		for _, e := range r.ends {
			if ids, err := r.create(e, 1); err == nil {
				_ = e.Instances.Terminate(t.Context(), ids[0])
			}
		}
		time.Sleep(10 * time.Second)
	}
	r.judge.read(t, r.backend)
	if slots, waiting := r.judge.free(); slots > 0 && waiting > 0 {
		r.judge.blame(r.judge.next, "%d instances wait while %d slots are free", waiting, slots)
	}
	return r.judge.broken
}
