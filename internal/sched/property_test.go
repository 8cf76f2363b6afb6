package sched

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/farm"
)

// world is the expected content that an Index is compared with: what it was given, in maps, and the
// slots that its own assignments have used.
type world struct {
	x        *Index
	nodes    map[string]Node
	groups   map[string]farm.Group
	waiting  map[string]Request
	placed   map[string]Assignment // assigned, not stored yet
	held     map[string]string     // instance id -> node
	requests map[string]Request    // of the placed and held ones
	pulls    map[string]float64    // held instance -> progress of its pull
	failures []failure
	now      time.Time
	options  Options
	next     int
}

type failure struct {
	node string
	at   time.Time
}

func newWorld(o Options) *world {
	return &world{
		x: New(o), options: o, now: noon, pulls: map[string]float64{}, nodes: map[string]Node{},
		groups:  map[string]farm.Group{},
		waiting: map[string]Request{}, placed: map[string]Assignment{},
		held: map[string]string{}, requests: map[string]Request{},
	}
}

var (
	someGroups = []string{"", "g1", "g2", "g3"}
	someArchs  = []string{"amd64", "amd64", "amd64", "arm64"}
	someNodes  = []string{"n1", "n2", "n3", "n4", "n5"}
	someHosts  = []farm.StateRequirements{
		{Driver: "qemu", Version: "7.2.22", Machine: "m", Accelerator: "tcg", CPU: "max", HostCPU: "h1"},
		{Driver: "qemu", Version: "7.2.22", Machine: "m", Accelerator: "tcg", CPU: "max", HostCPU: "h2"},
	}
)

func drawNode(t *rapid.T, id string) Node {
	n := Node{
		ID: id, Name: "name-" + id, Arch: rapid.SampledFrom(someArchs).Draw(t, "arch"),
		Groups:        rapid.SliceOfNDistinct(rapid.SampledFrom(someGroups[1:]), 0, 2, rapid.ID).Draw(t, "groups"),
		Unschedulable: rapid.SampledFrom([]string{"", "", "", "offline", "in drain mode"}).Draw(t, "held"),
		CapacityMode: rapid.SampledFrom([]farm.CapacityMode{farm.CapacityByVMs, farm.CapacityByResources}).Draw(t,
			"mode"),
		Capacity: rapid.IntRange(0, 4).Draw(t, "capacity"), VCPULimit: rapid.IntRange(0, 8).Draw(t, "vcpu"),
		MemoryLimitMB: rapid.IntRange(0, 8).Draw(t, "memory") * 1024,
		OrphanedLoad:  Load{VMs: rapid.IntRange(0, 2).Draw(t, "foreign")},
	}
	n.CPUs, n.MemoryMB = rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "cpus"),
		rapid.SampledFrom([]int{0, 1024, 4096}).Draw(t, "machine")
	n.StateSupport = rapid.SampledFrom(someHosts).Draw(t, "host")
	if rapid.Bool().Draw(t, "usb") {
		n.USBDevices = []farm.USBDevice{
			{Name: "phone", Location: "1"},
			{Name: "phone", Location: "2"},
			{Name: "key", Location: "3", Busy: rapid.Bool().Draw(t, "busy")},
		}
	}
	n.MacOS = rapid.Bool().Draw(t, "macos")
	if n.MacOS {
		n.MacOSOnly, n.MaxMacOSVMs = rapid.Bool().Draw(t, "macos only"), rapid.IntRange(0, 2).Draw(t, "macos vms")
	}
	n.LacksAbilities = rapid.SampledFrom([]farm.AbilitySet{0, 0, farm.HasVGA, farm.AllAbilities}).Draw(t, "lacks")
	n.Bridge = rapid.Bool().Draw(t, "bridge")
	n.VLANs = rapid.SliceOfDistinct(rapid.SampledFrom([]int{10, 20}), rapid.ID).Draw(t, "vlans")
	for _, v := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"t0", "t1", "u0"}), rapid.ID).Draw(t, "cached") {
		n.CachedVersions = append(n.CachedVersions,
			farm.NodeTemplate{ID: v[:1], ContentID: v, Size: int64(rapid.IntRange(0, 3).Draw(t, "size")) * gigabyte})
	}
	return n
}

