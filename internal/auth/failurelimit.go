package auth

import (
	"net/netip"
	"sync"
	"time"
)

// How many handshakes of one key or one address may fail before further ones are rejected, and the
// interval after which another may fail.
const (
	failBurst = 30
	failEvery = 2 * time.Second
	failTable = 4096 // keys or addresses that are tracked; all others share one allowance
)

// FailureLimiter limits the failures of keys and addresses. Successful callers are not limited. The
// zero value is ready.
type FailureLimiter struct {
	mu           sync.Mutex // guards what follows
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
	a, b := f.byID.take(id, now), f.byName.take(Neighborhood(addr), now)
	return !a || !b
}

// CountFrom is Count for attempts that name no API key.
func (f *FailureLimiter) CountFrom(addr string) (tooMany bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.byName.take(Neighborhood(addr), time.Now())
}

// Neighborhood returns the key under which an address is limited: an IPv6 host has its whole /64.
func Neighborhood(addr string) string {
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
// failure moves it on by failEvery; it may be failBurst of these away.
type tokenBuckets struct {
	full  map[string]time.Time
	rest  time.Time // of all that are not in the table
	swept time.Time
}

// find returns when the allowance of a name is complete again, and whether the name has a separate
// one.
func (a *tokenBuckets) find(name string, now time.Time) (full time.Time, known bool) {
	full, known = a.full[name]
	if !known && len(a.full) >= failTable && !a.sweep(now) {
		full = a.rest
	}
	return full, known
}

// wait returns how long it is until the next attempt of a name; 0 when one is allowed now.
func (a *tokenBuckets) wait(name string, now time.Time) time.Duration {
	full, _ := a.find(name, now)
	return timeUntilNext(full, now, failBurst, failEvery)
}

// timeUntilNext returns how long it is until an allowance of burst attempts, which is complete again at
// full and regains one per interval every, has one left.
func timeUntilNext(full, now time.Time, burst int, every time.Duration) time.Duration {
	if !full.After(now) {
		return 0
	}
	return max(0, full.Sub(now)-time.Duration(burst-1)*every)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// take uses one attempt of a name's allowance, and reports whether there was one.
func (a *tokenBuckets) take(name string, now time.Time) bool {
	full, known := a.find(name, now)
	full = later(full, now)
	ok := full.Sub(now) < failBurst*failEvery
	if ok {
		full = full.Add(failEvery)
	}
	switch {
	case known || len(a.full) < failTable:
		if a.full == nil {
			a.full = map[string]time.Time{}
		}
		a.full[name] = full
	default:
		a.rest = full
	}
	return ok
}

// sweep removes names whose allowance is complete, at most once a second, and reports whether there
// is a free entry.
func (a *tokenBuckets) sweep(now time.Time) bool {
	if now.Sub(a.swept) >= time.Second {
		a.swept = now
		for name, full := range a.full {
			if !full.After(now) {
				delete(a.full, name)
			}
		}
	}
	return len(a.full) < failTable
}
