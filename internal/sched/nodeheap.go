package sched

import "cmp"

// candidate is a node that may take a group's requests, with its score when it was last rated. A
// score may only have become worse since: a node that became better is rated again.
type candidate struct {
	node    *node
	score   Score
	heapPos int32 // in nodeHeap.entries
}

// heapEntry is a candidate in the heap. It contains what decides its position, so that a heap of
// thousands of nodes has few cache misses.
type heapEntry struct {
	weight   uint64 // of the score
	tieBreak uint32 // of the node: of equal nodes the same one wins, in any order of arrival
	index    int32  // in nodeHeap.candidates
}

// nodeHeap orders candidates: a heap with four branches, best first.
type nodeHeap struct {
	indexOf     map[*node]int32 // where a node is in candidates
	candidates  []candidate
	freeIndexes []int32 // free indexes in candidates
	entries     []heapEntry
}

// newNodeHeap returns a nodeHeap of many candidates. Their nodes differ.
func newNodeHeap(list []candidate) nodeHeap {
	s := nodeHeap{indexOf: make(map[*node]int32, len(list)), candidates: list, entries: make([]heapEntry, len(list))}
	for i := range list {
		s.indexOf[list[i].node] = int32(i)
		s.setEntry(i, entryOf(&list[i], int32(i)))
	}
	for i := len(list) / heapArity; i >= 0; i-- {
		s.down(i)
	}
	return s
}

func entryOf(c *candidate, at int32) heapEntry {
	return heapEntry{c.score.weight(), c.node.tieBreak, at}
}

// setScore adds a node with a score, or changes its score.
func (s *nodeHeap) setScore(n *node, score Score) {
	if at, ok := s.indexOf[n]; ok {
		s.rescore(at, score)
		return
	}
	at := int32(len(s.candidates))
	if last := len(s.freeIndexes) - 1; last >= 0 {
		at, s.freeIndexes = s.freeIndexes[last], s.freeIndexes[:last]
	} else {
		s.candidates = append(s.candidates, candidate{})
	}
	if s.indexOf == nil {
		s.indexOf = map[*node]int32{}
	}
	s.indexOf[n] = at
	s.candidates[at] = candidate{node: n, score: score}
	s.entries = append(s.entries, heapEntry{})
	s.setEntry(len(s.entries)-1, entryOf(&s.candidates[at], at))
	s.up(len(s.entries) - 1)
}

// rescore sets the score of a candidate, and reports whether it differs.
func (s *nodeHeap) rescore(at int32, score Score) bool {
	c := &s.candidates[at]
	if c.score == score {
		return false
	}
	c.score = score
	s.entries[c.heapPos].weight = score.weight()
	s.fix(int(c.heapPos))
	return true
}

// removeNode removes a node.
func (s *nodeHeap) removeNode(n *node) {
	at, ok := s.indexOf[n]
	if !ok {
		return
	}
	i, last := int(s.candidates[at].heapPos), len(s.entries)-1
	delete(s.indexOf, n)
	s.candidates[at] = candidate{}
	s.freeIndexes = append(s.freeIndexes, at)
	moved := s.entries[last]
	if s.entries = s.entries[:last]; i < last {
		s.setEntry(i, moved)
		s.fix(i)
	}
}

// best returns the best candidate by the current scores, nil when there is none. It removes nodes
// that rate no longer accepts.
func (s *nodeHeap) best(rate func(*node) (Score, bool)) *candidate {
	for len(s.entries) > 0 {
		at := s.entries[0].index
		score, ok := rate(s.candidates[at].node)
		switch {
		case !ok:
			s.removeNode(s.candidates[at].node)
		case !s.rescore(at, score):
			return &s.candidates[at]
		}
	}
	return nil
}

func (s *nodeHeap) setEntry(i int, to heapEntry) {
	s.entries[i] = to
	s.candidates[to.index].heapPos = int32(i)
}

const heapArity = 4

func (s *nodeHeap) before(a, b heapEntry) bool {
	switch {
	case a.weight != b.weight:
		return a.weight < b.weight
	case a.tieBreak != b.tieBreak:
		return a.tieBreak < b.tieBreak
	}
	return cmp.Less(s.candidates[a.index].node.ID, s.candidates[b.index].node.ID)
}

func (s *nodeHeap) fix(i int) {
	if !s.down(i) {
		s.up(i)
	}
}

func (s *nodeHeap) up(i int) {
	v := s.entries[i]
	for i > 0 {
		parent := (i - 1) / heapArity
		if !s.before(v, s.entries[parent]) {
			break
		}
		s.setEntry(i, s.entries[parent])
		i = parent
	}
	s.setEntry(i, v)
}

// down moves an entry down and reports whether it moved.
func (s *nodeHeap) down(i int) bool {
	if i >= len(s.entries) {
		return false
	}
	v, start := s.entries[i], i
	for {
		first := heapArity*i + 1
		if first >= len(s.entries) {
			break
		}
		best := first
		for c := first + 1; c < min(first+heapArity, len(s.entries)); c++ {
			if s.before(s.entries[c], s.entries[best]) {
				best = c
			}
		}
		if !s.before(s.entries[best], v) {
			break
		}
		s.setEntry(i, s.entries[best])
		i = best
	}
	s.setEntry(i, v)
	return i != start
}

// tieBreakOf returns a hash of an ID (FNV-1a).
func tieBreakOf(id string) uint32 {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return h
}
