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
func (r *Registry) Revert(_ context.Context, ref VersionRef) (err error) {
	defer setDiskFull(&err)
	return r.writeWithReserve(func() error { return r.revert(ref) })
}

func (r *Registry) revert(ref VersionRef) error {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, err := r.findTemplate(ref.ID)
	if err != nil {
		return err
	}
	i, err := findVersion(e.template.Versions, ref)
	if err != nil {
		return err
	}
	next := nextGeneration(e.template)
	next.Versions = next.Versions[:i:i]
	if err := r.saveTemplate(next); err != nil {
		return err
	}
	if err := r.dir.PruneTemplate(next); err != nil {
		r.log.Warn("removing the directories of reverted versions failed", "template", next.ID, "error", err)
	}
	r.log.Info("versions reverted", "template", next.ID, "from", i, "count", len(e.template.Versions)-i)
	return nil
}

// Delete removes a template with all versions; a damaged one, too.
// The grants on it end with it.
func (r *Registry) Delete(ctx context.Context, id string) (err error) {
	defer setDiskFull(&err)
	clean, ok := layout.ParseID(id)
	if !ok {
		return farm.NotFound()
	}
	if err := r.writeWithReserve(func() error { return r.delete(clean) }); err != nil {
		return err
	}
	if err := r.removeGrants(ctx, clean); err != nil { // RemoveDeletedGrants tries again
		r.log.WarnContext(ctx, "removing the resource rights on a deleted template failed; retrying", "template", clean,
			"error", err)
	}
	return nil
}

func (r *Registry) delete(clean string) error {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	if !r.snapshot.Load().hasTemplate(clean) {
		return farm.NotFound()
	}
	if err := r.recordDeletion(clean); err != nil {
		return err
	}
	err := r.dir.TrashTemplate(clean, r.opts.Now().UnixNano())
	if errors.Is(err, fs.ErrNotExist) { // an earlier call that failed later has moved it
		err = r.dir.SyncPending()
	}
	if err != nil {
		r.forgetDeletion(clean)
		return err
	}
	r.publishTemplate(clean, nil)
	r.log.Info("template deleted", "template", clean)
	return nil
}

// hasTemplate reports whether a template exists, even if it is damaged.
func (s *snapshot) hasTemplate(id string) bool {
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
	defer setDiskFull(&err)
	if arch == "" || !layout.ValidArch(arch) {
		return farm.Invalid("arch", "must be amd64 or arm64")
	}
	return r.writeWithReserve(func() error { return r.setArch(id, arch) })
}

func (r *Registry) setArch(id, arch string) error {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, err := r.findTemplate(id)
	if err != nil {
		return err
	}
	next := nextGeneration(e.template)
	next.Arch = arch
	for i := range next.Versions {
		next.Versions[i].Arch = arch
	}
	return r.saveTemplate(next)
}

// nextGeneration is a copy of a template for its next generation. The versions it holds are shared and never
// changed; the list is its own.
func nextGeneration(t *layout.Template) *layout.Template {
	next := *t
	next.Gen++
	next.Versions = append([]layout.Version(nil), t.Versions...)
	return &next
}

// saveTemplate writes a template and publishes it to readers. After a failure it reads the disk again, since it is
// unknown which of the two generations a crash would leave. The caller holds write.
func (r *Registry) saveTemplate(t *layout.Template) error {
	err := r.dir.SaveTemplate(t)
	if err == nil {
		r.publishTemplate(t.ID, t)
		return nil
	}
	if onDisk, readErr := r.dir.Template(t.ID); readErr == nil {
		r.publishTemplate(t.ID, &onDisk)
	}
	if errors.Is(err, layout.ErrTemplateTooLarge) {
		return farm.Refused("Version limit of template %s reached: revert some versions, or push to a new template",
			t.Name)
	}
	if errors.Is(err, layout.ErrGenerationConflict) {
		return &farm.Error{Code: farm.CodeConflict, Message: fmt.Sprintf("Template %s was changed by another writer",
			t.ID), Err: err}
	}
	return err
}
