package registry

import (
	"context"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// reserveShare bounds the reserve on a small disk: it takes at most one part in so many of the whole.
const reserveShare = 32

// spending does a small write that must not fail for want of room: on a full disk the reserve is given up for it
// and it is done once more. do must be fit to be repeated.
func (r *Registry) spending(do func() error) error {
	err := do()
	if !isFull(err) || r.o.Reserve == 0 {
		return err
	}
	given, dropErr := r.dir.DropReserve()
	if dropErr != nil {
		r.log.Warn("the reserve could not be given up", "error", dropErr)
	}
	if !given {
		return err
	}
	r.strained.Store(true)
	r.log.Error("the disk is full: the reserve is given up and pushes are refused until there is room again", "storage", r.o.Base)
	return do()
}

// mayGrow refuses bytes of pushes while the reserve is given up: what is left is for what is small.
func (r *Registry) mayGrow() error {
	if r.strained.Load() {
		return farm.Errorf(farm.CodeUnavailable, "%s: its reserve is in use; remove templates or make room", blob.FullMessage)
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
		r.log.Warn("the reserve could not be made", "error", err)
		return
	}
	if r.strained.Swap(false) {
		r.log.Info("there is room again: pushes are taken", "storage", r.o.Base)
	}
}
