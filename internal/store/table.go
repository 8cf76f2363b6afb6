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
	part    func(*T) *T // the part of a record that the table keeps; nil: all of it
	render  func(*T) []byte
	indexes []index[T]
	sums    []sum[T]

	view  atomic.Pointer[View[T]]
	owner atomic.Pointer[Store]
	next  *stage[T] // what the next publish makes visible; the model's mu guards it
}

type codec[T any] struct {
	encode func(*T) ([]byte, error)
	decode func([]byte) (*T, error)
}

// index maps values derived from a record to the record.
type index[T any] struct {
	name string
	keys func(*T) []string
}

// TableOption changes how a table stores its records.
type TableOption[T any] func(*Table[T])

// WithCodec replaces encoding/json. Decode must not keep its argument.
func WithCodec[T any](encode func(*T) ([]byte, error), decode func([]byte) (*T, error)) TableOption[T] {
	return func(t *Table[T]) { t.codec = codec[T]{encode, decode} }
}

// WithPart makes the table keep only a part of each record in memory: the result of part. Load
// reads the whole record. A record from the table must not be written back.
func WithPart[T any](part func(*T) *T) TableOption[T] {
	return func(t *Table[T]) { t.part = part }
}

// WithEncoded sets the result of Encoded for a record. It is computed one time per record, at the
// first request.
func WithEncoded[T any](render func(*T) []byte) TableOption[T] {
	return func(t *Table[T]) { t.render = render }
}

// WithIndex lets Where find records by any of the values that keys returns. keys must depend on the
// record alone, and return no value twice.
func WithIndex[T any](name string, keys func(*T) []string) TableOption[T] {
	return func(t *Table[T]) { t.indexes = append(t.indexes, index[T]{name, keys}) }
}

// Amounts are numbers of records that are added up.
type Amounts [3]int

// sum adds up amounts of records, by a key of each.
type sum[T any] struct {
	name string
	of   func(*T) (key string, a Amounts)
}

// WithSums makes Sum return the totals of the records with the same key. The result of of must
// depend on the record alone; a record without a key is not counted.
func WithSums[T any](name string, of func(*T) (key string, a Amounts)) TableOption[T] {
	return func(t *Table[T]) { t.sums = append(t.sums, sum[T]{name, of}) }
}

// NewTable creates an empty table, to be filled by Open. A table belongs to one Store.
func NewTable[T any](kind Kind, opts ...TableOption[T]) *Table[T] {
	t := &Table[T]{kind: kind, codec: codec[T]{encodeJSON[T], decodeJSON[T]}}
	for _, opt := range opts {
		opt(t)
	}
	t.view.Store(&View[T]{table: t, by: make([]sortedMap[struct{}], len(t.indexes)), sums: make([]sortedMap[Amounts],
		len(t.sums))})
	return t
}

func encodeJSON[T any](v *T) ([]byte, error) { return json.Marshal(v) }

func decodeJSON[T any](data []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(data, v)
}

// entry is one record; immutable except for the lazily rendered bytes.
type entry[T any] struct {
	id     string
	val    *T
	rev    int64
	render sync.Once
	bytes  []byte
}

// View is a table at one moment; it never changes.
type View[T any] struct {
	table  *Table[T]
	serial uint64
	main   sortedMap[*entry[T]]
	by     []sortedMap[struct{}] // one per index; key: value, NUL, id
	sums   []sortedMap[Amounts]  // without those that are zero
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

// Encoded returns the bytes of WithEncoded for a record, nil when it does not exist. They are
// shared.
func (t *Table[T]) Encoded(id string) []byte { return t.Snapshot().Encoded(id) }

// Get is Table.Get at the moment of the view.
func (v *View[T]) Get(id string) (val *T, rev int64, ok bool) {
	e, ok := v.main.get(id)
	if !ok {
		return nil, 0, false
	}
	return e.val, e.rev, true
}

// All is Table.All at the moment of the view.
func (v *View[T]) All() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for id, e := range v.main.from("") {
			if !yield(id, e.val) {
				return
			}
		}
	}
}

// Range is Table.Range at the moment of the view.
func (v *View[T]) Range(after string, limit int) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		left := limit
		for id, e := range v.main.from(after) {
			if id == after && after != "" {
				continue
			}
			if left <= 0 || !yield(id, e.val) {
				return
			}
			left--
		}
	}
}

// Where is Table.Where at the moment of the view. It panics on an unknown index, which is a
// programming error.
func (v *View[T]) Where(name, value string) iter.Seq2[string, *T] {
	filed := v.filed(name, value)
	return func(yield func(string, *T) bool) {
		for id, e := range filed {
			if !yield(id, e.val) {
				return
			}
		}
	}
}

// filed yields the entries that index name files under value.
func (v *View[T]) filed(name, value string) iter.Seq2[string, *entry[T]] {
	return v.filedIn(v.table.index(name), value+"\x00")
}

// index returns the number of an index.
func (t *Table[T]) index(name string) int {
	for i, ix := range t.indexes {
		if ix.name == name {
			return i
		}
	}
	panic(fmt.Sprintf("store: table %q has no index %q", t.kind, name))
}

