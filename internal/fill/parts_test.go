package fill

import (
	"math/rand/v2"
	"testing"
)

// TestNodesFillDifferentParts: nodes that fill a disk at the same time, each in another order, and read from each
// other what they had some time ago, take little more than one copy from the registry.
func TestNodesFillDifferentParts(t *testing.T) {
	const (
		nodes   = 8
		frames  = 3000
		lag     = 2 // rounds after which others know what a node has
		workers = 4 // of each node
	)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		var queues []*Queue
		for range nodes {
			queues = append(queues, NewQueue(Options{Frames: frames, PartOrder: random.Perm(Parts(frames))}))
		}
		var known [frames]bool
		var recent [][]Batch // of the last rounds
		fromRegistry := 0
		for left := nodes; left > 0; {
			var round []Batch
			left = 0
			for i := range nodes * workers {
				q := queues[i%nodes]
				b, ok, err := q.Next(t.Context(), false)
				if err != nil || !ok {
					continue
				}
				left++
				for i := b.First; i < b.End; i++ {
					if !known[i] {
						fromRegistry++
					}
					q.Done(i)
				}
				round = append(round, b)
			}
			if recent = append(recent, round); len(recent) > lag {
				for _, b := range recent[0] {
					for i := b.First; i < b.End; i++ {
						known[i] = true
					}
				}
				recent = recent[1:]
			}
		}
		if copies := float64(fromRegistry) / frames; copies > 1.3 {
			t.Errorf("seed %d: the registry sent %.2f copies to %d nodes", seed, copies, nodes)
		} else if seed == 0 {
			t.Logf("the registry sent %.2f copies to %d nodes", copies, nodes)
		}
	}
}
