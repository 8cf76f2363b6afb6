package auth

import (
	"net/netip"
	"sync"
	"time"
)

// How many handshakes of one key or one address may fail before further ones are rejected, and the
// interval after which another may fail.
const (
	failureBurst    = 30
	failureInterval = 2 * time.Second
	maxTrackedNames = 4096 // keys or addresses that are tracked; all others share one allowance
)

// FailureLimiter limits the failures of keys and addresses. Successful callers are not limited. The
// zero value is ready.
type FailureLimiter struct {
	mu           sync.Mutex // guards the fields below
	byID, byName tokenBuckets
}

// Count counts a failed attempt and reports whether there were too many, of the ID or of the
// address.
func (f *FailureLimiter) Count(id, addr string) (tooMany bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(id) > MaxKeyID {
		id = ""
	}
	a, b := f.byID.takeToken(id, now), f.byName.takeToken(LimiterKey(addr), now)
	return !a || !b
}

// CountFrom is Count for attempts that name no API key.
func (f *FailureLimiter) CountFrom(addr string) (tooMany bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.byName.takeToken(LimiterKey(addr), time.Now())
}

// LimiterKey returns the key under which an address is limited: an IPv6 host has its whole /64.
func LimiterKey(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		port, err := netip.ParseAddrPort(addr)
		if err != nil {
			return ""
		}
		ip = port.Addr()
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// tokenBuckets maps names to the moment from which on their allowance is whole again. A
// failure moves it on by failureInterval; it may be failureBurst of these away.
type tokenBuckets struct {
	fullAt       map[string]time.Time
	othersFullAt time.Time // of all that are not in the table
	prunedAt     time.Time
}

// findFullAt returns when the allowance of a name is complete again, and whether the name has a separate
// one.
func (a *tokenBuckets) findFullAt(name string, now time.Time) (full time.Time, known bool) {
	full, known = a.fullAt[name]
	if !known && len(a.fullAt) >= maxTrackedNames && !a.pruneFull(now) {
		full = a.othersFullAt
	}
	return full, known
}

// waitTime returns how long it is until the next attempt of a name; 0 when one is allowed now.
func (a *tokenBuckets) waitTime(name string, now time.Time) time.Duration {
	full, _ := a.findFullAt(name, now)
	return timeUntilNext(full, now, failureBurst, failureInterval)
}

// timeUntilNext returns how long it is until an allowance of burst attempts, which is complete again at
// full and regains one per interval every, has one left.
func timeUntilNext(full, now time.Time, burst int, every time.Duration) time.Duration {
	if !full.After(now) {
		return 0
	}
	return max(0, full.Sub(now)-time.Duration(burst-1)*every)
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takeToken uses one attempt of a name's allowance, and reports whether there was one.
func (a *tokenBuckets) takeToken(name string, now time.Time) bool {
	full, known := a.findFullAt(name, now)
	full = laterTime(full, now)
	ok := full.Sub(now) < failureBurst*failureInterval
	if ok {
		full = full.Add(failureInterval)
	}
	switch {
	case known || len(a.fullAt) < maxTrackedNames:
		if a.fullAt == nil {
			a.fullAt = map[string]time.Time{}
		}
		a.fullAt[name] = full
	default:
		a.othersFullAt = full
	}
	return ok
}

// pruneFull removes names whose allowance is complete, at most once a second, and reports whether there
// is a free entry.
func (a *tokenBuckets) pruneFull(now time.Time) bool {
	if now.Sub(a.prunedAt) >= time.Second {
		a.prunedAt = now
		for name, full := range a.fullAt {
			if !full.After(now) {
				delete(a.fullAt, name)
			}
		}
	}
	return len(a.fullAt) < maxTrackedNames
}
