package auth

import (
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of a GuessLimiter in addition to those of one address (failureBurst, failureInterval).
const (
	totalBurst          = 600                   // failures of all addresses together that are accepted in a burst
	totalInterval       = 20 * time.Millisecond // the interval after which another may follow
	maxTrustedAddresses = 4096                  // addresses from which a right secret came that are remembered
	trustRetention      = 24 * time.Hour
	trustPrecision      = time.Minute // how exact that time is
)

// GuessLimiter bounds how often secrets that people can choose, the root token and the join token,
// are compared with what callers present. It is called before the comparison: while an address has
// failed too often, the right secret is rejected from it too, so that a response reveals nothing
// about the secret.
//
// No address is locked out for long: rejected attempts are not counted, so that an address may try
// again every failureInterval. The limit of all addresses together never applies to addresses from which
// the right secret came within a day. The zero value is ready.
type GuessLimiter struct {
	mu           sync.Mutex // guards the fields below
	byAddress    tokenBuckets
	totalFullAt  time.Time            // from when on the whole allowance of all is there again
	trustedSince map[string]time.Time // address -> when the right secret came from it
}

// Allow refuses an attempt from an address, before anything is compared.
func (g *GuessLimiter) Allow(addr string) error {
	now, from := time.Now(), LimiterKey(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := g.byAddress.waitTime(from, now)
	if !g.isTrustedLocked(from, now) {
		wait = max(wait, timeUntilNext(g.totalFullAt, now, totalBurst, totalInterval))
	}
	if wait <= 0 {
		return nil
	}
	return tooManyFailures(wait)
}

// RecordResult records the result of the comparison of an attempt from an address. Only errors that mean a
// wrong secret count.
func (g *GuessLimiter) RecordResult(addr string, err error) {
	now, from := time.Now(), LimiterKey(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.trustLocked(from, now)
	case farm.CodeOf(err) == farm.CodeUnauthenticated:
		g.byAddress.takeToken(from, now)
		if !g.isTrustedLocked(from, now) {
			g.totalFullAt = laterTime(g.totalFullAt, now).Add(totalInterval)
		}
	}
}

func (g *GuessLimiter) isTrustedLocked(from string, now time.Time) bool {
	return now.Sub(g.trustedSince[from]) < trustRetention
}

// trustLocked records that the right secret came from an address. When the table is full, any
// other address is forgotten: only a caller with the secret can cause that.
func (g *GuessLimiter) trustLocked(from string, now time.Time) {
	at, ok := g.trustedSince[from]
	if now.Sub(at) < trustPrecision {
		return
	}
	if g.trustedSince == nil {
		g.trustedSince = map[string]time.Time{}
	}
	if !ok && len(g.trustedSince) >= maxTrustedAddresses {
		for other := range g.trustedSince {
			delete(g.trustedSince, other)
			break
		}
	}
	g.trustedSince[from] = now
}
