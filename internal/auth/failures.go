package auth

import (
	"net/netip"
	"sync"
	"time"
)

// How many handshakes of one key or one address may fail before it is told to wait, and
// how much later the next ones may.
const (
	failBurst = 30
	failEvery = 2 * time.Second
	failTable = 4096 // keys or addresses that are told apart; all others share one allowance
)

// Failures says who fails too often. Whoever does not fail is never asked about. The zero
// value is ready.
type Failures struct {
	mu          sync.Mutex // guards what follows
	byID, byWho allowances
}

// Count notes a failed attempt and says whether there were too many, of the id or of the
// address.
func (f *Failures) Count(id, addr string) (tooMany bool) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(id) > MaxKeyID {
		id = ""
	}
	a, b := f.byID.take(id, now), f.byWho.take(neighbourhood(addr), now)
	return !a || !b
}

// CountFrom is Count for what is nobody's by name.
func (f *Failures) CountFrom(addr string) (tooMany bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.byWho.take(neighbourhood(addr), time.Now())
}

// neighbourhood is what an address is known by: an IPv6 host has its whole /64.
func neighbourhood(addr string) string {
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

// allowances maps names to the moment from which on their allowance is whole again. A
// failure moves it on by failEvery; it may be failBurst of these away.
type allowances struct {
	full  map[string]time.Time
	rest  time.Time // of all who find no room
	swept time.Time
}

// take takes one from a name's allowance, if there is one.
func (a *allowances) take(name string, now time.Time) bool {
	full, known := a.full[name]
	if !known && len(a.full) >= failTable && !a.sweep(now) {
		full = a.rest
	}
	if full.Before(now) {
		full = now
	}
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

// sweep forgets whose allowance is whole, at most once a second, and says whether there is
// room.
func (a *allowances) sweep(now time.Time) bool {
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
