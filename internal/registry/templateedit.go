package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// Revert removes a version and all newer ones. Their layers become garbage unless other versions need them.
func (r *Registry) Revert(_ context.Context, ref Ref) (err error) {
	defer full(&err)
	return r.spending(func() error { return r.revert(ref) })
}

func (r *Registry) revert(ref Ref) error {
	r.write.Lock()
	defer r.write.Unlock()
	e, err := r.lookup(ref.ID)
	if err != nil {
		return err
	}
	i, err := find(e.t.Versions, ref)
	if err != nil {
		return err
	}
	next := successor(e.t)
	next.Versions = next.Versions[:i:i]
	if err := r.save(next); err != nil {
		return err
	}
	if err := r.dir.Prune(next); err != nil {
		r.log.Warn("removing the directories of reverted versions failed", "template", next.ID, "error", err)
	}
	r.log.Info("versions reverted", "template", next.ID, "from", i, "count", len(e.t.Versions)-i)
	return nil
}

// Delete removes a template with all versions; a damaged one, too.
// The grants on it end with it.
func (r *Registry) Delete(ctx context.Context, id string) (err error) {
	defer full(&err)
	clean, ok := layout.ParseID(id)
	if !ok {
		return farm.NotFound()
	}
	if err := r.spending(func() error { return r.delete(clean) }); err != nil {
		return err
	}
	if err := r.endGrants(ctx, clean); err != nil { // EndDeletedGrants tries again
		r.log.WarnContext(ctx, "removing the resource rights on a deleted template failed; retrying", "template", clean,
			"error", err)
	}
	return nil
}

func (r *Registry) delete(clean string) error {
	r.write.Lock()
	defer r.write.Unlock()
	if !r.snap.Load().knows(clean) {
		return farm.NotFound()
	}
	if err := r.remember(clean); err != nil {
		return err
	}
	err := r.dir.Delete(clean, r.o.Now().UnixNano())
	if errors.Is(err, fs.ErrNotExist) { // an earlier call that failed later has moved it
		err = r.dir.SyncPending()
	}
	if err != nil {
		r.forget(clean)
		return err
	}
	r.swap(clean, nil)
	r.log.Info("template deleted", "template", clean)
	return nil
}

// knows reports whether a template exists, even if it is damaged.
func (s *snapshot) knows(id string) bool {
	if s.templates[id] != nil {
		return true
	}
	for _, d := range s.damaged {
		if d.ID == id {
			return true
		}
	}
	return false
}

// SetArch sets the architecture of a template and of all its versions.
func (r *Registry) SetArch(_ context.Context, id, arch string) (err error) {
	defer full(&err)
	if arch == "" || !layout.ValidArch(arch) {
		return farm.Invalid("arch", "must be amd64 or arm64")
	}
	return r.spending(func() error { return r.setArch(id, arch) })
}

func (r *Registry) setArch(id, arch string) error {
	r.write.Lock()
	defer r.write.Unlock()
	e, err := r.lookup(id)
	if err != nil {
		return err
	}
	next := successor(e.t)
	next.Arch = arch
	for i := range next.Versions {
		next.Versions[i].Arch = arch
	}
	return r.save(next)
}

// successor is a copy of a template for its next generation. The versions it holds are shared and never
// changed; the list is its own.
func successor(t *layout.Template) *layout.Template {
	next := *t
	next.Gen++
	next.Versions = append([]layout.Version(nil), t.Versions...)
	return &next
}

// save writes a template and publishes it to readers. After a failure it reads the disk again, since it is
// unknown which of the two generations a crash would leave. The caller holds write.
func (r *Registry) save(t *layout.Template) error {
	err := r.dir.Save(t)
	if err == nil {
		r.swap(t.ID, t)
		return nil
	}
	if onDisk, readErr := r.dir.Template(t.ID); readErr == nil {
		r.swap(t.ID, &onDisk)
	}
	if errors.Is(err, layout.ErrTooLong) {
		return farm.Refused("Version limit of template %s reached: revert some versions, or push to a new template",
			t.Name)
	}
	if errors.Is(err, layout.ErrGeneration) {
		return &farm.Error{Code: farm.CodeConflict, Message: fmt.Sprintf("Template %s was changed by another writer",
			t.ID), Err: err}
	}
	return err
}
