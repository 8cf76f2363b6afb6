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
	// maxCachedSegments bounds the memory of windows, each segment has 48 bytes.
	maxCachedSegments = 1 << 17
)

// segmentCache caches the segments of parts of a disk, since finding the position of a block again requires a
// search in the index of each layer of the chain.
type segmentCache struct {
	mu           sync.Mutex // guards the fields below
	byWindow     map[int64][]segment
	windows      []int64 // numbers of windows, the oldest first
	segmentCount int     // segments of all
}

// window returns the segments of a window in order. They must not be changed.
func (w *segmentCache) window(chain []*Index, number int64) []segment {
	w.mu.Lock()
	all, ok := w.byWindow[number]
	w.mu.Unlock()
	if ok {
		return all
	}
	begin, size := number*windowBytes, chain[len(chain)-1].contentSize
	s := newChainWalk(chain, begin, min(begin+windowBytes, size))
	for g, more := s.next(); more; g, more = s.next() {
		all = append(all, g)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(number, append(make([]segment, 0, len(all)), all...)) // without spare capacity
	return all
}

func (w *segmentCache) addLocked(number int64, all []segment) {
	if _, again := w.byWindow[number]; again {
		return
	}
	for len(w.windows) > 0 && w.segmentCount+len(all) > maxCachedSegments {
		w.segmentCount -= len(w.byWindow[w.windows[0]])
		delete(w.byWindow, w.windows[0])
		w.windows = w.windows[1:]
	}
	if w.byWindow == nil {
		w.byWindow = map[int64][]segment{}
	}
	w.byWindow[number] = all
	w.windows = append(w.windows, number)
	w.segmentCount += len(all)
}

// segmentsIn returns the segments that cover a range of the disk, in order and cut to it.
func (w *segmentCache) segmentsIn(chain []*Index, off, end int64) iter.Seq[segment] {
	return func(yield func(segment) bool) {
		for off < end {
			all := w.window(chain, off/windowBytes)
			i, _ := slices.BinarySearchFunc(all, off, compareSegmentEnd)
			for ; i < len(all) && off < end; i++ {
				g := all[i]
				g.extent = g.cutBefore(off)
				g.end = min(g.end, end)
				if !yield(g) {
					return
				}
				off = g.end
			}
		}
	}
}

// compareSegmentEnd compares segments in a search for the first one that ends behind off.
func compareSegmentEnd(g segment, off int64) int {
	if g.end <= off {
		return -1
	}
	return 1
}
