package registry

import (
	"context"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// maxReserveDivisor bounds the reserve on a small disk: its size is at most the disk's size divided by
// maxReserveDivisor.
const maxReserveDivisor = 32

// writeWithReserve runs a small write that must not fail for lack of space: on a full disk it releases the reserve and
// runs do once more. do must be repeatable.
func (r *Registry) writeWithReserve(do func() error) error {
	err := do()
	if !isDiskFull(err) || r.opts.ReserveBytes == 0 {
		return err
	}
	given, dropErr := r.dir.RemoveReserve()
	if dropErr != nil {
		r.log.Warn("releasing the disk reserve failed", "error", dropErr)
	}
	if !given {
		return err
	}
	r.reserveReleased.Store(true)
	r.log.Error("disk full: disk reserve released, pushes are refused until space is free", "storage",
		r.opts.Base)
	return do()
}

// refuseWhenFull refuses bytes of pushes while the reserve is released: the remaining space is for small writes.
func (r *Registry) refuseWhenFull() error {
	if r.reserveReleased.Load() {
		return farm.Errorf(farm.CodeUnavailable, "%s: the disk reserve is in use; delete templates or free disk space",
			blob.DiskFullMessage)
	}
	return nil
}

// maintainReserve creates the disk reserve when it is missing and the disk has space for it and for a push.
func (r *Registry) maintainReserve(ctx context.Context) {
	if r.opts.ReserveBytes == 0 || r.dir.HasReserve() {
		r.reserveReleased.Store(false)
		return
	}
	free, total, err := r.store.Space(ctx)
	size := min(r.opts.ReserveBytes, total/maxReserveDivisor)
	if err != nil || free < 2*size {
		return
	}
	if err := r.dir.CreateReserve(size); err != nil {
		r.log.Warn("creating the disk reserve failed", "error", err)
		return
	}
	if r.reserveReleased.Swap(false) {
		r.log.Info("disk has free space again; pushes are accepted", "storage", r.opts.Base)
	}
}
