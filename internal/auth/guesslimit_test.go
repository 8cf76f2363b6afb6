package auth

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

var errWrong = deniedError("wrong")

// tries makes attempts with a wrong secret, and returns how many of them were compared.
func tries(g *GuessLimiter, addr string, n int) (compared int) {
	for range n {
		if g.Allow(addr) == nil {
			compared++
			g.RecordResult(addr, errWrong)
		}
	}
	return compared
}

// TestGuessesOfOneAddress: after failureBurst failures nothing is compared, not even the right secret;
// a rejected attempt makes no caller wait longer.
func TestGuessesOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g GuessLimiter
		if n := tries(&g, "192.0.2.1", 1000); n != failureBurst {
			t.Errorf("%d were compared", n)
		}
		err := g.Allow("192.0.2.1:4711")
		e, ok := errors.AsType[*farm.Error](err)
		if !ok || e.Code != farm.CodeTooMany || e.RetryAfter <= 0 || e.RetryAfter > failureInterval {
			t.Fatalf("%v, %+v", err, e)
		}
		if err := g.Allow("192.0.2.2"); err != nil {
			t.Error("another address is refused:", err)
		}
		time.Sleep(e.RetryAfter)
		if err := g.Allow("192.0.2.1"); err != nil {
			t.Error("the right secret is refused after the time that was named:", err)
		}
		g.RecordResult("192.0.2.1", nil)
		if n := tries(&g, "192.0.2.1", 1000); n != 1 {
			t.Errorf("a right secret made room for %d guesses", n)
		}
		time.Sleep(failureBurst * failureInterval)
		if n := tries(&g, "192.0.2.1", 1000); n != failureBurst {
			t.Errorf("%d were compared after a minute", n)
		}
	})
}

// TestRightSecretsAreNotCounted: however many there are, and whatever else an attempt ends with.
func TestRightSecretsAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g GuessLimiter
		for _, err := range []error{nil, farm.Errorf(farm.CodeUnavailable, "away"), errors.New("x")} {
			for range 10 * failureBurst {
				if err := g.Allow("192.0.2.1"); err != nil {
					t.Fatal(err)
				}
				g.RecordResult("192.0.2.1", err)
			}
		}
	})
}

// TestGuessesOfNeighbors: a host with IPv6 has a whole /64.
func TestGuessesOfNeighbors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g GuessLimiter
		n := 0
		for i := range 100 {
			n += tries(&g, fmt.Sprintf("2001:db8::%x", i+1), 1)
		}
		if n != failureBurst {
			t.Errorf("%d were compared", n)
		}
		if g.Allow("2001:db8:0:1::1") != nil {
			t.Error("another network is refused")
		}
	})
}

// TestGuessesOfAll: many addresses together are limited, in memory too; those from which the right
// secret came before are not concerned.
func TestGuessesOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g GuessLimiter
		g.RecordResult("198.51.100.1", nil)
		n := 0
		for i := range 20_000 {
			n += tries(&g, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), 1)
		}
		if n != totalBurst {
			t.Errorf("%d were compared", n)
		}
		if len(g.byAddress.fullAt) > maxTrackedNames || len(g.trustedSince) > maxTrustedAddresses {
			t.Error("the tables grow without a bound")
		}
		if err := g.Allow("198.51.100.1"); err != nil {
			t.Error("an address that is known is refused:", err)
		}
		err := g.Allow("198.51.100.2")
		if e, ok := errors.AsType[*farm.Error](err); !ok || e.RetryAfter > time.Second {
			t.Errorf("a new address waits longer than a second: %v", err)
		}
		time.Sleep(time.Second)
		if err := g.Allow("198.51.100.2"); err != nil {
			t.Error("a new address is refused for long:", err)
		}
		// A neighbor of the known address that guesses is limited separately.
		if n := tries(&g, "198.51.100.1", 100); n != failureBurst {
			t.Errorf("%d were compared", n)
		}
		time.Sleep(trustRetention)
		for i := range 20_000 {
			tries(&g, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), 1)
		}
		if g.Allow("198.51.100.1") == nil {
			t.Error("an address is known for ever")
		}
	})
}

func TestKnownAddressesAreBounded(t *testing.T) {
	var g GuessLimiter
	for i := range 3 * maxTrustedAddresses {
		g.RecordResult(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), nil)
	}
	if len(g.trustedSince) != maxTrustedAddresses {
		t.Error(len(g.trustedSince))
	}
}

// TestKnownAddressesStayKnown for a day after the right secret came last.
func TestKnownAddressesStayKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g GuessLimiter
		g.RecordResult("192.0.2.1", nil)
		time.Sleep(trustPrecision)
		g.RecordResult("192.0.2.1", nil)
		time.Sleep(trustRetention - time.Nanosecond)
		if !g.isTrustedLocked("192.0.2.1", time.Now()) {
			t.Error("an address is forgotten within a day")
		}
		time.Sleep(time.Nanosecond)
		if g.isTrustedLocked("192.0.2.1", time.Now()) {
			t.Error("an address is known after a day")
		}
	})
}

func BenchmarkGuessLimiter(b *testing.B) {
	var g GuessLimiter
	for b.Loop() {
		if g.Allow("192.0.2.1") == nil {
			g.RecordResult("192.0.2.1", nil)
		}
	}
}