func drawRequest(t *rapid.T, id string) Request {
	v := rapid.SampledFrom([]string{"t0", "t1", "u0"}).Draw(t, "version")
	r := Request{
		ID: id, Created: noon.Add(time.Duration(rapid.IntRange(-5000, 0).Draw(t, "created")) * time.Second),
		Priority:   rapid.SampledFrom([]int{1, 500, 1000, 1500, 10000}).Draw(t, "priority"),
		Owner:      rapid.SampledFrom([]string{"o1", "o2", "o3"}).Draw(t, "owner"),
		GroupID:    rapid.SampledFrom(append(someGroups, "", "g1")).Draw(t, "group"),
		Arch:       rapid.SampledFrom(someArchs).Draw(t, "arch"),
		TemplateID: v[:1], ContentID: v, VersionBytes: int64(rapid.IntRange(0, 2).Draw(t, "size")) * gigabyte,
	}
	r.VCPU = rapid.SampledFrom([]int{0, 2, 2, 2}).Draw(t, "vcpu") // few sizes, so that requests share groups
	r.MemoryMB = r.VCPU * 1024
	if rapid.IntRange(0, 5).Draw(t, "pin?") == 0 {
		r.PinnedNodeID = rapid.SampledFrom(someNodes).Draw(t, "pin")
	}
	if rapid.IntRange(0, 5).Draw(t, "usb?") == 0 {
		r.USB = rapid.SampledFrom([]string{"phone", "phone", "1", "key"}).Draw(t, "usb")
	}
	if rapid.IntRange(0, 5).Draw(t, "network?") == 0 {
		r.Bridge, r.VLAN = true, rapid.SampledFrom([]int{0, 10, 20}).Draw(t, "vlan")
	}
	r.MacOS = rapid.IntRange(0, 3).Draw(t, "macos?") == 0
	if rapid.IntRange(0, 5).Draw(t, "ability?") == 0 {
		r.Abilities = rapid.SampledFrom([]farm.AbilitySet{farm.HasVGA, farm.CanSetMAC}).Draw(t, "ability")
	}
	if rapid.IntRange(0, 3).Draw(t, "saved?") == 0 {
		r.StateNeeds = rapid.SampledFrom(someHosts).Draw(t, "needs")
	}
	return r
}

// step makes one random change to the index and to the expected content.
func (w *world) step(t *rapid.T) {
	node := rapid.SampledFrom(someNodes).Draw(t, "node")
	switch rapid.IntRange(0, 11).Draw(t, "what") {
	case 0, 1: // a node's description changes; its instances stay
		n := drawNode(t, node)
		w.nodes[n.ID] = n
		w.x.SetNode(n)
	case 2:
		w.x.RemoveNode(node)
		delete(w.nodes, node)
		for id, a := range w.placed {
			if a.NodeID == node { // its commit fails
				w.unplace(id)
			}
		}
	case 3:
		g := farm.Group{ID: rapid.SampledFrom(someGroups[1:]).Draw(t,
			"group"), Fallback: rapid.SampledFrom(someGroups).Draw(t, "fallback")}
		w.groups[g.ID] = g
		w.x.SetGroup(g)
	case 4, 5:
		w.next++
		r := drawRequest(t, fmt.Sprintf("r%03d", w.next))
		w.waiting[r.ID] = r
		w.x.SetInstance(waiting(r))
	case 6: // a commit fails or succeeds
		if len(w.placed) > 0 {
			w.reorderGroup(t, rapid.SampledFrom(sortedKeys(w.placed)).Draw(t, "settled"))
		}
	case 7: // an instance ends
		if len(w.held) > 0 {
			id := rapid.SampledFrom(sortedKeys(w.held)).Draw(t, "ended")
			delete(w.held, id)
			delete(w.requests, id)
			delete(w.pulls, id)
			w.x.RemoveInstance(id)
		}
	case 8: // a request goes
		if len(w.waiting) > 0 {
			id := rapid.SampledFrom(sortedKeys(w.waiting)).Draw(t, "gone")
			delete(w.waiting, id)
			w.x.RemoveInstance(id)
		}
	default:
		w.stepBeside(t, node)
	}
}

