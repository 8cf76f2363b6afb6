package store

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Kind names a table; it is one segment of every key: <prefix>/v1/<kind>/<id>.
type Kind string

// Table is the in-memory copy of all records of one kind, kept up to date by the Store it was
// opened with. Reading takes no lock and never waits. Every *T that it returns is shared and must
// not be changed: copy, then Put.
type Table[T any] struct {
	kind    Kind
	codec   codec[T]
	partOf  func(*T) *T // the part of a record that the table keeps; nil: all of it
	encode  func(*T) []byte
	indexes []tableIndex[T]
	sums    []tableSum[T]

	view   atomic.Pointer[View[T]]
	store  atomic.Pointer[Store]
	staged *viewEdit[T] // what the next publish makes visible; the model's mu guards it
}

type codec[T any] struct {
	encode func(*T) ([]byte, error)
	decode func([]byte) (*T, error)
}

// tableIndex maps values derived from a record to the record.
type tableIndex[T any] struct {
	name     string
	valuesOf func(*T) []string
}

// TableOption changes how a table stores its records.
type TableOption[T any] func(*Table[T])

// WithCodec replaces encoding/json. Decode must not keep its argument.
func WithCodec[T any](encode func(*T) ([]byte, error), decode func([]byte) (*T, error)) TableOption[T] {
	return func(t *Table[T]) { t.codec = codec[T]{encode, decode} }
}

// WithPartialRecords makes the table keep only a part of each record in memory: the result of part. Load
// reads the whole record. A record from the table must not be written back.
func WithPartialRecords[T any](part func(*T) *T) TableOption[T] {
	return func(t *Table[T]) { t.partOf = part }
}

// WithCachedEncoding sets the result of Encoded for a record. It is computed one time per record, at the
// first request.
func WithCachedEncoding[T any](render func(*T) []byte) TableOption[T] {
	return func(t *Table[T]) { t.encode = render }
}

// WithIndex lets Where find records by any of the values that keys returns. keys must depend on the
// record alone, and return no value twice.
func WithIndex[T any](name string, keys func(*T) []string) TableOption[T] {
	return func(t *Table[T]) { t.indexes = append(t.indexes, tableIndex[T]{name, keys}) }
}

// Amounts are numbers of records that are added up.
type Amounts [3]int

// tableSum adds up amounts of records, by a key of each.
type tableSum[T any] struct {
	name      string
	amountsOf func(*T) (key string, a Amounts)
}

// WithSums makes Sum return the totals of the records with the same key. The result of of must
// depend on the record alone; a record without a key is not counted.
func WithSums[T any](name string, of func(*T) (key string, a Amounts)) TableOption[T] {
	return func(t *Table[T]) { t.sums = append(t.sums, tableSum[T]{name, of}) }
}

// NewTable creates an empty table, to be filled by Open. A table belongs to one Store.
func NewTable[T any](kind Kind, opts ...TableOption[T]) *Table[T] {
	t := &Table[T]{kind: kind, codec: codec[T]{encodeJSON[T], decodeJSON[T]}}
	for _, opt := range opts {
		opt(t)
	}
	t.view.Store(&View[T]{table: t, indexes: make([]sortedMap[struct{}],
		len(t.indexes)), sums: make([]sortedMap[Amounts],
		len(t.sums))})
	return t
}

func encodeJSON[T any](v *T) ([]byte, error) { return json.Marshal(v) }

func decodeJSON[T any](data []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(data, v)
}

// tableEntry is one record; immutable except for the lazily rendered bytes.
type tableEntry[T any] struct {
	id         string
	record     *T
	rev        int64
	encodeOnce sync.Once
	encoded    []byte
}

// View is a table at one moment; it never changes.
type View[T any] struct {
	table   *Table[T]
	serial  uint64
	entries sortedMap[*tableEntry[T]]
	indexes []sortedMap[struct{}] // one per index; key: value, NUL, id
	sums    []sortedMap[Amounts]  // without those that are zero
}

// Serial returns the number of the view in this process: views with another number may differ in
// their records, those with the same do not.
func (v *View[T]) Serial() uint64 { return v.serial }

// Snapshot returns the table as it is now.
func (t *Table[T]) Snapshot() *View[T] { return t.view.Load() }

