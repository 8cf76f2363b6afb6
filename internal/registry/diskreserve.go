package registry

import (
	"context"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// reserveShare bounds the reserve on a small disk: its size is at most the disk's size divided by reserveShare.
const reserveShare = 32

// spending runs a small write that must not fail for lack of space: on a full disk it releases the reserve and
// runs do once more. do must be repeatable.
func (r *Registry) spending(do func() error) error {
	err := do()
	if !isFull(err) || r.o.Reserve == 0 {
		return err
	}
	given, dropErr := r.dir.DropReserve()
	if dropErr != nil {
		r.log.Warn("releasing the disk reserve failed", "error", dropErr)
	}
	if !given {
		return err
	}
	r.strained.Store(true)
	r.log.Error("disk full: disk reserve released, pushes are refused until space is free", "storage",
		r.o.Base)
	return do()
}

// mayGrow refuses bytes of pushes while the reserve is released: the remaining space is for small writes.
func (r *Registry) mayGrow() error {
	if r.strained.Load() {
		return farm.Errorf(farm.CodeUnavailable, "%s: the disk reserve is in use; delete templates or free disk space",
			blob.FullMessage)
	}
	return nil
}

// keepReserve creates the disk reserve when it is missing and the disk has space for it and for a push.
func (r *Registry) keepReserve(ctx context.Context) {
	if r.o.Reserve == 0 || r.dir.HasReserve() {
		r.strained.Store(false)
		return
	}
	free, total, err := r.store.Space(ctx)
	size := min(r.o.Reserve, total/reserveShare)
	if err != nil || free < 2*size {
		return
	}
	if err := r.dir.MakeReserve(size); err != nil {
		r.log.Warn("creating the disk reserve failed", "error", err)
		return
	}
	if r.strained.Swap(false) {
		r.log.Info("disk has free space again; pushes are accepted", "storage", r.o.Base)
	}
}
