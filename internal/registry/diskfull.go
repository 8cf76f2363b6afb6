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
	// minStoredDivisor is the divisor of the announced bytes that yields the minimum that a push is expected to store.
	// Files have holes and compress, and a push that would fit is never refused for the announced size.
	minStoredDivisor = 20
	// maxRequiredFree is the free space that a push requires at most for its announced size.
	maxRequiredFree = 64 * mib
)

// setDiskFull sets code and message of a failure for lack of space. It is deferred, with the address of the result.
func setDiskFull(err *error) {
	if isDiskFull(*err) && farm.CodeOf(*err) != farm.CodeUnavailable {
		*err = farm.Unavailable(*err, blob.DiskFullMessage)
	}
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// expectedBytes is the number of bytes reserved for a file of a push. It is the maximum that the client announced,
// plus the index, or else a share of the file's size as the lowest likely value. A file that is already stored
// needs none.
func expectedBytes(f api.PushFile, chain []layout.Layer) int64 {
	if isStoredFile(f, chain) {
		return 0
	}
	if f.Data > 0 {
		n := min(f.Data, f.Size)
		return n + n/50
	}
	return f.Size / minStoredDivisor
}

// reservedBytes is the number of bytes that the unfinished pushes may still store, as far as that is known.
func (r *Registry) reservedBytes() int64 {
	var sum int64
	for _, s := range r.uncommittedSessions() {
		sum += s.reservedBytes()
	}
	return sum
}

// reservedByCaller is the number of bytes that the pushes of one caller may still store.
func (r *Registry) reservedByCaller(caller string) int64 {
	var sum int64
	for _, s := range r.uncommittedSessions() {
		if s.caller == caller {
			sum += s.reservedBytes()
		}
	}
	return sum
}

// cappedReservations is the space reserved for the unfinished pushes: what they may still store, limited per caller to
// the maximum that one caller may reserve.
func (r *Registry) cappedReservations(free int64) int64 {
	byCaller := map[string]int64{}
	for _, s := range r.uncommittedSessions() {
		byCaller[s.caller] += s.reservedBytes()
	}
	var sum int64
	for caller, reserved := range byCaller {
		if caller != "" {
			reserved = min(reserved, r.maxReservation(free))
		}
		sum += reserved
	}
	return sum
}

// reservedBytes is the number of bytes that the push may still store.
func (s *session) reservedBytes() int64 {
	var sum int64
	for _, u := range s.uploads {
		sum += max(0, expectedBytes(u.pushFile, u.parentChain)-u.receivedBytes())
	}
	return sum
}

// receivedBytes is the number of bytes received of an upload. Once its index was received, the whole file counts as
// received.
func (u *upload) receivedBytes() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.indexDigest.IsZero() {
		return math.MaxInt64
	}
	var sum int64
	for _, p := range u.parts {
		sum += p.bytes
	}
	return sum
}

// checkSpace refuses a push that cannot fit next to the unfinished pushes, before any of its bytes are sent. Before
// it refuses, it empties the trash and then ends pushes that have been idle for longer than minEvictableIdle. The
// caller holds booking.
func (r *Registry) checkSpace(ctx context.Context, caller string, req api.PushRequest, chains [][]layout.Layer) error {
	var announced, need int64
	for i, f := range req.Files {
		if n := expectedBytes(f, chains[i]); n > 0 {
			announced += f.Size
			need += max(n, min(f.Size, maxRequiredFree/maxPushFiles))
		}
	}
	need = max(need, min(announced, maxRequiredFree))
	if need == 0 {
		return nil
	}
	if err := r.refuseWhenFull(); err != nil {
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
	for _, give := range []func(){func() {}, func() { r.emptyTrash(ctx) }, func() { r.evictIdlePushes(ctx) }} {
		give()
		var err error
		if free, _, err = r.store.Space(ctx); err != nil {
			return err
		}
		if promised = r.cappedReservations(free); free-promised >= need {
			return nil
		}
	}
	return farm.Errorf(farm.CodeUnavailable,
		"%s: the push has up to %d MiB and needs at least %d MiB; %d MiB are reserved for other pushes, %d MiB are "+
			"free",
		blob.DiskFullMessage, (announced+mib-1)/mib, (need+mib-1)/mib, promised/mib, free/mib)
}

// emptyTrash permanently removes files that could have been restored for a while: a push needs the space.
func (r *Registry) emptyTrash(ctx context.Context) {
	if r.trashBytes.Load() == 0 {
		return
	}
	r.log.Info("trash emptied to free space for a push", "bytes", r.trashBytes.Load())
	if err := r.purgeTrash(ctx, maxTime); err != nil {
		r.log.Warn("emptying the trash failed", "error", err)
	}
	r.measureTrash()
}

// isUsable reports whether a layer is stored and not damaged.
func (r *Registry) isUsable(root blob.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.storedLayers[root] != nil && r.badLayers[root] == ""
}

// evictIdlePushes ends the unfinished pushes that have been idle for longer than minEvictableIdle.
func (r *Registry) evictIdlePushes(ctx context.Context) {
	for _, s := range r.allSessions() {
		if s.committedResult() != nil || !s.isEvictable(r.opts.Now()) { // a committed one holds nothing
			continue
		}
		if err := r.expireSession(ctx, s); err != nil {
			r.log.Warn("ending an idle push session failed", "session", s.id, "error", err)
		}
	}
}

// hasStoredLayer reports whether a layer is stored.
func (r *Registry) hasStoredLayer(root blob.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.storedLayers[root] != nil
}

// discardPart removes a part for which the disk had no space from the parts in flight. It frees the space of what
// was written, unless the same bytes were received before or are being received again.
func (r *Registry) discardPart(ctx context.Context, u *upload, p *receivedPart) {
	u.mu.Lock() // until the discard ends, so that no part begins to write there
	defer u.mu.Unlock()
	u.inFlight = slices.DeleteFunc(u.inFlight, func(q *receivedPart) bool { return q == p })
	if slices.ContainsFunc(u.inFlight, p.overlaps) {
		return
	}
	for _, q := range u.parts {
		if p.overlaps(q) {
			return
		}
	}
	u.freezeMu.RLock()
	defer u.freezeMu.RUnlock()
	if u.frozen {
		return // the file has become a layer since then
	}
	if err := r.store.DiscardRange(ctx, u.id, p.off, p.bytes); err != nil {
		r.log.Warn("freeing the space of a failed part failed", "session", u.id.PushSession, "error", err)
	}
}