// Get reads one record and the revision it was written at, for IfRev.
func (t *Table[T]) Get(id string) (v *T, rev int64, ok bool) { return t.Snapshot().Get(id) }

// All yields every record in the order of ids, as the table was when the loop began.
func (t *Table[T]) All() iter.Seq2[string, *T] { return t.Snapshot().All() }

// Range yields at most limit records whose id is greater than after, in order; a page of a listing.
func (t *Table[T]) Range(after string, limit int) iter.Seq2[string, *T] {
	return t.Snapshot().Range(after, limit)
}

// Where yields the records that index name files under value, in the order of ids.
func (t *Table[T]) Where(name, value string) iter.Seq2[string, *T] {
	return t.Snapshot().Where(name, value)
}

// Len returns the number of records.
func (t *Table[T]) Len() int { return t.Snapshot().Len() }

// Encoded returns the bytes of WithCachedEncoding for a record, nil when it does not exist. They are
// shared.
func (t *Table[T]) Encoded(id string) []byte { return t.Snapshot().Encoded(id) }

// Get is Table.Get at the moment of the view.
func (v *View[T]) Get(id string) (val *T, rev int64, ok bool) {
	e, ok := v.entries.get(id)
	if !ok {
		return nil, 0, false
	}
	return e.record, e.rev, true
}

// All is Table.All at the moment of the view.
func (v *View[T]) All() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for id, e := range v.entries.rangeFrom("") {
			if !yield(id, e.record) {
				return
			}
		}
	}
}

// Range is Table.Range at the moment of the view.
func (v *View[T]) Range(after string, limit int) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		left := limit
		for id, e := range v.entries.rangeFrom(after) {
			if id == after && after != "" {
				continue
			}
			if left <= 0 || !yield(id, e.record) {
				return
			}
			left--
		}
	}
}

// Where is Table.Where at the moment of the view. It panics on an unknown index, which is a
// programming error.
func (v *View[T]) Where(name, value string) iter.Seq2[string, *T] {
	filed := v.entriesWhere(name, value)
	return func(yield func(string, *T) bool) {
		for id, e := range filed {
			if !yield(id, e.record) {
				return
			}
		}
	}
}

// entriesWhere yields the entries that index name files under value.
func (v *View[T]) entriesWhere(name, value string) iter.Seq2[string, *tableEntry[T]] {
	return v.entriesInIndex(v.table.indexNumber(name), value+"\x00")
}

// indexNumber returns the number of an index.
func (t *Table[T]) indexNumber(name string) int {
	for i, ix := range t.indexes {
		if ix.name == name {
			return i
		}
	}
	panic(fmt.Sprintf("store: table %q has no index %q", t.kind, name))
}

func (v *View[T]) entriesInIndex(i int, prefix string) iter.Seq2[string, *tableEntry[T]] {
	return func(yield func(string, *tableEntry[T]) bool) {
		for key := range v.indexes[i].rangeFrom(prefix) {
			id, ok := strings.CutPrefix(key, prefix)
			if !ok {
				return
			}
			if e, ok := v.entries.get(id); ok && !yield(id, e) {
				return
			}
		}
	}
}

// Len is Table.Len at the moment of the view.
func (v *View[T]) Len() int { return v.entries.count }

// Encoded is Table.Encoded at the moment of the view.
func (v *View[T]) Encoded(id string) []byte {
	row, ok := v.Row(id)
	if !ok {
		return nil
	}
	return row.Encoded()
}

// viewEdit holds the edits between two publishes.
type viewEdit[T any] struct {
	entries *mapEdit[*tableEntry[T]]
	indexes []*mapEdit[struct{}]
	sums    []*mapEdit[Amounts]
}

// AnyTable is a *Table of whatever type. val and old are a *T, or an untyped nil for none.
type AnyTable interface {
	Kind() Kind
	bindStore(s *Store) bool
	unbindStore(s *Store)
	decodeRecord(data []byte) (any, error)
	revision(id string) int64
	revisions() iter.Seq2[string, int64]
	stageRecord(id string, val any, rev int64) (old any)
	publishStaged()
}

var _ AnyTable = (*Table[struct{}])(nil)

// Kind returns the table's name.
func (t *Table[T]) Kind() Kind { return t.kind }

func (t *Table[T]) bindStore(s *Store) bool { return t.store.CompareAndSwap(nil, s) }

