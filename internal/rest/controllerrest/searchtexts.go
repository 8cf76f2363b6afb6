package controllerrest

import (
	"iter"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/search"
	"github.com/buildyard/buildyard/internal/store"
)

// searchTextsKept is how long the texts stay after a search: with them stay the records that they are of.
const searchTextsKept = time.Minute

// searchTexts has what each record of a table is searched for as one text. Reading that takes a fraction of the time
// that the fields take, which are in many places of the memory. A search makes only the texts of the records that
// changed since the one before.
type searchTexts[T any] struct {
	before   func(a, b *T) bool // the order of the table
	fieldsOf func(to []search.Field, record *T) []search.Field
	orderOf  func(record *T) instanceOrder

	mu     sync.Mutex
	rows   []searchRow[T] // in the order of the table; never changed in place
	forget *time.Timer
}

// searchRow is a record with its text.
type searchRow[T any] struct {
	record store.Row[T]
	text   string
	instanceOrder
}

func newSearchTexts[T any](
	before func(a, b *T) bool, fieldsOf func(to []search.Field, record *T) []search.Field,
	orderOf func(record *T) instanceOrder,
) *searchTexts[T] {
	return &searchTexts[T]{before: before, fieldsOf: fieldsOf, orderOf: orderOf}
}

// of returns the texts of all records of the table. It does not read the records that are as they were.
func (s *searchTexts[T]) of(records iter.Seq[store.Row[T]]) []searchRow[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, rows := s.rows, make([]searchRow[T], 0, len(s.rows)+len(s.rows)/16)
	var fields []search.Field
	for record := range records {
		for len(old) > 0 && !old[0].record.Same(record) && s.before(old[0].record.Value(), record.Value()) {
			old = old[1:] // it was removed
		}
		if len(old) > 0 && old[0].record.Same(record) {
			rows, old = append(rows, old[0]), old[1:]
			continue
		}
		fields = s.fieldsOf(fields[:0], record.Value())
		rows = append(rows, searchRow[T]{record, search.Text(fields), s.orderOf(record.Value())})
	}
	s.rows = rows
	if s.forget == nil {
		s.forget = time.AfterFunc(searchTextsKept, s.clear)
	} else {
		s.forget.Reset(searchTextsKept)
	}
	return rows
}

func (s *searchTexts[T]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = nil
}
