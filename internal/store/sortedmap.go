package store

import (
	"iter"
	"slices"
	"sort"
)

// maxChunkKeys bounds a chunk: a write copies one chunk and the list of chunks, about 10 KiB at 100,000 keys.
const maxChunkKeys = 128

// sortedMap is an immutable map sorted by key: a list of short sorted chunks. Reading needs no lock, a copy of the
// value is a snapshot. It changes through an edit.
type sortedMap[V any] struct {
	chunks []*mapChunk[V] // none is empty
	count  int
}

type mapChunk[V any] struct {
	owner  *mapEdit[V] // the edit that may change this chunk in place; meaningless once that edit is done
	keys   []string
	values []V
}

// chunkIndex returns the index of the chunk that holds key or would hold it; 0 when the map is empty.
func (o sortedMap[V]) chunkIndex(key string) int {
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i].keys[0] > key })
	return max(i-1, 0)
}

func (o sortedMap[V]) get(key string) (v V, ok bool) {
	if o.count == 0 {
		return v, false
	}
	c := o.chunks[o.chunkIndex(key)]
	i, ok := slices.BinarySearch(c.keys, key)
	if !ok {
		return v, false
	}
	return c.values[i], true
}

// rangeFrom yields the pairs with a key >= start in order.
func (o sortedMap[V]) rangeFrom(start string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if o.count == 0 {
			return
		}
		first := o.chunkIndex(start)
		at, _ := slices.BinarySearch(o.chunks[first].keys, start)
		for _, c := range o.chunks[first:] {
			for i := at; i < len(c.keys); i++ {
				if !yield(c.keys[i], c.values[i]) {
					return
				}
			}
			at = 0
		}
	}
}

// keysAfterFirst yields the keys in order without the first n.
func (o sortedMap[V]) keysAfterFirst(n int) iter.Seq[string] {
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

// mapEdit collects changes to a map and copies every changed chunk one time. It is for one goroutine.
type mapEdit[V any] struct {
	sortedMap[V]
}

func (o sortedMap[V]) beginEdit() *mapEdit[V] {
	return &mapEdit[V]{sortedMap[V]{chunks: slices.Clone(o.chunks), count: o.count}}
}

// finish ends the edit and returns the new map; the edit must not be used again. It drops its
// reference to the map: chunks refer to their edit for long, and would keep every chunk of their
// map in memory.
func (e *mapEdit[V]) finish() sortedMap[V] {
	made := e.sortedMap
	e.sortedMap = sortedMap[V]{}
	return made
}

func (e *mapEdit[V]) ownChunk(i int) *mapChunk[V] {
	c := e.chunks[i]
	if c.owner != e {
		c = &mapChunk[V]{
			owner:  e,
			keys:   append(make([]string, 0, maxChunkKeys+1), c.keys...),
			values: append(make([]V, 0, maxChunkKeys+1), c.values...),
		}
		e.chunks[i] = c
	}
	return c
}

func (e *mapEdit[V]) put(key string, v V) {
	if e.count == 0 {
		e.chunks = []*mapChunk[V]{{owner: e, keys: []string{key}, values: []V{v}}}
		e.count = 1
		return
	}
	ci := e.chunkIndex(key)
	c := e.ownChunk(ci)
	i, found := slices.BinarySearch(c.keys, key)
	if found {
		c.values[i] = v
		return
	}
	e.count++
	c.keys = slices.Insert(c.keys, i, key)
	c.values = slices.Insert(c.values, i, v)
	if len(c.keys) > maxChunkKeys {
		e.splitChunk(ci, i)
	}
}

// splitChunk halves chunk ci, or starts a fresh one when the last insertion went to the very end: ids grow with time,
// and halving would leave every chunk half empty.
func (e *mapEdit[V]) splitChunk(ci, inserted int) {
	c := e.chunks[ci]
	at := len(c.keys) / 2
	if ci == len(e.chunks)-1 && inserted == len(c.keys)-1 {
		at = inserted
	}
	right := &mapChunk[V]{owner: e, keys: slices.Clone(c.keys[at:]), values: slices.Clone(c.values[at:])}
	clear(c.values[at:])
	clear(c.keys[at:])
	c.keys, c.values = c.keys[:at], c.values[:at]
	e.chunks = slices.Insert(e.chunks, ci+1, right)
}

func (e *mapEdit[V]) delete(key string) {
	if _, ok := e.get(key); !ok {
		return
	}
	ci := e.chunkIndex(key)
	c := e.ownChunk(ci)
	i, _ := slices.BinarySearch(c.keys, key)
	c.keys = slices.Delete(c.keys, i, i+1)
	c.values = slices.Delete(c.values, i, i+1)
	e.count--
	e.shrinkChunk(ci)
}

// shrinkChunk removes chunk ci when it is empty and joins it with a neighbor when both are sparse.
func (e *mapEdit[V]) shrinkChunk(ci int) {
	if len(e.chunks[ci].keys) == 0 {
		e.chunks = slices.Delete(e.chunks, ci, ci+1)
		return
	}
	e.joinChunks(ci)
	e.joinChunks(ci - 1)
}

// joinChunks puts chunk ci and the next one together if half a chunk holds both.
func (e *mapEdit[V]) joinChunks(ci int) {
	if ci < 0 || ci+1 >= len(e.chunks) || len(e.chunks[ci].keys)+len(e.chunks[ci+1].keys) > maxChunkKeys/2 {
		return
	}
	c, next := e.ownChunk(ci), e.chunks[ci+1]
	c.keys = append(c.keys, next.keys...)
	c.values = append(c.values, next.values...)
	e.chunks = slices.Delete(e.chunks, ci+1, ci+2)
}