// stepBeside makes changes that affect only how good nodes are.
func (w *world) stepBeside(t *rapid.T, node string) {
	switch rapid.IntRange(0, 2).Draw(t, "beside") {
	case 0: // a pull begins, continues or ends
		if len(w.held) == 0 {
			return
		}
		id := rapid.SampledFrom(sortedKeys(w.held)).Draw(t, "pulls")
		if w.pulls[id] = rapid.Float64Range(-0.1, 1).Draw(t, "progress"); w.pulls[id] < 0 {
			delete(w.pulls, id)
		}
		w.x.SetInstance(w.instance(id))
	case 1:
		f := failure{node, w.now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute)}
		w.failures = append(w.failures, f)
		w.x.RecordStartFailure(f.node, f.at)
	default:
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
	}
}

// instance returns an instance that uses capacity.
func (w *world) instance(id string) Instance {
	i := on(w.located()[id], w.requests[id])
	i.Progress = w.pulls[id]
	_, i.Pulling = w.pulls[id]
	return i
}

func (w *world) unplace(id string) {
	w.x.UndoPlacement(id)
	r := w.requests[id]
	r.USBLocation = ""
	w.waiting[id] = r
	delete(w.placed, id)
}

func (w *world) reorderGroup(t *rapid.T, id string) {
	a := w.placed[id]
	if rapid.Bool().Draw(t, "failed") {
		w.unplace(id)
		return
	}
	w.x.SetInstance(on(a.NodeID, w.requests[id]))
	w.held[id] = a.NodeID
	delete(w.placed, id)
}

// place runs Place and checks every assignment against the expected content.
func (w *world) place(t *rapid.T, limit int) {
	fresh := w.rebuilt(t)
	fresh.resetFailures(w.now)
	w.x.resetFailures(w.now)
	if d := cmp.Diff(derived(fresh), derived(w.x)); d != "" {
		t.Fatalf("an index rebuilt from scratch holds something else (-rebuilt +incremental):\n%s", d)
	}
	w.x.check(t)
	got := w.x.Place(w.now, limit)
	if d := cmp.Diff(fresh.Place(w.now, limit), got); d != "" && w.options.LocalityWait == 0 {
		t.Fatalf("an index rebuilt from scratch answers otherwise (-rebuilt +incremental):\n%s", d)
	}
	for _, a := range got {
		r, n := w.waiting[a.RequestID], w.nodes[a.NodeID]
		w.checkConstraints(t, r, n)
		r.USBLocation = a.USBLocation
		w.placed[a.RequestID], w.requests[a.RequestID] = a, r
		delete(w.waiting, a.RequestID)
		w.checkRoom(t, n, r)
	}
	if len(got) < limit {
		for _, id := range sortedKeys(w.waiting) {
			if why := w.x.PendingReason(id, w.now); why.Name == ReasonTurn {
				t.Fatalf("%s was passed over although a node can take it: %+v", id, w.x.Explain(id, noon))
			}
		}
	}
}

// derived is what an index computed from its content, as far as that does not depend on the order
// of calls.
func derived(x *Index) map[string]any {
	rooms, nodes, tenants, pools := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	for id, r := range x.usages {
		pulls := map[string]any{}
		for content, p := range r.pulls {
			pulls[content] = fmt.Sprint(p.templateID, p.progress)
		}
		rooms[id] = fmt.Sprint(r.used, r.usb, pulls, len(r.failedStarts), r.node != nil)
	}
	for id, n := range x.nodes {
		nodes[id] = fmt.Sprint(n.usedLoad, n.loadMillionths, n.recentFailures, n.devicesWithUse, n.cachedContents,
			n.largestCached)
	}
	for id, t := range x.groupQueues {
		owners := map[string]int{}
		for name, o := range t.owners {
			owners[name] = o.pendingCount
		}
		tenants[id] = fmt.Sprint(t.pendingCount, owners)
	}
	for _, p := range x.requestGroups {
		if p.pendingCount > 0 {
			pools[fmt.Sprint(p.constraints)] = fmt.Sprint(p.pendingCount, p.distanceByGroup, p.groupName)
		}
	}
	sources := map[string]map[string]int(x.locations)
	return map[string]any{
		"rooms": rooms, "nodes": nodes, "tenants": tenants, "pools": pools, "sources": sources,
		"waiting": x.pendingCount,
	}
}

