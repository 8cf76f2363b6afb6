package sched

import (
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// crowd is an index of full nodes with 10,000 waiting requests spread over classes.
func crowd(nodes, classes int) *Index {
	x := New(Options{})
	for i := range nodes {
		x.SetNode(machine(fmt.Sprintf("n%04d", i), 2, func(n *Node) { n.Foreign = vms(2) }))
	}
	for i := range 10_000 {
		x.SetInstance(waiting(ask(fmt.Sprintf("r%05d", i), i/100, func(r *Request) {
			r.Template = fmt.Sprint("t", i%classes)
			r.ContentID = r.Template + "1"
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
				full.Foreign, free.Foreign = vms(2), vms(1)
				for b.Loop() {
					x.SetNode(free)
					a := x.Place(noon, 10)
					if len(a) != 1 {
						b.Fatalf("%d placements, want one", len(a))
					}
					x.SetNode(full)
					x.Unplace(a[0].RequestID)
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
						x.Unplace(p.RequestID)
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
// nothing in common: the worst case of keeping pools.
func BenchmarkManyDemands(b *testing.B) {
	x := New(Options{})
	x.SetNode(machine("n", 2, func(n *Node) { n.Mode, n.VCPULimit, n.MemoryLimitMB = farm.ByResource, 4, 1 }))
	for i := range 10_000 {
		x.SetInstance(waiting(ask(fmt.Sprint("r", i), 0, func(r *Request) { r.MemoryMB = 4096 + i })))
	}
	other := machine("other", 1, held("offline"))
	for b.Loop() {
		x.SetNode(other)
	}
}
