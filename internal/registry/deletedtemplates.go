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

// maxDeletedIDs bounds the recorded IDs; beyond it the oldest deletions are forgotten.
const maxDeletedIDs = 100_000

// deletedTemplates records the IDs of deleted templates.
type deletedTemplates struct {
	mu  sync.Mutex // guards the fields below
	ids map[string]bool
	// removeGrants ends the grants on templates; nil: there are none.
	removeGrants func(ctx context.Context, ids []string) error
}

func (d *deletedTemplates) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[id]
}

func (d *deletedTemplates) set(id string, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if is {
		d.ids[id] = true
	} else {
		delete(d.ids, id)
	}
}

// list returns all IDs, and the function that ends grants on them.
func (d *deletedTemplates) list() (ids []string, end func(ctx context.Context, ids []string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.ids {
		ids = append(ids, id)
	}
	return ids, d.removeGrants
}

// SetGrantRemover sets the function that ends the grants on deleted templates. It is called after each deletion,
// before a template is created under such an ID again, and by RemoveDeletedGrants.
func (r *Registry) SetGrantRemover(remove func(ctx context.Context, ids []string) error) {
	r.deletedTemplates.mu.Lock()
	defer r.deletedTemplates.mu.Unlock()
	r.deletedTemplates.removeGrants = remove
}

// RemoveDeletedGrants ends the grants on all deleted templates, including those whose deletion was interrupted by
// a crash or an unavailable store.
func (r *Registry) RemoveDeletedGrants(ctx context.Context) error {
	ids, end := r.deletedTemplates.list()
	snap := r.snapshot.Load()
	ids = slices.DeleteFunc(ids, snap.hasTemplate) // about to be deleted, or created again
	if end == nil || len(ids) == 0 {
		return nil
	}
	return end(ctx, ids)
}

// removeGrants ends the grants on one template.
func (r *Registry) removeGrants(ctx context.Context, id string) error {
	_, end := r.deletedTemplates.list()
	if end == nil {
		return nil
	}
	return end(ctx, []string{id})
}

// recordDeletion records durably that a template is about to be deleted.
func (r *Registry) recordDeletion(id string) error {
	if err := r.dir.MkdirAll(deletedDir); err != nil {
		return err
	}
	if err := r.dir.WriteShared("deleted", path.Join(deletedDir, id), nil); err != nil {
		return err
	}
	r.deletedTemplates.set(id, true)
	return nil
}

// prepareReusedID ends the grants on a deleted template before another one gets its ID.
func (r *Registry) prepareReusedID(ctx context.Context, id string) error {
	if !r.deletedTemplates.has(id) {
		return nil
	}
	if err := r.removeGrants(ctx, id); err != nil {
		return farm.Unavailable(err, "Removing the resource rights on the deleted template %s failed; try again", id)
	}
	return nil
}

// forgetDeletion records that a template exists under an ID again. The file may stay after a failure: the next Open
// removes it.
func (r *Registry) forgetDeletion(id string) {
	if !r.deletedTemplates.has(id) {
		return
	}
	r.deletedTemplates.set(id, false)
	if err := r.dir.RemoveShared("tidy", path.Join(deletedDir, id)); err != nil {
		r.log.Warn("removing the tombstone of a deleted template failed", "template", id, "error", err)
	}
}

// loadDeleted reads the IDs of deleted templates. One that still exists was about to be deleted, or was
// restored.
func (r *Registry) loadDeleted() error {
	r.deletedTemplates.ids = map[string]bool{}
	entries, err := r.dir.ReadDir(deletedDir)
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
	if excess := len(entries) - maxDeletedIDs; excess > 0 {
		entries = r.dropOldestDeletions(entries, excess)
	}
	for _, e := range entries {
		r.deletedTemplates.ids[e.Name()] = true
		if r.snapshot.Load().hasTemplate(e.Name()) {
			r.forgetDeletion(e.Name())
		}
	}
	return nil
}

// dropOldestDeletions forgets the ids that were deleted first.
func (r *Registry) dropOldestDeletions(entries []fs.DirEntry, excess int) []fs.DirEntry {
	written := func(e fs.DirEntry) int64 {
		if st, err := e.Info(); err == nil {
			return st.ModTime().UnixNano()
		}
		return 0
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return int(min(1, max(-1, written(a)-written(b)))) })
	for _, e := range entries[:excess] {
		if err := r.dir.RemoveShared("tidy", path.Join(deletedDir, e.Name())); err != nil {
			r.log.Warn("removing the tombstone of a deleted template failed", "template", e.Name(), "error", err)
		}
	}
	return entries[excess:]
}