// check verifies that every node that can take a request is listed, and every class that waits for
// its version.
func (x *Index) check(t *rapid.T) {
	held := 0
	for _, p := range x.requestGroups {
		p.rescoreImproved()
		held += len(p.deferredClasses)
		kin := 0
		for _, list := range p.classesByTemplate {
			kin += len(list)
		}
		if kin != len(p.classes) {
			t.Fatalf("%d of %d classes are listed by their templates", kin, len(p.classes))
		}
		for _, c := range p.classes {
			if c.isDeferred != slices.Contains(p.deferredClasses, c) ||
				c.isDeferred && x.deferredClasses[c.heapPos] != c {
				t.Fatalf("a class that waits for its version: %t, listed: %t", c.isDeferred, !c.isDeferred)
			}
		}
		for id, n := range x.nodes {
			if _, ok := p.scoreNode(n); !ok {
				continue
			}
			if _, filed := p.candidates.indexOf[n]; !filed {
				t.Fatalf("node %s can take requests of %+v, which do not know it", id, p.constraints)
			}
			for v, c := range p.classes {
				_, filed := c.nodesWithContent.indexOf[n]
				if _, ok := c.scoreNode(n); ok && !filed {
					t.Fatalf("node %s has something of %v, whose requests do not know it", id, v)
				}
			}
		}
	}
	if held != len(x.deferredClasses) {
		t.Fatalf("%d classes wait for their versions, %d are listed", held, len(x.deferredClasses))
	}
}

// drain removes everything: nothing is left but a bounded number of request groups without nodes.
func (w *world) drain(t *rapid.T) {
	for _, id := range slices.Concat(sortedKeys(w.waiting), sortedKeys(w.located())) {
		w.x.RemoveInstance(id)
	}
	for id := range w.nodes {
		w.x.RemoveNode(id)
	}
	for id := range w.groups {
		w.x.RemoveGroup(id)
	}
	x := w.x
	x.Place(w.now.Add(failureWindow), 1)
	got := []int{
		len(x.nodes), len(x.groups), len(x.usages), len(x.locations), len(x.requests), x.pendingCount,
		len(x.groupQueues),
		len(x.readyGroups),
		len(x.deferredClasses), len(x.failingNodes), len(x.newlyStarved), len(x.starvedGroups), x.reservedNodes,
	}
	if slices.Max(got) != 0 || len(x.requestGroups) > maxIdleGroups {
		t.Fatalf("left are %v and %d pools", got, len(x.requestGroups))
	}
	for _, p := range x.requestGroups {
		near := 0
		for _, c := range p.classes {
			near += len(c.nodesWithContent.indexOf)
		}
		if len(p.candidates.indexOf) != 0 || near != 0 || p.reservedNode != nil || len(p.readyQueues) != 0 {
			t.Fatalf("an idle pool holds %d nodes and %d near ones: %+v", len(p.candidates.indexOf), near, p)
		}
	}
	for at, list := range x.wakeIndex.byKey {
		if len(list) == 0 {
			t.Fatalf("an empty list of %v is left", at)
		}
	}
	for at, list := range x.wakeIndex.pinned {
		if len(list) == 0 {
			t.Fatalf("an empty list of %v is left", at)
		}
	}
}

