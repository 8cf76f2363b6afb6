package instances

import (
	"context"
	"iter"
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// View is an instance as clients see it.
type View struct {
	*farm.Instance
	Message string // as clients see it: the record's own, or the computed one

	row store.Row[farm.Instance] // of the record; zero without
}

// ViewOf returns a record with its own message.
func ViewOf(row store.Row[farm.Instance]) View {
	return View{Instance: row.Value(), Message: row.Value().Message, row: row}
}

// Encoded returns the renderer's output for the record, nil without a renderer. It is made by the first call for
// a record and kept with it: a list encodes only the instances that it shows.
func (v View) Encoded() []byte { return v.row.Encoded() }

// Page is the part of the instances that a list shows, in the order of their ids: instances that
// are created or removed between two requests move nothing to another page.
type Page struct {
	ExternalID string          // "": every one
	After      string          // an id, which need not exist any longer; "": from the first
	Limit      int             // 0: no limit
	Match      func(View) bool // which of them; nil: all
}

// rows returns the rows that the page selects from, and an upper bound of their number. Standbys are not among them.
func (p Page) rows(view *store.View[farm.Instance]) (iter.Seq[store.Row[farm.Instance]], int) {
	all, most := view.Rows(p.After), view.Len()
	if p.ExternalID != "" { // a standby has none
		return view.RowsWhere(record.ByExternalID, p.ExternalID, p.After), 0
	}
	if !record.HasStandbys(view) { // the records need not be read
		return all, most
	}
	return func(yield func(store.Row[farm.Instance]) bool) {
		for row := range all {
			if !row.Value().IsStandby() && !yield(row) {
				return
			}
		}
	}, most
}

// List returns instances. The message of a pending one is its reason, and that of one being
// saved the stage of the save.
func (s *Instances) List(p Page) []View {
	view := s.db.Tables.Instances.Snapshot()
	rows, size := p.rows(view)
	if p.Limit > 0 {
		size = min(size, p.Limit)
	}
	if p.Match != nil {
		return s.matching(rows, p)
	}
	list := make([]View, 0, size)
	for row := range rows {
		list = append(list, ViewOf(row))
		if len(list) == p.Limit {
			break
		}
	}
	s.explain(list)
	return list
}

// LongList is a part of the instances as they were at one moment. It reads them from the
// table's snapshot and not from a copy, so that a client that reads a long response slowly uses
// little memory.
type LongList struct {
	rows     iter.Seq[store.Row[farm.Instance]]
	messages []messageRun // of all rows, in their order
	list     []View       // instead, of a list that was filtered
}

// messageRun is a number of successive rows with the same message.
type messageRun struct {
	text string // "": the message of the record
	rows int
}

// ListLong is List for a list that may be long. It calls each one time for every
// instance, in their order: a reader that needs sums of the list need not read all of it a second
// time.
func (s *Instances) ListLong(p Page, each func(View)) *LongList {
	if p.Match != nil {
		l := &LongList{list: s.List(p)}
		for _, one := range l.list {
			each(one)
		}
		return l
	}
	view := s.db.Tables.Instances.Snapshot()
	l := &LongList{}
	l.rows, _ = p.rows(view)
	batch, count := make([]View, 0, explainBatch), 0
	for row := range l.rows {
		batch = append(batch, ViewOf(row))
		if count++; len(batch) == explainBatch {
			s.explain(batch)
			l.add(batch, each)
			batch = batch[:0]
		}
		if count == p.Limit {
			break
		}
	}
	s.explain(batch)
	l.add(batch, each)
	return l
}

// add counts the messages of the next rows and passes them to each.
func (l *LongList) add(batch []View, each func(View)) {
	for _, one := range batch {
		each(one)
		text := one.Message
		if text == one.Instance.Message {
			text = ""
		}
		if last := len(l.messages) - 1; last >= 0 && l.messages[last].text == text {
			l.messages[last].rows++
		} else {
			l.messages = append(l.messages, messageRun{text, 1})
		}
	}
}

// All yields the instances, the same ones at each call.
func (l *LongList) All() iter.Seq[View] {
	if l.rows == nil {
		return slices.Values(l.list)
	}
	return func(yield func(View) bool) {
		run, left := -1, 0
		for row := range l.rows {
			if left == 0 {
				if run++; run == len(l.messages) {
					return
				}
				left = l.messages[run].rows
			}
			left--
			one := ViewOf(row)
			if text := l.messages[run].text; text != "" {
				one.Message = text
			}
			if !yield(one) {
				return
			}
		}
	}
}

// Newest returns a part of the instances, the newest first, and the number of instances in
// each state. It reads only the instances of the part.
func (s *Instances) Newest(skip, limit int) (part []View, states map[farm.InstanceState]int) {
	view := s.db.Tables.Instances.Snapshot()
	states = make(map[farm.InstanceState]int, len(farm.InstanceStates))
	for _, state := range farm.InstanceStates {
		states[state] = view.Sum(record.CountByState, string(state))[0]
	}
	for row := range view.RowsOrderedBy(record.ByAge, skip) {
		if len(part) == limit {
			break
		}
		part = append(part, ViewOf(row))
	}
	s.explain(part)
	return part, states
}

// matching returns the instances that a page selects, which depends on what clients see of them.
func (s *Instances) matching(rows iter.Seq[store.Row[farm.Instance]], p Page) []View {
	list, batch := []View{}, make([]View, 0, explainBatch)
	filter := func() (full bool) {
		s.explain(batch)
		for _, l := range batch {
			if p.Match(l) {
				list = append(list, l)
			}
			if p.Limit > 0 && len(list) == p.Limit {
				return true
			}
		}
		batch = batch[:0]
		return false
	}
	for row := range rows {
		if batch = append(batch, ViewOf(row)); len(batch) == explainBatch && filter() {
			return list
		}
	}
	filter()
	return list
}

// Rows yields the rows of all instances except standbys in the order of their ids.
func (s *Instances) Rows() iter.Seq[store.Row[farm.Instance]] {
	rows, _ := Page{}.rows(s.db.Tables.Instances.Snapshot())
	return rows
}

// Records yields the records of all instances except standbys in the order of their ids, the oldest first, without the
// messages that are computed.
func (s *Instances) Records() iter.Seq[*farm.Instance] {
	return func(yield func(*farm.Instance) bool) {
		for row := range s.Rows() {
			if !yield(row.Value()) {
				return
			}
		}
	}
}

// ETag returns a tag of the state of the records in the next list of instances, or of a
// later one. As long as the tag is the same, so is the list except for the messages that are not
// stored.
func (s *Instances) ETag() string {
	return strconv.FormatUint(s.db.Tables.Instances.Snapshot().Serial(), 36) + "." +
		strconv.FormatUint(s.db.Tables.Saves.Snapshot().Serial(), 36)
}

// Get returns one instance; farm.CodeNotFound when there is none.
func (s *Instances) Get(ctx context.Context, id string) (View, error) {
	inst, err := record.LookupInstance(ctx, s.db, id)
	if err != nil {
		return View{}, err
	}
	list := []View{{Instance: inst, Message: inst.Message}}
	if row, ok := s.db.Tables.Instances.Snapshot().Row(id); ok && !row.Value().IsStandby() {
		list[0] = ViewOf(row)
	}
	s.explain(list)
	return list[0], nil
}
