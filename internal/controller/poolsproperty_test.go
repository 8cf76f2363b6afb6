package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// standbyNode is a node that does what agents do with standbys.
type standbyNode struct {
	*agent
	orders  map[string]api.Order // of the VMs that it has
	booting map[string]bool
}

// obey carries out an order. A VM that has another claim than the order, or the one that the order takes over, stays.
func (n *standbyNode) obey(o api.Order, r *rand.Rand) {
	had, has := n.orders[o.InstanceID]
	switch {
	case o.Kind == api.OrderTerminate:
		n.drop(o.InstanceID)
		n.say(o, api.PhaseTerminated)
	case o.Kind != api.OrderStart || has && had.Claim != o.Claim && had.Claim != o.Start.TakesOver:
	case has && !n.booting[o.InstanceID] && had.Claim != o.Claim:
		n.orders[o.InstanceID] = o
		n.say(o, api.PhaseRunning)
	default:
		n.orders[o.InstanceID], n.booting[o.InstanceID] = o, true
		n.say(o, api.PhaseStarting)
		if r.IntN(2) == 0 {
			n.bootOne(o.InstanceID)
		}
	}
}

func (n *standbyNode) bootOne(id string) {
	delete(n.booting, id)
	n.say(n.orders[id], api.PhaseRunning)
}

func (n *standbyNode) drop(id string) {
	delete(n.orders, id)
	delete(n.booting, id)
	n.hold(api.Order{InstanceID: id}, false)
}

// work lets the node carry out what is ordered; each order is lost with some probability, to come again.
func (n *standbyNode) work(r *rand.Rand, lost float64) {
	orders := append(n.early, n.contact()...)
	n.early = nil
	for _, o := range orders {
		if r.Float64() < lost {
			continue
		}
		ack := api.Ack{InstanceID: o.InstanceID, Claim: o.Claim, Kind: o.Kind, Task: o.Task}
		n.obey(o, r)
		n.early = append(n.early, n.poll(api.PollRequest{Acks: []api.Ack{ack}, HasHeld: true, Held: n.held}, 0)...)
	}
}

// poolWorld is two replicas with nodes and a pool, and the starts that were made.
type poolWorld struct {
	*cloud
	second *cloud
	nodes  []*standbyNode
	pool   *farm.Pool
	owners map[string]string // instance -> name that its start gave it
	claims map[string]bool   // of standbys, by instance
	starts int
	r      *rand.Rand
}

// TestStandbysHaveOneOwner applies random starts on two replicas, losses of nodes and VMs, changes of the pool and
// restarts. No standby becomes the instance of two starts, none has what a start asked for before its claim or lacks
// it afterwards, no client reaches one by its id, and in the end no VM and no record is left.
func TestStandbysHaveOneOwner(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6}
	if fulltest.All() {
		for range 60 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	claims := 0
	for _, seed := range seeds {
		claimed := map[string]bool{}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				w := &poolWorld{
					cloud: c, owners: map[string]string{}, claims: claimed, r: rand.New(rand.NewPCG(seed, 0)),
				}
				w.second = c.replica()
				defer w.second.stop()
				for _, name := range []string{"one", "two"} {
					w.nodes = append(w.nodes, &standbyNode{
						agent: c.poolNode(name, 6), orders: map[string]api.Order{}, booting: map[string]bool{},
					})
				}
				w.pool = c.pool(3)
				for range 80 {
					for _, n := range w.nodes {
						time.Sleep(time.Duration(w.r.IntN(1500)) * time.Millisecond)
						n.work(w.r, 0.2)
					}
					w.step()
					w.check()
				}
				w.finish()
			})
		})
		claims += len(claimed)
	}
	if claims < len(seeds) {
		t.Errorf("%d claims in %d runs: too few to show anything", claims, len(seeds))
	}
}

// step does one random action.
func (w *poolWorld) step() {
	replica := []*cloud{w.cloud, w.second}[w.r.IntN(2)]
	node := w.nodes[w.r.IntN(len(w.nodes))]
	switch w.r.IntN(16) {
	case 0, 1, 2:
		w.startBoth()
	case 3, 4, 5, 6:
		if id, ok := pick(w.r, node.booting); ok {
			node.bootOne(id)
		}
	case 7: // a VM crashes or disappears
		if id, ok := pick(w.r, node.orders); ok && w.r.IntN(2) == 0 {
			delete(node.booting, id)
			node.say(node.orders[id], api.PhaseStopped)
		} else if ok {
			node.drop(id)
			node.early = append(node.early, node.contact()...)
		}
	case 8, 9, 10, 11: // instances end, and a client tries standbys
		for id, inst := range maps.Collect(replica.tables.Instances.All()) {
			if w.r.IntN(2) == 0 {
				continue
			}
			err := replica.Instances.Terminate(w.t.Context(), id)
			if inst.IsStandby() && farm.CodeOf(err) != farm.CodeNotFound {
				w.t.Fatalf("terminating standby %s: %v", id, err)
			}
		}
	case 12, 13:
		w.changePool(replica)
	case 14:
		if w.r.IntN(3) == 0 {
			w.restart()
		}
	case 15:
		if w.r.IntN(3) == 0 {
			time.Sleep(time.Duration(1+w.r.IntN(4)) * time.Minute) // the nodes are lost
		}
	}
}