func (w *world) checkConstraints(t *rapid.T, r Request, n Node) {
	if r.ID == "" || n.ID == "" {
		t.Fatalf("assigned request %q to node %q, which are not there", r.ID, n.ID)
	}
	if n.Unschedulable != "" || r.Arch != n.Arch || (r.PinnedNodeID != "" && r.PinnedNodeID != n.ID) {
		t.Fatalf("%+v placed on %+v", r, n)
	}
	if r.VLAN != 0 && !slices.Contains(n.VLANs, r.VLAN) || r.VLAN == 0 && r.Bridge && !n.Bridge {
		t.Fatalf("%+v placed on a node without its network: %+v", r, n)
	}
	if (r.StateNeeds != farm.StateRequirements{}) && r.StateNeeds != n.StateSupport {
		t.Fatalf("%+v placed where its saved state does not load: %+v", r, n)
	}
	reach, g := map[string]bool{}, r.GroupID
	for g != "" && !reach[g] {
		reach[g] = true
		g = w.groups[g].Fallback
	}
	if r.GroupID != "" && !slices.ContainsFunc(n.Groups, func(g string) bool { return reach[g] }) {
		t.Fatalf("%+v placed outside its groups on %+v", r, n)
	}
}

// located returns the node of every instance that uses capacity.
func (w *world) located() map[string]string {
	out := maps.Clone(w.held)
	for id, a := range w.placed {
		out[id] = a.NodeID
	}
	return out
}

// checkRoom counts independently what is on a node after r was placed there.
func (w *world) checkRoom(t *rapid.T, n Node, r Request) {
	used := n.OrphanedLoad
	for id, node := range w.located() {
		if node != n.ID {
			continue
		}
		p := w.requests[id]
		used = used.add(loadOf(p.VCPU, p.MemoryMB))
		if p.MacOS {
			used.MacOSVMs++
		}
		if p.ID != r.ID && r.USBLocation != "" && p.USBLocation == r.USBLocation {
			t.Fatalf("%s and %s have the same device %s", r.ID, p.ID, r.USBLocation)
		}
	}
	if n.CapacityMode == farm.CapacityByVMs && used.VMs > n.Capacity ||
		n.CapacityMode == farm.CapacityByResources && (used.VCPU > n.VCPULimit || used.MemoryMB > n.MemoryLimitMB) {
		t.Fatalf("%s puts node %+v over its capacity: %+v", r.ID, n, used)
	}
	if r.MacOS && n.MaxMacOSVMs > 0 && used.MacOSVMs > n.MaxMacOSVMs {
		t.Fatalf("%s puts %d macOS guests on node %+v", r.ID, used.MacOSVMs, n)
	}
	if r.MacOS && !n.MacOS || !r.MacOS && n.MacOSOnly || r.Abilities&n.LacksAbilities != 0 {
		t.Fatalf("%+v placed where its guest does not run: %+v", r, n)
	}
	if n.CPUs > 0 && max(1, r.VCPU) > n.CPUs || n.MemoryMB > 0 && r.MemoryMB > n.MemoryMB {
		t.Fatalf("%s is larger than the machine of node %+v", r.ID, n)
	}
	free := func(d farm.USBDevice) bool { return d.Location == r.USBLocation && !d.Busy && matchesDevice(d, r.USB) }
	if (r.USB != "") != (r.USBLocation != "") || r.USB != "" && !slices.ContainsFunc(n.USBDevices, free) {
		t.Fatalf("%s got the USB device %q of node %+v", r.ID, r.USBLocation, n)
	}
}

// rebuilt returns a new Index of the expected content, fed in a random order, with reserved
// requests fed as stored.
func (w *world) rebuilt(t *rapid.T) *Index {
	x := New(w.options)
	var feed []func()
	for _, g := range w.groups {
		feed = append(feed, func() { x.SetGroup(g) })
	}
	for _, n := range w.nodes {
		feed = append(feed, func() { x.SetNode(n) })
	}
	feed = append(feed, func() { // in the order in which they came: only the latest ones count
		for _, f := range w.failures {
			x.RecordStartFailure(f.node, f.at)
		}
	})
	for _, r := range w.waiting {
		feed = append(feed, func() { x.SetInstance(waiting(r)) })
	}
	for id := range w.located() {
		feed = append(feed, func() { x.SetInstance(w.instance(id)) })
	}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	r.Shuffle(len(feed), func(i, j int) { feed[i], feed[j] = feed[j], feed[i] })
	for _, f := range feed {
		f()
	}
	x.remember(w.x)
	return x
}

