package porttest

import (
	"net/netip"
	"testing"
)

func TestFreeAddr(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		addr, err := FreeAddr(t.Context(), "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if port := netip.MustParseAddrPort(addr).Port(); port < firstPort || port >= firstPort+ports || seen[addr] {
			t.Errorf("%s, again: %v", addr, seen[addr])
		}
		seen[addr] = true
	}
	if addr, err := FreeAddr(t.Context(), "192.0.2.1"); err == nil {
		t.Errorf("an address of another machine: %s", addr)
	}
}
