package sched

import (
	"cmp"
	"slices"
)

// candidate is a node that may take a pool's requests, with its score as of when it
// was last looked at. A score may only have become worse since: a node that became
// better is looked at again.
type candidate struct {
	node   *node
	score  Score
	weight uint64 // of the score
	pos    int    // in shelf.best
}

func (c *candidate) moved(pos int) { c.pos = pos }

func (c *candidate) before(o *candidate) bool {
	if c.weight != o.weight {
		return c.weight < o.weight
	}
	return cmp.Less(c.node.ID, o.node.ID)
}

// rate rates the node anew and says whether that changed anything.
func (c *candidate) rate(s Score) bool {
	if s == c.score {
		return false
	}
	c.score, c.weight = s, s.weight()
	return true
}

// shelf orders candidates.
type shelf struct {
	by   map[*node]*candidate
	best heapOf[*candidate]
}

// fill makes a shelf of many candidates at once. Their nodes differ.
func fill(list []candidate) shelf {
	s := shelf{make(map[*node]*candidate, len(list)), make(heapOf[*candidate], 0, len(list))}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.weight, b.weight) }) // so that each stays where it is put
	for i := range list {
		s.by[list[i].node] = &list[i]
		s.best.push(&list[i])
	}
	return s
}

// put files a node with a score.
func (s *shelf) put(n *node, score Score) {
	c := s.by[n]
	switch {
	case c == nil:
		c = &candidate{node: n, score: score, weight: score.weight()}
		s.by[n] = c
		s.best.push(c)
	case c.rate(score):
		s.best.fix(c.pos)
	}
}

// drop takes a node out.
func (s *shelf) drop(n *node) {
	if c := s.by[n]; c != nil {
		s.best.remove(c.pos)
		delete(s.by, n)
	}
}

// top gives the best candidate by the scores of now, nil when there is none. Nodes
// that are rated no more leave.
func (s *shelf) top(rate func(*node) (Score, bool)) *candidate {
	for len(s.best) > 0 {
		c := s.best[0]
		score, ok := rate(c.node)
		switch {
		case !ok:
			s.drop(c.node)
		case c.rate(score):
			s.best.fix(0)
		default:
			return c
		}
	}
	return nil
}
