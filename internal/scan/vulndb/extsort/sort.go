// Package extsort sorts more records than fit in memory: the rest goes into sorted temporary files,
// which are merged at the end.
//
// It does not interpret records. Records with equal keys are sorted by their values, and equal
// records are returned as often as they were added.
//
// Invariant: the output is in the order of the bytes, whatever order the records came in, and
// however often the memory was full.
package extsort

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

const (
	recordOverhead = 16 // bytes of memory in addition to its key and value
	maxRecordBytes = 64 << 20
	minMemory      = 1 << 20
)

// Sorter collects records and returns them sorted. One goroutine uses it.
type Sorter struct {
	tempDir   string // of temporary files
	maxMemory int    // bytes of memory

	arena    []byte
	records  []record
	runFiles []*os.File
}

// record is where a key and a value are in the arena.
type record struct{ offset, keyEnd, valueEnd uint32 }

// New returns a sorter that keeps about most bytes in memory, and the rest in files in a directory.
// They have no names: a killed process leaves none behind.
func New(dir string, most int) *Sorter {
	return &Sorter{tempDir: dir, maxMemory: min(max(most, minMemory), 1<<30)}
}

// Add adds a record.
func (s *Sorter) Add(key, value []byte) error {
	size := len(key) + len(value)
	if size > maxRecordBytes {
		return fmt.Errorf("a record of %d bytes is too long to sort", size)
	}
	if len(s.records) > 0 && len(s.arena)+size+recordOverhead*(len(s.records)+1) > s.maxMemory {
		if err := s.spill(); err != nil {
			return fmt.Errorf("sort records in %s: %w", s.tempDir, err)
		}
	}
	if s.arena == nil {
		s.arena = make([]byte, 0, s.maxMemory)
	}
	r := record{offset: uint32(len(s.arena))}
	s.arena = append(s.arena, key...)
	r.keyEnd = uint32(len(s.arena))
	s.arena = append(s.arena, value...)
	r.valueEnd = uint32(len(s.arena))
	s.records = append(s.records, r)
	return nil
}

func (s *Sorter) key(r record) []byte   { return s.arena[r.offset:r.keyEnd] }
func (s *Sorter) value(r record) []byte { return s.arena[r.keyEnd:r.valueEnd] }

func (s *Sorter) sort() {
	slices.SortFunc(s.records, func(a, b record) int {
		if c := bytes.Compare(s.key(a), s.key(b)); c != 0 {
			return c
		}
		return bytes.Compare(s.value(a), s.value(b))
	})
}

// spill writes the records in memory to a file.
func (s *Sorter) spill() error {
	s.sort()
	f, err := atomicfile.CreateUnnamed(s.tempDir)
	if err != nil {
		return err
	}
	s.runFiles = append(s.runFiles, f)
	w := bufio.NewWriterSize(f, 256<<10)
	var head []byte
	for _, r := range s.records {
		head = binary.AppendUvarint(head[:0], uint64(r.keyEnd-r.offset))
		head = binary.AppendUvarint(head, uint64(r.valueEnd-r.keyEnd))
		if _, err := w.Write(head); err != nil {
			return err
		}
		if _, err := w.Write(s.arena[r.offset:r.valueEnd]); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.arena, s.records = s.arena[:0], s.records[:0]
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Each calls fn with every record in order. The slices are valid until fn returns. It is called
// once, after the last Add.
func (s *Sorter) Each(fn func(key, value []byte) error) error {
	if len(s.runFiles) == 0 {
		s.sort()
		for _, r := range s.records {
			if err := fn(s.key(r), s.value(r)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(s.records) > 0 {
		if err := s.spill(); err != nil {
			return fmt.Errorf("sort records in %s: %w", s.tempDir, err)
		}
	}
	s.arena, s.records = nil, nil
	return s.merge(fn)
}

func (s *Sorter) merge(fn func(key, value []byte) error) error {
	var h runHeap
	for _, f := range s.runFiles {
		r := &sortedRun{r: bufio.NewReaderSize(f, 64<<10)}
		ok, err := r.next()
		if err != nil {
			return err
		}
		if ok {
			h = append(h, r)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		r := h[0]
		if err := fn(r.key, r.value); err != nil {
			return err
		}
		ok, err := r.next()
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return nil
}

// Remove frees the space of the temporary files and drops the records.
func (s *Sorter) Remove() {
	for _, f := range s.runFiles {
		f.Close()
	}
	s.arena, s.records, s.runFiles = nil, nil, nil
}

// sortedRun is a sorted file at its next record.
type sortedRun struct {
	r          *bufio.Reader
	buf        []byte
	key, value []byte
}

func (r *sortedRun) next() (bool, error) {
	n, err := binary.ReadUvarint(r.r)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	m, err := binary.ReadUvarint(r.r)
	if err != nil {
		return false, err
	}
	if n > maxRecordBytes || m > maxRecordBytes {
		return false, errors.New("a temporary file for sorting is damaged")
	}
	r.buf = slices.Grow(r.buf[:0], int(n+m))[:n+m]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return false, err
	}
	r.key, r.value = r.buf[:n], r.buf[n:]
	return true, nil
}

// runHeap is a heap by the next record.
type runHeap []*sortedRun

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	if c := bytes.Compare(h[i].key, h[j].key); c != 0 {
		return c < 0
	}
	return bytes.Compare(h[i].value, h[j].value) < 0
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)   { *h = append(*h, x.(*sortedRun)) }
func (h *runHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	*h = old[:len(old)-1]
	return r
}
