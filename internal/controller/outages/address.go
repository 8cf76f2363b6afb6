package outages

import "net/netip"

// prefixBits are the lengths of the prefixes that are reported, the longest first: those that networks
// commonly have.
var prefixBits = map[bool][]int{true: {24, 16}, false: {64, 48}}

// commonPrefix returns the prefix that the addresses of two or more nodes share; "" for none.
func commonPrefix(lost []lostNode) string {
	if len(lost) < 2 {
		return ""
	}
	first, err := netip.ParseAddr(lost[0].node.Host)
	if err != nil {
		return ""
	}
	for _, bits := range prefixBits[first.Is4()] {
		prefix, err := first.Prefix(bits)
		if err == nil && allIn(lost, prefix) {
			return prefix.String()
		}
	}
	return ""
}

// allIn reports whether the addresses of all nodes are in a prefix.
func allIn(lost []lostNode, prefix netip.Prefix) bool {
	for _, one := range lost {
		addr, err := netip.ParseAddr(one.node.Host)
		if err != nil || !prefix.Contains(addr) {
			return false
		}
	}
	return true
}