func (t *Table[T]) unbindStore(s *Store) { t.store.CompareAndSwap(s, nil) }

func (t *Table[T]) decodeRecord(data []byte) (any, error) {
	v, err := t.codec.decode(data)
	if err != nil {
		return nil, err
	}
	return t.keptPart(v), nil
}

// keptPart returns the part of a record that the table keeps.
func (t *Table[T]) keptPart(v *T) *T {
	if t.partOf == nil {
		return v
	}
	return t.partOf(v)
}

// revision returns the visible revision of a record, 0 when there is none.
func (t *Table[T]) revision(id string) int64 {
	_, rev, _ := t.Get(id)
	return rev
}

func (t *Table[T]) revisions() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for id, e := range t.Snapshot().entries.rangeFrom("") {
			if !yield(id, e.rev) {
				return
			}
		}
	}
}

// stageRecord stages one change. The caller holds the model's mu and publishes before it unlocks it.
func (t *Table[T]) stageRecord(id string, val any, rev int64) (old any) {
	if t.staged == nil {
		t.staged = t.Snapshot().beginEdit()
	}
	s := t.staged
	was, _ := s.entries.get(id)
	if val == nil {
		s.entries.delete(id)
		s.updateIndexes(t, id, was, nil)
		s.updateSums(t, was, nil)
	} else {
		now := &tableEntry[T]{id: id, record: val.(*T), rev: rev}
		s.entries.put(id, now)
		s.updateIndexes(t, id, was, now)
		s.updateSums(t, was, now)
	}
	if was == nil {
		return nil
	}
	return was.record
}

// updateIndexes changes the indexes from one state of a record to the next; nil means absent. The values
// of a record seldom change, and then nothing has to be copied.
func (s *viewEdit[T]) updateIndexes(t *Table[T], id string, was, now *tableEntry[T]) {
	for i, ix := range t.indexes {
		var old, next []string
		if was != nil {
			old = ix.valuesOf(was.record)
		}
		if now != nil {
			next = ix.valuesOf(now.record)
		}
		if slices.Equal(old, next) {
			continue
		}
		for _, value := range old {
			s.indexes[i].delete(value + "\x00" + id)
		}
		for _, value := range next {
			s.indexes[i].put(value+"\x00"+id, struct{}{})
		}
	}
}

// updateSums changes the sums from one state of a record to the next; nil means absent.
func (s *viewEdit[T]) updateSums(t *Table[T], was, now *tableEntry[T]) {
	for i, sum := range t.sums {
		var old, next string
		var less, more Amounts
		if was != nil {
			old, less = sum.amountsOf(was.record)
		}
		if now != nil {
			next, more = sum.amountsOf(now.record)
		}
		if old == next && less == more {
			continue
		}
		for n := range less {
			less[n] = -less[n]
		}
		s.addToSum(i, old, less)
		s.addToSum(i, next, more)
	}
}

func (s *viewEdit[T]) addToSum(sum int, key string, a Amounts) {
	if key == "" || a == (Amounts{}) {
		return
	}
	all, _ := s.sums[sum].get(key)
	for n := range a {
		all[n] += a[n]
	}
	if all == (Amounts{}) {
		s.sums[sum].delete(key)
		return
	}
	s.sums[sum].put(key, all)
}

// publishStaged makes all staged changes visible in one step.
func (t *Table[T]) publishStaged() {
	if t.staged == nil {
		return
	}
	t.view.Store(t.staged.build(t))
	t.staged = nil
}

func (v *View[T]) beginEdit() *viewEdit[T] {
	s := &viewEdit[T]{entries: v.entries.beginEdit()}
	for _, ix := range v.indexes {
		s.indexes = append(s.indexes, ix.beginEdit())
	}
	for _, sum := range v.sums {
		s.sums = append(s.sums, sum.beginEdit())
	}
	return s
}

func (s *viewEdit[T]) build(t *Table[T]) *View[T] {
	v := &View[T]{table: t, serial: t.Snapshot().serial + 1, entries: s.entries.finish()}
	for _, ix := range s.indexes {
		v.indexes = append(v.indexes, ix.finish())
	}
	for _, sum := range s.sums {
		v.sums = append(v.sums, sum.finish())
	}
	return v
}
