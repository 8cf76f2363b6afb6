package registry

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	mib = 1 << 20
	// hopeful is the share of the announced bytes that a push is expected to store at the least: files have
	// holes and compress, and what would fit is never refused for being announced.
	hopeful = 20
	// slack is what has to be free for a push that announces as much.
	slack = 64 * mib
)

// full gives a failure for want of space its code and its sentence. Deferred, with the address of the result.
func full(err *error) {
	if errors.Is(*err, syscall.ENOSPC) || errors.Is(*err, syscall.EDQUOT) {
		*err = farm.Unavailable(*err, blob.FullMessage)
	}
}

// room refuses a push that has no hope to fit, before a byte of it is sent. Files whose layers are here cost
// nothing, and what pushes hold that have been idle for long is given up for it.
func (r *Registry) room(ctx context.Context, req api.PushRequest) error {
	var announced int64
	for _, f := range req.Files {
		if root, err := blob.ParseRoot(f.Root); err == nil && r.holds(root) {
			continue
		}
		announced += f.Size
	}
	need := max(announced/hopeful, min(announced, slack))
	free, _, err := r.store.Space(ctx)
	if err == nil && free < need {
		r.endIdle(ctx)
		free, _, err = r.store.Space(ctx)
	}
	if err != nil || free >= need {
		return err
	}
	return farm.Errorf(farm.CodeUnavailable, "%s: the push has up to %d MB, %d MB are free",
		blob.FullMessage, (announced+mib-1)/mib, free/mib)
}

// endIdle ends the unfinished pushes that have been idle for longer than keepIdle.
func (r *Registry) endIdle(ctx context.Context) {
	for _, s := range r.allSessions() {
		if s.done() != nil || !s.spare(r.o.Now()) { // a committed one holds nothing
			continue
		}
		if err := r.expire(ctx, s); err != nil {
			r.log.Warn("an idle push could not be ended", "session", s.id, "error", err)
		}
	}
}

// holds tells whether a layer is there.
func (r *Registry) holds(root blob.Root) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[root] != nil
}

// giveUp takes a part that the disk had no space for out of flight. What was written of it is given back,
// unless the same bytes were received before or are being received again.
func (r *Registry) giveUp(ctx context.Context, u *upload, p *part) {
	u.mu.Lock() // over the discarding, so that nobody begins to write there meanwhile
	defer u.mu.Unlock()
	u.flying = slices.DeleteFunc(u.flying, func(q *part) bool { return q == p })
	if slices.ContainsFunc(u.flying, p.overlaps) {
		return
	}
	for _, q := range u.parts {
		if p.overlaps(q) {
			return
		}
	}
	if err := r.store.Discard(ctx, u.id, p.off, p.length); err != nil {
		r.log.Warn("space of a failed part stays taken", "session", u.id.Session, "error", err)
	}
}
