package registry

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// deletedDir has an empty file for the ID of every template that was deleted here. Users and grants may still
// refer to such an ID: a caller that creates a template under it again needs the permission to delete.
const deletedDir = "deleted_dir"

// maxDeleted bounds the recorded IDs; beyond it the oldest deletions are forgotten.
const maxDeleted = 100_000

// deleted records the IDs of deleted templates.
type deleted struct {
	mu  sync.Mutex // guards the fields below
	ids map[string]bool
	// end ends the grants on templates; nil: there are none.
	end func(ctx context.Context, ids []string) error
}

func (d *deleted) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[id]
}

func (d *deleted) set(id string, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if is {
		d.ids[id] = true
	} else {
		delete(d.ids, id)
	}
}

// list returns all IDs, and the function that ends grants on them.
func (d *deleted) list() (ids []string, end func(ctx context.Context, ids []string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.ids {
		ids = append(ids, id)
	}
	return ids, d.end
}

// EndGrants sets the function that ends the grants on deleted templates. It is called after each deletion,
// before a template is created under such an ID again, and by EndDeletedGrants.
func (r *Registry) EndGrants(end func(ctx context.Context, ids []string) error) {
	r.deleted.mu.Lock()
	defer r.deleted.mu.Unlock()
	r.deleted.end = end
}

// EndDeletedGrants ends the grants on all deleted templates, including those whose deletion was interrupted by
// a crash or an unavailable store.
func (r *Registry) EndDeletedGrants(ctx context.Context) error {
	ids, end := r.deleted.list()
	snap := r.snap.Load()
	ids = slices.DeleteFunc(ids, snap.knows) // about to be deleted, or created again
	if end == nil || len(ids) == 0 {
		return nil
	}
	return end(ctx, ids)
}

// endGrants ends the grants on one template.
func (r *Registry) endGrants(ctx context.Context, id string) error {
	_, end := r.deleted.list()
	if end == nil {
		return nil
	}
	return end(ctx, []string{id})
}

// remember records durably that a template is about to be deleted.
func (r *Registry) remember(id string) error {
	if err := r.dir.MkdirAll(deletedDir); err != nil {
		return err
	}
	if err := r.dir.WriteFile("deleted", path.Join(deletedDir, id), nil); err != nil {
		return err
	}
	r.deleted.set(id, true)
	return nil
}

// readopt ends the grants on a deleted template before another one gets its ID.
func (r *Registry) readopt(ctx context.Context, id string) error {
	if !r.deleted.has(id) {
		return nil
	}
	if err := r.endGrants(ctx, id); err != nil {
		return farm.Unavailable(err, "Removing the resource rights on the deleted template %s failed; try again", id)
	}
	return nil
}

// forget records that a template exists under an ID again. The file may stay after a failure: the next Open
// removes it.
func (r *Registry) forget(id string) {
	if !r.deleted.has(id) {
		return
	}
	r.deleted.set(id, false)
	if err := r.dir.RemoveAll("tidy", path.Join(deletedDir, id)); err != nil {
		r.log.Warn("removing the tombstone of a deleted template failed", "template", id, "error", err)
	}
}

// loadDeleted reads the IDs of deleted templates. One that still exists was about to be deleted, or was
// restored.
func (r *Registry) loadDeleted() error {
	r.deleted.ids = map[string]bool{}
	entries, err := r.dir.Names(deletedDir)
	if errors.Is(err, fs.ErrNotExist) { // nothing was deleted yet
		return nil
	}
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		id, ok := layout.ParseID(e.Name())
		return !ok || id != e.Name() || strings.HasPrefix(e.Name(), ".")
	})
	if excess := len(entries) - maxDeleted; excess > 0 {
		entries = r.dropOldest(entries, excess)
	}
	for _, e := range entries {
		r.deleted.ids[e.Name()] = true
		if r.snap.Load().knows(e.Name()) {
			r.forget(e.Name())
		}
	}
	return nil
}

// dropOldest forgets the ids that were deleted first.
func (r *Registry) dropOldest(entries []fs.DirEntry, excess int) []fs.DirEntry {
	written := func(e fs.DirEntry) int64 {
		if st, err := e.Info(); err == nil {
			return st.ModTime().UnixNano()
		}
		return 0
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return int(min(1, max(-1, written(a)-written(b)))) })
	for _, e := range entries[:excess] {
		if err := r.dir.RemoveAll("tidy", path.Join(deletedDir, e.Name())); err != nil {
			r.log.Warn("removing the tombstone of a deleted template failed", "template", e.Name(), "error", err)
		}
	}
	return entries[excess:]
}
