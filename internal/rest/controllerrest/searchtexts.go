package controllerrest

import (
	"iter"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/search"
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
	record *T
	text   string
	instanceOrder
}

func newSearchTexts[T any](
	before func(a, b *T) bool, fieldsOf func(to []search.Field, record *T) []search.Field,
	orderOf func(record *T) instanceOrder,
) *searchTexts[T] {
	return &searchTexts[T]{before: before, fieldsOf: fieldsOf, orderOf: orderOf}
}

// of returns the texts of all records of the table.
func (s *searchTexts[T]) of(records iter.Seq[*T]) []searchRow[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, rows := s.rows, make([]searchRow[T], 0, len(s.rows)+len(s.rows)/16)
	var fields []search.Field
	for record := range records {
		for len(old) > 0 && old[0].record != record && s.before(old[0].record, record) { // it was removed
			old = old[1:]
		}
		if len(old) > 0 && old[0].record == record {
			rows, old = append(rows, old[0]), old[1:]
			continue
		}
		fields = s.fieldsOf(fields[:0], record)
		rows = append(rows, searchRow[T]{record, search.Text(fields), s.orderOf(record)})
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
