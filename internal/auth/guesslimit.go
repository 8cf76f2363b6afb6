package auth

import (
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of a GuessLimiter in addition to those of one address (failBurst, failEvery).
const (
	totalBurst = 600                   // failures of all addresses together that are accepted in a burst
	totalEvery = 20 * time.Millisecond // the interval after which another may follow
	maxKnown   = 4096                  // addresses from which a right secret came that are remembered
	knownFor   = 24 * time.Hour
	knownFresh = time.Minute // how exact that time is
)

// GuessLimiter bounds how often secrets that people can choose, the root token and the join token,
// are compared with what callers present. It is called before the comparison: while an address has
// failed too often, the right secret is rejected from it too, so that a response reveals nothing
// about the secret.
//
// No address is locked out for long: rejected attempts are not counted, so that an address may try
// again every failEvery. The limit of all addresses together never applies to addresses from which
// the right secret came within a day. The zero value is ready.
type GuessLimiter struct {
	mu        sync.Mutex // guards what follows
	byAddress tokenBuckets
	total     time.Time            // from when on the whole allowance of all is there again
	known     map[string]time.Time // address -> when the right secret came from it
}

// Allow refuses an attempt from an address, before anything is compared.
func (g *GuessLimiter) Allow(addr string) error {
	now, from := time.Now(), Neighborhood(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := g.byAddress.wait(from, now)
	if !g.isTrustedLocked(from, now) {
		wait = max(wait, timeUntilNext(g.total, now, totalBurst, totalEvery))
	}
	if wait <= 0 {
		return nil
	}
	return tooManyFailures(wait)
}

// Note records the result of the comparison of an attempt from an address. Only errors that mean a
// wrong secret count.
func (g *GuessLimiter) Note(addr string, err error) {
	now, from := time.Now(), Neighborhood(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.trustLocked(from, now)
	case farm.CodeOf(err) == farm.CodeUnauthenticated:
		g.byAddress.take(from, now)
		if !g.isTrustedLocked(from, now) {
			g.total = later(g.total, now).Add(totalEvery)
		}
	}
}

func (g *GuessLimiter) isTrustedLocked(from string, now time.Time) bool {
	return now.Sub(g.known[from]) < knownFor
}

// trustLocked records that the right secret came from an address. When the table is full, any
// other address is forgotten: only a caller with the secret can cause that.
func (g *GuessLimiter) trustLocked(from string, now time.Time) {
	at, ok := g.known[from]
	if now.Sub(at) < knownFresh {
		return
	}
	if g.known == nil {
		g.known = map[string]time.Time{}
	}
	if !ok && len(g.known) >= maxKnown {
		for other := range g.known {
			delete(g.known, other)
			break
		}
	}
	g.known[from] = now
}
