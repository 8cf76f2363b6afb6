package sched

import "cmp"

// candidate is a node that may take a group's requests, with its score when it was last rated. A
// score may only have become worse since: a node that became better is rated again.
type candidate struct {
	node  *node
	score Score
	pos   int32 // in nodeHeap.heap
}

// heapEntry is a candidate in the heap. It contains what decides its position, so that a heap of
// thousands of nodes has few cache misses.
type heapEntry struct {
	weight uint64 // of the score
	tie    uint32 // of the node: of equal nodes the same one wins, in any order of arrival
	at     int32  // in nodeHeap.all
}

// nodeHeap orders candidates: a heap with four branches, best first.
type nodeHeap struct {
	by    map[*node]int32 // where a node is in all
	all   []candidate
	spare []int32 // free indexes in all
	heap  []heapEntry
}

// fill returns a nodeHeap of many candidates. Their nodes differ.
func fill(list []candidate) nodeHeap {
	s := nodeHeap{by: make(map[*node]int32, len(list)), all: list, heap: make([]heapEntry, len(list))}
	for i := range list {
		s.by[list[i].node] = int32(i)
		s.set(i, slotOf(&list[i], int32(i)))
	}
	for i := len(list) / branches; i >= 0; i-- {
		s.down(i)
	}
	return s
}

func slotOf(c *candidate, at int32) heapEntry { return heapEntry{c.score.weight(), c.node.tie, at} }

// put adds a node with a score, or changes its score.
func (s *nodeHeap) put(n *node, score Score) {
	if at, ok := s.by[n]; ok {
		s.rescore(at, score)
		return
	}
	at := int32(len(s.all))
	if last := len(s.spare) - 1; last >= 0 {
		at, s.spare = s.spare[last], s.spare[:last]
	} else {
		s.all = append(s.all, candidate{})
	}
	if s.by == nil {
		s.by = map[*node]int32{}
	}
	s.by[n] = at
	s.all[at] = candidate{node: n, score: score}
	s.heap = append(s.heap, heapEntry{})
	s.set(len(s.heap)-1, slotOf(&s.all[at], at))
	s.up(len(s.heap) - 1)
}

// rescore sets the score of a candidate, and reports whether it differs.
func (s *nodeHeap) rescore(at int32, score Score) bool {
	c := &s.all[at]
	if c.score == score {
		return false
	}
	c.score = score
	s.heap[c.pos].weight = score.weight()
	s.fix(int(c.pos))
	return true
}

// drop removes a node.
func (s *nodeHeap) drop(n *node) {
	at, ok := s.by[n]
	if !ok {
		return
	}
	i, last := int(s.all[at].pos), len(s.heap)-1
	delete(s.by, n)
	s.all[at] = candidate{}
	s.spare = append(s.spare, at)
	moved := s.heap[last]
	if s.heap = s.heap[:last]; i < last {
		s.set(i, moved)
		s.fix(i)
	}
}

// top returns the best candidate by the current scores, nil when there is none. It removes nodes
// that rate no longer accepts.
func (s *nodeHeap) top(rate func(*node) (Score, bool)) *candidate {
	for len(s.heap) > 0 {
		at := s.heap[0].at
		score, ok := rate(s.all[at].node)
		switch {
		case !ok:
			s.drop(s.all[at].node)
		case !s.rescore(at, score):
			return &s.all[at]
		}
	}
	return nil
}

func (s *nodeHeap) set(i int, to heapEntry) {
	s.heap[i] = to
	s.all[to.at].pos = int32(i)
}

const branches = 4

func (s *nodeHeap) before(a, b heapEntry) bool {
	switch {
	case a.weight != b.weight:
		return a.weight < b.weight
	case a.tie != b.tie:
		return a.tie < b.tie
	}
	return cmp.Less(s.all[a.at].node.ID, s.all[b.at].node.ID)
}

func (s *nodeHeap) fix(i int) {
	if !s.down(i) {
		s.up(i)
	}
}

func (s *nodeHeap) up(i int) {
	v := s.heap[i]
	for i > 0 {
		parent := (i - 1) / branches
		if !s.before(v, s.heap[parent]) {
			break
		}
		s.set(i, s.heap[parent])
		i = parent
	}
	s.set(i, v)
}

// down moves an entry down and reports whether it moved.
func (s *nodeHeap) down(i int) bool {
	if i >= len(s.heap) {
		return false
	}
	v, start := s.heap[i], i
	for {
		first := branches*i + 1
		if first >= len(s.heap) {
			break
		}
		best := first
		for c := first + 1; c < min(first+branches, len(s.heap)); c++ {
			if s.before(s.heap[c], s.heap[best]) {
				best = c
			}
		}
		if !s.before(s.heap[best], v) {
			break
		}
		s.set(i, s.heap[best])
		i = best
	}
	s.set(i, v)
	return i != start
}

// tieOf returns a hash of an ID (FNV-1a).
func tieOf(id string) uint32 {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return h
}