// pick returns a key of a map.
func pick[V any](r *rand.Rand, m map[string]V) (key string, ok bool) {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return "", false
	}
	return keys[r.IntN(len(keys))], true
}

// changePool changes what the pool keeps.
func (w *poolWorld) changePool(replica *cloud) {
	idle, tag, age := w.r.IntN(5), []string{"", "v1"}[w.r.IntN(2)], int64(w.r.IntN(2)*60)
	err := replica.Pools.Update(w.t.Context(), w.pool.ID, func(p *farm.Pool) {
		p.MinIdle, p.Tag, p.MaxAge = idle, tag, age
	})
	if err != nil && farm.CodeOf(err) != farm.CodeConflict {
		w.t.Fatal(err)
	}
}

// startBoth makes a start on each replica at the same time.
func (w *poolWorld) startBoth() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, replica := range []*cloud{w.cloud, w.second} {
		w.starts++
		req := StartRequest{
			TemplateID: templateID, Name: fmt.Sprint("start-", w.starts), Count: 1 + w.r.IntN(2),
			Options: farm.StartOptions{Priority: farm.DefaultPriority, Script: []byte("true")},
		}
		if w.r.IntN(3) == 0 {
			req.Tag = "v1"
		}
		wg.Go(func() {
			ids, err := replica.Start(w.t.Context(), req)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				w.t.Errorf("start: %v", err)
			}
			for _, id := range ids {
				if former, used := w.owners[id]; used {
					w.t.Errorf("instance %s belongs to %s and %s", id, former, req.Name)
				}
				w.owners[id] = req.Name
			}
		})
	}
	wg.Wait()
}

// check compares the records of both replicas with the starts.
func (w *poolWorld) check() {
	w.t.Helper()
	synctest.Wait()
	for _, replica := range []*cloud{w.cloud, w.second} {
		for id, inst := range replica.tables.Instances.All() {
			name, owned := w.owners[id]
			if inst.Claimed != nil {
				w.claims[id] = true
			}
			switch {
			case inst.IsStandby() && (owned || inst.Name != "" || inst.Owner != "" || inst.Claimed != nil ||
				inst.Options.ScriptID != ""):
				w.t.Fatalf("standby with the properties of a start: %+v", inst)
			case !inst.IsStandby() && (!owned || inst.Name != name || inst.Options.ScriptID == ""):
				w.t.Fatalf("instance of %q: %+v", name, inst)
			}
		}
	}
	for _, n := range w.nodes {
		for id, o := range n.orders {
			if inst, _, ok := w.tables.Instances.Get(id); ok && inst.NodeID == n.id && !inst.Holds(o.Claim) {
				w.t.Fatalf("VM %s has claim %s, its record %s", id, o.Claim, inst.Claim)
			}
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// finish ends everything and checks that nothing is left.
func (w *poolWorld) finish() {
	if err := w.Pools.Delete(w.t.Context(), w.pool.ID); err != nil {
		w.t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(w.owners)) {
		if err := w.Instances.Terminate(w.t.Context(), id); err != nil && farm.CodeOf(err) != farm.CodeNotFound {
			w.t.Fatal(err)
		}
	}
	w.t.Logf("%d starts, %d claims", w.starts, len(w.claims))
	for range 120 {
		time.Sleep(10 * time.Second)
		left := w.tables.Instances.Len()
		for _, n := range w.nodes {
			n.work(w.r, 0)
			left += len(n.orders)
		}
		if left == 0 {
			break
		}
	}
	for id, inst := range w.tables.Instances.All() {
		w.t.Errorf("record %s is left: %+v", id, inst)
	}
	for _, n := range w.nodes {
		for id, o := range n.orders {
			w.t.Errorf("VM %s is left on node %s: %+v", id, n.id, o)
		}
		w.wantSlots(n.agent, 0)
	}
}
