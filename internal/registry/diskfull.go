package registry

import (
	"context"
	"errors"
	"math"
	"slices"
	"syscall"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	mib = 1 << 20
	// hopeful is the divisor of the announced bytes that yields the minimum that a push is expected to store.
	// Files have holes and compress, and a push that would fit is never refused for the announced size.
	hopeful = 20
	// slack is the free space that a push requires at most for its announced size.
	slack = 64 * mib
)

// full sets code and message of a failure for lack of space. It is deferred, with the address of the result.
func full(err *error) {
	if isFull(*err) && farm.CodeOf(*err) != farm.CodeUnavailable {
		*err = farm.Unavailable(*err, blob.FullMessage)
	}
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// expected is the number of bytes reserved for a file of a push. It is the maximum that the client announced,
// plus the index, or else a share of the file's size as the lowest likely value. A file that is already stored
// needs none.
func expected(f api.PushFile, chain []layout.Layer) int64 {
	if isSame(f, chain) {
		return 0
	}
	if f.Data > 0 {
		n := min(f.Data, f.Size)
		return n + n/50
	}
	return f.Size / hopeful
}

// reserved is the number of bytes that the unfinished pushes may still store, as far as that is known.
func (r *Registry) reserved() int64 {
	var sum int64
	for _, s := range r.openPushes() {
		sum += s.reserved()
	}
	return sum
}

// reservedBy is the number of bytes that the pushes of one caller may still store.
func (r *Registry) reservedBy(caller string) int64 {
	var sum int64
	for _, s := range r.openPushes() {
		if s.caller == caller {
			sum += s.reserved()
		}
	}
	return sum
}

// promised is the space reserved for the unfinished pushes: what they may still store, limited per caller to
// the maximum that one caller may reserve.
func (r *Registry) promised(free int64) int64 {
	byCaller := map[string]int64{}
	for _, s := range r.openPushes() {
		byCaller[s.caller] += s.reserved()
	}
	var sum int64
	for caller, reserved := range byCaller {
		if caller != "" {
			reserved = min(reserved, r.mostReserved(free))
		}
		sum += reserved
	}
	return sum
}

// reserved is the number of bytes that the push may still store.
func (s *session) reserved() int64 {
	var sum int64
	for _, u := range s.uploads {
		sum += max(0, expected(u.spec, u.chain)-u.received())
	}
	return sum
}

// received is the number of bytes received of an upload. Once its index was received, the whole file counts as
// received.
func (u *upload) received() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.index.IsZero() {
		return math.MaxInt64
	}
	var sum int64
	for _, p := range u.parts {
		sum += p.length
	}
	return sum
}

// room refuses a push that cannot fit next to the unfinished pushes, before any of its bytes are sent. Before
// it refuses, it empties the trash and then ends pushes that have been idle for longer than keepIdle. The
// caller holds booking.
func (r *Registry) room(ctx context.Context, caller string, req api.PushRequest, chains [][]layout.Layer) error {
	var announced, need int64
	for i, f := range req.Files {
		if n := expected(f, chains[i]); n > 0 {
			announced += f.Size
			need += max(n, min(f.Size, slack/maxFiles))
		}
	}
	need = max(need, min(announced, slack))
	if need == 0 {
		return nil
	}
	if err := r.mayGrow(); err != nil {
		return err
	}
	free, _, err := r.store.Space(ctx)
	if err == nil && need <= free { // a push that cannot fit at all is refused for that reason
		err = r.admitReservation(caller, free)
	}
	if err != nil {
		return err
	}
	var promised int64
	for _, give := range []func(){func() {}, func() { r.emptyTrash(ctx) }, func() { r.expirePushes(ctx) }} {
		give()
		var err error
		if free, _, err = r.store.Space(ctx); err != nil {
			return err
		}
		if promised = r.promised(free); free-promised >= need {
			return nil
		}
	}
	return farm.Errorf(farm.CodeUnavailable,
		"%s: the push has up to %d MiB and needs at least %d MiB; %d MiB are reserved for other pushes, %d MiB are "+
			"free",
		blob.FullMessage, (announced+mib-1)/mib, (need+mib-1)/mib, promised/mib, free/mib)
}

// emptyTrash permanently removes files that could have been restored for a while: a push needs the space.
func (r *Registry) emptyTrash(ctx context.Context) {
	if r.trashSize.Load() == 0 {
		return
	}
	r.log.Info("trash emptied to free space for a push", "bytes", r.trashSize.Load())
	if err := r.purge(ctx, everything); err != nil {
		r.log.Warn("emptying the trash failed", "error", err)
	}
	r.measureTrash()
}

// usable reports whether a layer is stored and not damaged.
func (r *Registry) usable(root blob.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[root] != nil && r.bad[root] == ""
}

// expirePushes ends the unfinished pushes that have been idle for longer than keepIdle.
func (r *Registry) expirePushes(ctx context.Context) {
	for _, s := range r.allSessions() {
		if s.done() != nil || !s.spare(r.o.Now()) { // a committed one holds nothing
			continue
		}
		if err := r.expire(ctx, s); err != nil {
			r.log.Warn("ending an idle push session failed", "session", s.id, "error", err)
		}
	}
}

// holds reports whether a layer is stored.
func (r *Registry) holds(root blob.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[root] != nil
}

// giveUp removes a part for which the disk had no space from the parts in flight. It frees the space of what
// was written, unless the same bytes were received before or are being received again.
func (r *Registry) giveUp(ctx context.Context, u *upload, p *part) {
	u.mu.Lock() // until the discard ends, so that no part begins to write there
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
	u.gate.RLock()
	defer u.gate.RUnlock()
	if u.sealed {
		return // the file has become a layer since then
	}
	if err := r.store.Discard(ctx, u.id, p.off, p.length); err != nil {
		r.log.Warn("freeing the space of a failed part failed", "session", u.id.Session, "error", err)
	}
}