func (v *View[T]) filedIn(i int, prefix string) iter.Seq2[string, *entry[T]] {
	return func(yield func(string, *entry[T]) bool) {
		for key := range v.by[i].from(prefix) {
			id, ok := strings.CutPrefix(key, prefix)
			if !ok {
				return
			}
			if e, ok := v.main.get(id); ok && !yield(id, e) {
				return
			}
		}
	}
}

// Len is Table.Len at the moment of the view.
func (v *View[T]) Len() int { return v.main.n }

// Encoded is Table.Encoded at the moment of the view.
func (v *View[T]) Encoded(id string) []byte {
	row, ok := v.Row(id)
	if !ok {
		return nil
	}
	return row.Encoded()
}

// stage holds the edits between two publishes.
type stage[T any] struct {
	main *edit[*entry[T]]
	by   []*edit[struct{}]
	sums []*edit[Amounts]
}

// AnyTable is a *Table of whatever type. val and old are a *T, or an untyped nil for none.
type AnyTable interface {
	Kind() Kind
	bind(s *Store) bool
	unbind(s *Store)
	decode(data []byte) (any, error)
	rev(id string) int64
	ids() iter.Seq2[string, int64]
	set(id string, val any, rev int64) (old any)
	publish()
}

var _ AnyTable = (*Table[struct{}])(nil)

// Kind returns the table's name.
func (t *Table[T]) Kind() Kind { return t.kind }

func (t *Table[T]) bind(s *Store) bool { return t.owner.CompareAndSwap(nil, s) }

func (t *Table[T]) unbind(s *Store) { t.owner.CompareAndSwap(s, nil) }

func (t *Table[T]) decode(data []byte) (any, error) {
	v, err := t.codec.decode(data)
	if err != nil {
		return nil, err
	}
	return t.kept(v), nil
}

// kept returns the part of a record that the table keeps.
func (t *Table[T]) kept(v *T) *T {
	if t.part == nil {
		return v
	}
	return t.part(v)
}

// rev returns the visible revision of a record, 0 when there is none.
func (t *Table[T]) rev(id string) int64 {
	_, rev, _ := t.Get(id)
	return rev
}

func (t *Table[T]) ids() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for id, e := range t.Snapshot().main.from("") {
			if !yield(id, e.rev) {
				return
			}
		}
	}
}

// set stages one change. The caller holds the model's mu and publishes before it unlocks it.
func (t *Table[T]) set(id string, val any, rev int64) (old any) {
	if t.next == nil {
		t.next = t.Snapshot().stage()
	}
	s := t.next
	was, _ := s.main.get(id)
	if val == nil {
		s.main.delete(id)
		s.reindex(t, id, was, nil)
		s.resum(t, was, nil)
	} else {
		now := &entry[T]{id: id, val: val.(*T), rev: rev}
		s.main.put(id, now)
		s.reindex(t, id, was, now)
		s.resum(t, was, now)
	}
	if was == nil {
		return nil
	}
	return was.val
}

// reindex changes the indexes from one state of a record to the next; nil means absent. The values
// of a record seldom change, and then nothing has to be copied.
func (s *stage[T]) reindex(t *Table[T], id string, was, now *entry[T]) {
	for i, ix := range t.indexes {
		var old, next []string
		if was != nil {
			old = ix.keys(was.val)
		}
		if now != nil {
			next = ix.keys(now.val)
		}
		if slices.Equal(old, next) {
			continue
		}
		for _, value := range old {
			s.by[i].delete(value + "\x00" + id)
		}
		for _, value := range next {
			s.by[i].put(value+"\x00"+id, struct{}{})
		}
	}
}

// resum changes the sums from one state of a record to the next; nil means absent.
func (s *stage[T]) resum(t *Table[T], was, now *entry[T]) {
	for i, sum := range t.sums {
		var old, next string
		var less, more Amounts
		if was != nil {
			old, less = sum.of(was.val)
		}
		if now != nil {
			next, more = sum.of(now.val)
		}
		if old == next && less == more {
			continue
		}
		for n := range less {
			less[n] = -less[n]
		}
		s.add(i, old, less)
		s.add(i, next, more)
	}
}

func (s *stage[T]) add(sum int, key string, a Amounts) {
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

// publish makes all staged changes visible in one step.
func (t *Table[T]) publish() {
	if t.next == nil {
		return
	}
	t.view.Store(t.next.view(t))
	t.next = nil
}

func (v *View[T]) stage() *stage[T] {
	s := &stage[T]{main: v.main.edit()}
	for _, ix := range v.by {
		s.by = append(s.by, ix.edit())
	}
	for _, sum := range v.sums {
		s.sums = append(s.sums, sum.edit())
	}
	return s
}

func (s *stage[T]) view(t *Table[T]) *View[T] {
	v := &View[T]{table: t, serial: t.Snapshot().serial + 1, main: s.main.done()}
	for _, ix := range s.by {
		v.by = append(v.by, ix.done())
	}
	for _, sum := range s.sums {
		v.sums = append(v.sums, sum.done())
	}
	return v
}
