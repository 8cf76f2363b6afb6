package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Max is the maximum number of node groups.
const Max = 1000

// settingGroups is a record that every change of the groups rewrites: so what concerns all of them
// together (names, fallbacks, their number) is decided on their current state.
const settingGroups = "groups"

// Edit is a change of a group; nil fields stay as they are.
type Edit struct {
	Name        *string
	Description *string
	Fallback    *string // id of a group; "": none
}

// Groups are the node groups of a cloud.
type Groups struct {
	db      record.DB
	changes func(ctx context.Context, answer any) ([]store.Change, error)
	turn    chan struct{} // has capacity 1: one call at a time changes the groups
}

// New returns the groups in a database. changes returns what the creation of a group writes so that a
// repeated request is recognized.
func New(db record.DB, changes func(ctx context.Context, answer any) ([]store.Change, error)) *Groups {
	return &Groups{db: db, changes: changes, turn: make(chan struct{}, 1)}
}

// List returns every node group, the oldest first.
func (s *Groups) List() []*farm.Group {
	list := make([]*farm.Group, 0, s.db.Tables.Groups.Len())
	for _, one := range s.db.Tables.Groups.All() {
		list = append(list, one)
	}
	return list
}

// Create creates a node group; its edit has a name.
func (s *Groups) Create(ctx context.Context, edit Edit) (*farm.Group, error) {
	made := &farm.Group{ID: record.NewID()}
	err := s.change(ctx, func(all groupView) ([]store.Change, error) {
		if all.Len() >= Max {
			return nil, farm.Refused("Node group limit (%d) reached; delete one first", all.Len())
		}
		g, err := all.edited(&farm.Group{ID: made.ID}, edit)
		if err != nil {
			return nil, err
		}
		made = g
		changes, err := s.changes(ctx, groupAnswer(g))
		if err != nil {
			return nil, err
		}
		return append(changes, store.Put(s.db.Tables.Groups, g.ID, g, store.IfAbsent)), nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// groupAnswer returns a group as its creator receives it.
func groupAnswer(g *farm.Group) api.Group {
	a := api.Group{ID: g.ID, Name: g.Name, Description: g.Description}
	if g.Fallback != "" {
		a.FallbackGroupID = &g.Fallback
	}
	return a
}

// Update changes a node group; farm.CodeNotFound when there is none.
func (s *Groups) Update(ctx context.Context, id string, edit Edit) error {
	return s.change(ctx, func(all groupView) ([]store.Change, error) {
		old, rev, ok := all.Get(id)
		if !ok {
			return nil, farm.NotFound()
		}
		g, err := all.edited(old, edit)
		if err != nil || *g == *old {
			return nil, err
		}
		return []store.Change{store.Put(s.db.Tables.Groups, id, g, store.IfRev(rev))}, nil
	})
}

// Delete removes a node group: no group falls back to it any longer, no node is in it, and
// what waits for one of its nodes ends in Error. Once its record is removed no record can refer to
// it any longer; the reconciler finishes the rest.
func (s *Groups) Delete(ctx context.Context, id string) error {
	var gone *farm.Group
	for done := false; !done; {
		err := s.change(ctx, func(all groupView) ([]store.Change, error) {
			g, rev, ok := all.Get(id)
			if !ok {
				return nil, farm.NotFound()
			}
			t := record.Txn{Limits: s.db.Store.Limits()}
			t.Limits.MaxOps -= 2 // the record settingGroups and the group itself
			if done = all.detach(s.db.Tables.Groups, id, &t); done {
				gone = g
				return append(t.Changes, store.Delete(s.db.Tables.Groups, id, store.IfRev(rev))), nil
			}
			return t.Changes, nil
		})
		if err != nil {
			return err
		}
	}
	s.db.Log.InfoContext(ctx, "node group deleted", "group", id, "name", gone.Name)
	if err := errors.Join(s.leaveGroups(ctx, s.db.Store), s.failWaiting(ctx, s.db.Store, gone)); err != nil {
		s.db.Log.WarnContext(ctx, "cleanup after the deletion of a node group failed; retrying", "group", id, "error",
			err)
	}
	return nil
}

// groupView is the groups at one moment.
type groupView struct{ *store.View[farm.Group] }

func (v groupView) group(id string) *farm.Group {
	g, _, _ := v.Get(id)
	return g
}

// edited returns a group with an edit applied, or why the edit is invalid.
func (v groupView) edited(old *farm.Group, edit Edit) (*farm.Group, error) {
	g := *old
	for _, f := range []struct{ to, from *string }{
		{&g.Name, edit.Name}, {&g.Description, edit.Description}, {&g.Fallback, edit.Fallback},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if uuid.Validate(g.Name) == nil {
		return nil, farm.Invalid("name", "must not have the form of a group ID (UUID)")
	}
	for id, other := range v.All() {
		if id != g.ID && other.Name == g.Name {
			return nil, farm.Refused("Node group %q already exists; choose another name", g.Name)
		}
	}
	if edit.Fallback == nil || g.Fallback == "" {
		return &g, nil
	}
	if g.Fallback != g.ID && v.group(g.Fallback) == nil {
		return nil, farm.NotFound()
	}
	if loop := farm.FallbackCycle(&g, v.group); loop != nil {
		return nil, farm.Refused("fallback_group_id cannot be set: the fallback groups would form a cycle: %s",
			shorten(loop))
	}
	return &g, nil
}

// maxLoopNames is how many groups of a loop an error names.
const maxLoopNames = 12

// shorten formats a loop; of a long one the middle is left out.
func shorten(loop []string) string {
	if left := len(loop) - maxLoopNames; left > 0 {
		loop = slices.Replace(slices.Clone(loop), maxLoopNames/2, maxLoopNames/2+left, fmt.Sprintf("(%d more)", left))
	}
	return strings.Join(loop, " -> ")
}

// detach removes a group from those that fall back to it, as many as fit, and reports whether those
// are all.
func (v groupView) detach(table *store.Table[farm.Group], id string, t *record.Txn) bool {
	for other, g := range v.All() {
		if g.Fallback != id || other == id {
			continue
		}
		alone := *g
		alone.Fallback = ""
		_, rev, _ := v.Get(other)
		if !t.Add(store.Put(table, other, &alone, store.IfRev(rev))) {
			return false
		}
	}
	return true
}

// change writes the changes that decide derives from the current groups. No other call changes
// them in between: two changes that are each valid alone may form a loop together.
func (s *Groups) change(ctx context.Context, decide func(groupView) ([]store.Change, error)) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return farm.Unavailable(ctx.Err(), "Another change of the node groups is in progress; try again")
	}
	for range record.TxnAttempts {
		_, mark, _ := s.db.Tables.Settings.Get(settingGroups)
		if err := s.db.UpToDate(ctx); err != nil { // else the record settingGroups might be newer than the groups
			return farm.Unavailable(err, "The store cannot be reached; try again")
		}
		changes, err := decide(groupView{s.db.Tables.Groups.Snapshot()})
		if err != nil || len(changes) == 0 {
			return err
		}
		next := store.Put(s.db.Tables.Settings, settingGroups, &record.Setting{Value: record.NewID()},
			store.IfRev(mark))
		if err = s.db.Store.Commit(ctx, append(changes, next)...); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return farm.Errorf(farm.CodeBusy, "Node group update conflict; retry")
}

// Get returns a group; farm.CodeNotFound when there is none.
func (s *Groups) Get(ctx context.Context, id string) (*farm.Group, int64, error) {
	if uuid.Validate(id) != nil {
		return nil, 0, farm.NotFound()
	}
	return record.Lookup(ctx, s.db.Tables.Groups, id)
}

// Name returns the name of a group; "" when there is none.
func (s *Groups) Name(id string) string {
	if g, _, ok := s.db.Tables.Groups.Get(id); ok {
		return g.Name
	}
	return ""
}
