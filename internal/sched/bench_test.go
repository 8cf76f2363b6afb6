package sched

import (
	"fmt"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// crowd is an index of full nodes with 10,000 waiting requests spread over classes.
func crowd(nodes, classes int) *Index {
	x := New(Options{})
	for i := range nodes {
		x.SetNode(machine(fmt.Sprintf("n%04d", i), 2, func(n *Node) { n.OrphanedLoad = vms(2) }))
	}
	for i := range 10_000 {
		x.SetInstance(waiting(ask(fmt.Sprintf("r%05d", i), i/100, func(r *Request) {
			r.TemplateID = fmt.Sprint("t", i%classes)
			r.ContentID = r.TemplateID + "1"
		})))
	}
	return x
}

// BenchmarkFreedSlot is one slot becoming free in a full cloud with 10,000 waiting:
// the node's change, the placement, and the request returning to the queue.
func BenchmarkFreedSlot(b *testing.B) {
	for _, nodes := range []int{10, 100, 1000} {
		for _, classes := range []int{1, 1000} {
			b.Run(fmt.Sprintf("nodes=%d/classes=%d", nodes, classes), func(b *testing.B) {
				x := crowd(nodes, classes)
				full, free := machine("n0000", 2), machine("n0000", 2)
				full.OrphanedLoad, free.OrphanedLoad = vms(2), vms(1)
				for b.Loop() {
					x.SetNode(free)
					a := x.Place(noon, 10)
					if len(a) != 1 {
						b.Fatalf("%d placements, want one", len(a))
					}
					x.SetNode(full)
					x.UndoPlacement(a[0].RequestID)
				}
			})
		}
	}
}

// BenchmarkPlace is the placement of a batch of 100 out of 10,000 waiting into
// empty nodes, and its return; ns/op divided by 100 is one placement.
func BenchmarkPlace(b *testing.B) {
	for _, nodes := range []int{10, 100, 1000} {
		for _, classes := range []int{1, 100} {
			b.Run(fmt.Sprintf("nodes=%d/classes=%d", nodes, classes), func(b *testing.B) {
				x := crowd(nodes, classes)
				for i := range nodes {
					x.SetNode(machine(fmt.Sprintf("n%04d", i), 100))
				}
				for b.Loop() {
					a := x.Place(noon, 100)
					if len(a) != 100 {
						b.Fatalf("%d placements, want 100", len(a))
					}
					b.StopTimer()
					for _, p := range a {
						x.UndoPlacement(p.RequestID)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkArrival is one request that comes to an idle cloud and is placed.
func BenchmarkArrival(b *testing.B) {
	for _, nodes := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			x := New(Options{})
			for i := range nodes {
				x.SetNode(machine(fmt.Sprintf("n%04d", i), 2, caching("t", "t1")))
			}
			r := ask("r", 0)
			for b.Loop() {
				x.SetInstance(Instance{Request: r})
				if a := x.Place(noon, 10); len(a) != 1 {
					b.Fatalf("%d placements, want one", len(a))
				}
				x.RemoveInstance(r.ID)
			}
		})
	}
}

// BenchmarkManyDemands is a node's change while 10,000 requests wait that have
// nothing in common: the node is large enough for 905 of them.
func BenchmarkManyDemands(b *testing.B) {
	x := New(Options{})
	x.SetNode(machine("n", 2, func(n *Node) {
		n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources,
			4, 1
	}))
	for i := range 10_000 {
		x.SetInstance(waiting(ask(fmt.Sprint("r", i), 0, func(r *Request) { r.MemoryMB = 4096 + i })))
	}
	other := machine("other", 1, func(n *Node) {
		n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources, 4,
			5000
	})
	for b.Loop() {
		x.SetNode(other)
	}
}

// farmOf is an index of nodes that have all three templates, with a number of
// instances on them, and waiting requests of 20 sizes in 3 versions.
func farmOf(nodes, capacity, running, queued int) *Index {
	x := New(Options{LocalityWait: 10 * time.Second, LocalityBytes: 4 * gigabyte})
	for i := range nodes {
		x.SetNode(machine(fmt.Sprintf("n%05d", i), capacity, caching("t0", "t00"), caching("t1", "t10"),
			caching("t2", "t20")))
	}
	for i := range running {
		x.SetInstance(on(fmt.Sprintf("n%05d", i%nodes), ask(fmt.Sprintf("i%06d", i), 0, kind(i))))
	}
	for i := range queued {
		x.SetInstance(waiting(ask(fmt.Sprintf("r%06d", i), i/100, kind(i))))
	}
	return x
}

// kind assigns one of 20 sizes, 3 versions and 7 owners to a request.
func kind(i int) func(*Request) {
	return func(r *Request) {
		r.VCPU = 1 + i%20
		r.TemplateID = fmt.Sprint("t", i%3)
		r.ContentID = r.TemplateID + "0"
		r.Owner = fmt.Sprint("o", i%7)
	}
}

// BenchmarkLargeNodeChange is a node of 10,000 getting a slot and losing it again, while requests
// of 20 request groups and 3 classes wait: two changes of a node.
func BenchmarkLargeNodeChange(b *testing.B) {
	for _, running := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("running=%d", running), func(b *testing.B) {
			x := farmOf(10_000, 10, running, 6000)
			if running == 0 {
				x.Place(noon, 6000)
			}
			id := "n05000"
			less, more := x.nodes[id].Node, x.nodes[id].Node
			more.Capacity++
			for b.Loop() {
				x.SetNode(more)
				x.SetNode(less)
			}
		})
	}
}

// BenchmarkLargePlace is the end of an instance in 10,000 nodes, 20 request groups and 3 classes,
// and the arrival and placement of another one.
func BenchmarkLargePlace(b *testing.B) {
	for _, running := range []int{0, 50_000} {
		b.Run(fmt.Sprintf("running=%d", running), func(b *testing.B) {
			x := farmOf(10_000, 10, running, 6000)
			placed, next := x.Place(noon, 6000), 0
			for b.Loop() {
				a := placed[next%len(placed)]
				x.RemoveInstance(a.RequestID)
				x.SetInstance(waiting(ask(a.RequestID, next, kind(next))))
				if got := x.Place(noon, 1); len(got) != 1 {
					b.Fatalf("%d placements, want one", len(got))
				}
				next++
			}
		})
	}
}

// BenchmarkLargeLife is an instance that comes to 10,000 nodes, is placed, and ends.
func BenchmarkLargeLife(b *testing.B) {
	x := farmOf(10_000, 10, 50_000, 60)
	x.Place(noon, 60) // makes the request groups
	i := 0
	for b.Loop() {
		x.SetInstance(waiting(ask("r", i, kind(i))))
		if got := x.Place(noon, 10); len(got) != 1 {
			b.Fatalf("%d placements, want one", len(got))
		}
		x.RemoveInstance("r")
		i++
	}
}

// BenchmarkLargeFirst is the first request of its kind in 10,000 nodes.
func BenchmarkLargeFirst(b *testing.B) {
	x := farmOf(10_000, 10, 50_000, 0)
	i := 0
	for b.Loop() {
		x.SetInstance(waiting(ask("r", i, kind(i), func(r *Request) { r.MemoryMB = i })))
		if got := x.Place(noon, 10); len(got) != 1 {
			b.Fatalf("%d placements, want one", len(got))
		}
		x.RemoveInstance("r")
		i++
	}
}

// BenchmarkManyOwners is a slot of a full cloud of 10,000 nodes being freed and assigned to the
// next of 10,000 requests, each with a different owner.
func BenchmarkManyOwners(b *testing.B) {
	x := farmOf(10_000, 1, 10_000, 0)
	for i := range 10_000 {
		x.SetInstance(waiting(ask(fmt.Sprintf("r%06d", i), i/100, kind(i), func(r *Request) { r.Owner = r.ID })))
	}
	for b.Loop() {
		x.RemoveInstance("i000000")
		a := x.Place(noon, 10)
		if len(a) != 1 {
			b.Fatalf("%d placements, want one", len(a))
		}
		x.SetInstance(on("n00000", ask("i000000", 0)))
		x.UndoPlacement(a[0].RequestID)
	}
}
