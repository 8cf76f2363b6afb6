package sched

// ordered is an element of a heapOf: it compares itself with others, and receives its position.
type ordered[T any] interface {
	before(T) bool
	moved(pos int)
}

// heapOf is a binary heap, best element first. The zero value is empty. Elements
// learn their position through moved, so that any one can be fixed or removed.
type heapOf[T ordered[T]] []T

// push adds an element.
func (h *heapOf[T]) push(v T) {
	*h = append(*h, v)
	h.up(len(*h) - 1)
}

// remove takes out the element at position i.
func (h *heapOf[T]) remove(i int) {
	s := *h
	last := len(s) - 1
	s[i].moved(-1)
	if i != last {
		s[i] = s[last]
	}
	var zero T
	s[last] = zero
	*h = s[:last]
	if i != last {
		h.fix(i)
	}
}

// fix restores the order after the element at position i changed.
func (h *heapOf[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heapOf[T]) up(i int) {
	s := *h
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			break
		}
		s[i], s[parent] = s[parent], s[i]
		s[i].moved(i)
		i = parent
	}
	s[i].moved(i)
}

// down moves the element at position i down and reports whether it moved.
func (h *heapOf[T]) down(i int) bool {
	s, start := *h, i
	for {
		best := 2*i + 1
		if best >= len(s) {
			break
		}
		if r := best + 1; r < len(s) && s[r].before(s[best]) {
			best = r
		}
		if !s[best].before(s[i]) {
			break
		}
		s[i], s[best] = s[best], s[i]
		s[i].moved(i)
		i = best
	}
	s[i].moved(i)
	return i != start
}
