package blob

import (
	"iter"
	"slices"
	"sync"
)

const (
	// windowBytes is the part of a disk that is walked at a time. A smaller one is walked too often for
	// sequential readers, a larger one holds too many unused segments for random readers.
	windowBytes = 4 << 20
	// keptSegments bounds the memory of windows, each segment has 48 bytes.
	keptSegments = 1 << 17
)

// segmentCache caches the segments of parts of a disk, since finding the position of a block again requires a
// search in the index of each layer of the chain.
type segmentCache struct {
	mu    sync.Mutex // guards the fields below
	at    map[int64][]segment
	order []int64 // numbers of windows, the oldest first
	held  int     // segments of all
}

// get returns the segments of a window in order. They must not be changed.
func (w *segmentCache) get(chain []*Index, number int64) []segment {
	w.mu.Lock()
	all, ok := w.at[number]
	w.mu.Unlock()
	if ok {
		return all
	}
	begin, size := number*windowBytes, chain[len(chain)-1].size
	s := newChainWalk(chain, begin, min(begin+windowBytes, size))
	for g, more := s.next(); more; g, more = s.next() {
		all = append(all, g)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepLocked(number, append(make([]segment, 0, len(all)), all...)) // without spare capacity
	return all
}

func (w *segmentCache) keepLocked(number int64, all []segment) {
	if _, again := w.at[number]; again {
		return
	}
	for len(w.order) > 0 && w.held+len(all) > keptSegments {
		w.held -= len(w.at[w.order[0]])
		delete(w.at, w.order[0])
		w.order = w.order[1:]
	}
	if w.at == nil {
		w.at = map[int64][]segment{}
	}
	w.at[number] = all
	w.order = append(w.order, number)
	w.held += len(all)
}

// segments returns the segments that cover a range of the disk, in order and cut to it.
func (w *segmentCache) segments(chain []*Index, off, end int64) iter.Seq[segment] {
	return func(yield func(segment) bool) {
		for off < end {
			all := w.get(chain, off/windowBytes)
			i, _ := slices.BinarySearchFunc(all, off, endsAfter)
			for ; i < len(all) && off < end; i++ {
				g := all[i]
				g.extent = g.from(off)
				g.end = min(g.end, end)
				if !yield(g) {
					return
				}
				off = g.end
			}
		}
	}
}

// endsAfter compares segments in a search for the first one that ends behind off.
func endsAfter(g segment, off int64) int {
	if g.end <= off {
		return -1
	}
	return 1
}
