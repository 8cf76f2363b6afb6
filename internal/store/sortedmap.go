package store

import (
	"iter"
	"slices"
	"sort"
)

// chunkMax bounds a chunk: a write copies one chunk and the list of chunks, about 10 KiB at 100,000 keys.
const chunkMax = 128

// sortedMap is an immutable map sorted by key: a list of short sorted chunks. Reading needs no lock, a copy of the
// value is a snapshot. It changes through an edit.
type sortedMap[V any] struct {
	chunks []*chunk[V] // none is empty
	n      int
}

type chunk[V any] struct {
	owner *edit[V] // the edit that may change this chunk in place; meaningless once that edit is done
	keys  []string
	vals  []V
}

// chunkOf returns the index of the chunk that holds key or would hold it; 0 when the map is empty.
func (o sortedMap[V]) chunkOf(key string) int {
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i].keys[0] > key })
	return max(i-1, 0)
}

func (o sortedMap[V]) get(key string) (v V, ok bool) {
	if o.n == 0 {
		return v, false
	}
	c := o.chunks[o.chunkOf(key)]
	i, ok := slices.BinarySearch(c.keys, key)
	if !ok {
		return v, false
	}
	return c.vals[i], true
}

// from yields the pairs with a key >= start in order.
func (o sortedMap[V]) from(start string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if o.n == 0 {
			return
		}
		first := o.chunkOf(start)
		at, _ := slices.BinarySearch(o.chunks[first].keys, start)
		for _, c := range o.chunks[first:] {
			for i := at; i < len(c.keys); i++ {
				if !yield(c.keys[i], c.vals[i]) {
					return
				}
			}
			at = 0
		}
	}
}

// skip yields the keys in order without the first n.
func (o sortedMap[V]) skip(n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, c := range o.chunks {
			if n >= len(c.keys) {
				n -= len(c.keys)
				continue
			}
			for _, key := range c.keys[n:] {
				if !yield(key) {
					return
				}
			}
			n = 0
		}
	}
}

// edit collects changes to a map and copies every changed chunk one time. It is for one goroutine.
type edit[V any] struct {
	sortedMap[V]
}

func (o sortedMap[V]) edit() *edit[V] {
	return &edit[V]{sortedMap[V]{chunks: slices.Clone(o.chunks), n: o.n}}
}

// done ends the edit and returns the new map; the edit must not be used again. It drops its
// reference to the map: chunks refer to their edit for long, and would keep every chunk of their
// map in memory.
func (e *edit[V]) done() sortedMap[V] {
	made := e.sortedMap
	e.sortedMap = sortedMap[V]{}
	return made
}

func (e *edit[V]) own(i int) *chunk[V] {
	c := e.chunks[i]
	if c.owner != e {
		c = &chunk[V]{
			owner: e,
			keys:  append(make([]string, 0, chunkMax+1), c.keys...),
			vals:  append(make([]V, 0, chunkMax+1), c.vals...),
		}
		e.chunks[i] = c
	}
	return c
}

func (e *edit[V]) put(key string, v V) {
	if e.n == 0 {
		e.chunks = []*chunk[V]{{owner: e, keys: []string{key}, vals: []V{v}}}
		e.n = 1
		return
	}
	ci := e.chunkOf(key)
	c := e.own(ci)
	i, found := slices.BinarySearch(c.keys, key)
	if found {
		c.vals[i] = v
		return
	}
	e.n++
	c.keys = slices.Insert(c.keys, i, key)
	c.vals = slices.Insert(c.vals, i, v)
	if len(c.keys) > chunkMax {
		e.split(ci, i)
	}
}

// split halves chunk ci, or starts a fresh one when the last insertion went to the very end: ids grow with time,
// and halving would leave every chunk half empty.
func (e *edit[V]) split(ci, inserted int) {
	c := e.chunks[ci]
	at := len(c.keys) / 2
	if ci == len(e.chunks)-1 && inserted == len(c.keys)-1 {
		at = inserted
	}
	right := &chunk[V]{owner: e, keys: slices.Clone(c.keys[at:]), vals: slices.Clone(c.vals[at:])}
	clear(c.vals[at:])
	clear(c.keys[at:])
	c.keys, c.vals = c.keys[:at], c.vals[:at]
	e.chunks = slices.Insert(e.chunks, ci+1, right)
}

func (e *edit[V]) delete(key string) {
	if _, ok := e.get(key); !ok {
		return
	}
	ci := e.chunkOf(key)
	c := e.own(ci)
	i, _ := slices.BinarySearch(c.keys, key)
	c.keys = slices.Delete(c.keys, i, i+1)
	c.vals = slices.Delete(c.vals, i, i+1)
	e.n--
	e.shrink(ci)
}

// shrink removes chunk ci when it is empty and joins it with a neighbor when both are sparse.
func (e *edit[V]) shrink(ci int) {
	if len(e.chunks[ci].keys) == 0 {
		e.chunks = slices.Delete(e.chunks, ci, ci+1)
		return
	}
	e.join(ci)
	e.join(ci - 1)
}

// join puts chunk ci and the next one together if half a chunk holds both.
func (e *edit[V]) join(ci int) {
	if ci < 0 || ci+1 >= len(e.chunks) || len(e.chunks[ci].keys)+len(e.chunks[ci+1].keys) > chunkMax/2 {
		return
	}
	c, next := e.own(ci), e.chunks[ci+1]
	c.keys = append(c.keys, next.keys...)
	c.vals = append(c.vals, next.vals...)
	e.chunks = slices.Delete(e.chunks, ci+1, ci+2)
}
