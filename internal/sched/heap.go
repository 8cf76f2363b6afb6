package sched

// heapElement is an element of a indexedHeap: it compares itself with others, and receives its position.
type heapElement[T any] interface {
	before(T) bool
	setHeapPos(pos int)
}

// indexedHeap is a binary heap, best element first. The zero value is empty. Elements
// learn their position through moved, so that any one can be fixed or removed.
type indexedHeap[T heapElement[T]] []T

// push adds an element.
func (h *indexedHeap[T]) push(v T) {
	*h = append(*h, v)
	h.up(len(*h) - 1)
}

// remove takes out the element at position i.
func (h *indexedHeap[T]) remove(i int) {
	s := *h
	last := len(s) - 1
	s[i].setHeapPos(-1)
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
func (h *indexedHeap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *indexedHeap[T]) up(i int) {
	s := *h
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			break
		}
		s[i], s[parent] = s[parent], s[i]
		s[i].setHeapPos(i)
		i = parent
	}
	s[i].setHeapPos(i)
}

// down moves the element at position i down and reports whether it moved.
func (h *indexedHeap[T]) down(i int) bool {
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
		s[i].setHeapPos(i)
		i = best
	}
	s[i].setHeapPos(i)
	return i != start
}