// remember copies when each group and owner was served, which is not content of an index.
func (x *Index) remember(o *Index) {
	x.placementCount = o.placementCount
	for id, t := range o.groupQueues {
		if to := x.groupQueues[id]; to != nil {
			to.lastServed = t.lastServed
			for name, owner := range t.owners {
				to.owners[name].lastServed = owner.lastServed
			}
		}
	}
	for _, p := range x.requestGroups {
		if p.pendingCount > 0 {
			x.refresh(p)
		}
	}
}

// refresh updates the positions of all queues of a request group.
func (x *Index) refresh(p *requestGroup) {
	for _, q := range slices.Clone(p.mainQueue.queues) {
		p.mainQueue.updateKey(q, x.aging)
	}
	p.updateQueuePosition(p.mainQueue)
	x.updateGroupPosition(p)
}

// Never over capacity, never against constraints, no request passed over, and the same decisions as
// an index that is built from scratch from the same content in another order.
func TestPlaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Options{
			BinPack: rapid.Bool().Draw(t, "fit"), LocalityBytes: 1,
			LocalityWait: rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "wait"),
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.step(t)
			if rapid.IntRange(0, 3).Draw(t, "place?") == 0 {
				w.place(t, rapid.IntRange(1, 6).Draw(t, "limit"))
			}
		}
		w.place(t, 1000)
		w.now = w.now.Add(w.options.LocalityWait)
		w.place(t, 1000)
		for _, id := range sortedKeys(w.waiting) {
			if why := w.x.PendingReason(id, w.now); why.Name == ReasonLocality {
				t.Fatalf("%s still waits for its version", id)
			}
		}
		if wake := w.x.NextDeadline(); !wake.IsZero() {
			t.Fatalf("wakes at %v for nothing", wake)
		}
		w.drain(t)
	})
}

// However many urgent requests keep coming, one that is old enough is next.
func TestNoStarvation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(2, leastUrgentPriority).Draw(t, "priority of the old one")
		rate := rapid.Float64Range(0.01, 100).Draw(t, "points per second")
		x := New(Options{AgePerSecond: rate})
		node := machine("n", 1)
		x.SetNode(node)
		x.SetInstance(waiting(ask("old", 0, func(r *Request) { r.Priority = least })))

		bound := time.Duration(float64(least)/rate*float64(time.Second)) + time.Second
		pause := max(bound/20, time.Second)
		for i := 0; ; i++ {
			at := noon.Add(time.Duration(i) * pause)
			x.SetInstance(waiting(ask(fmt.Sprintf("urgent-%d", i), 0,
				func(r *Request) { r.Priority, r.Created = 1, at })))
			a := x.Place(at, 1)
			if len(a) != 1 {
				t.Fatal("a free slot was not used")
			}
			if a[0].RequestID == "old" {
				return
			}
			if at.Sub(noon) > bound+pause {
				t.Fatalf("priority %d still waits after %v at %v points a second", least, at.Sub(noon), rate)
			}
			x.RemoveInstance(a[0].RequestID)
		}
	})
}

// Fields of the heap's contract: what comes out is sorted, whatever was removed or changed.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h indexedHeap[*request]
		var all []*request
		for i, rank := range rapid.SliceOf(rapid.Int64Range(0, 20)).Draw(t, "ranks") {
			r := &request{Request: Request{ID: fmt.Sprint(i)}, rank: rank}
			all = append(all, r)
			h.push(r)
		}
		for range rapid.IntRange(0, len(all)).Draw(t, "changes") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			r := all[i]
			if rapid.Bool().Draw(t, "remove") {
				h.remove(r.heapPos)
				if all = slices.Delete(all, i, i+1); len(all) == 0 {
					break
				}
				continue
			}
			r.rank = rapid.Int64Range(0, 20).Draw(t, "rank")
			h.fix(r.heapPos)
		}
		slices.SortFunc(all, func(a, b *request) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
		for _, want := range all {
			if h[0] != want {
				t.Fatalf("got %s, want %s", h[0].ID, want.ID)
			}
			h.remove(0)
		}
	})
}
