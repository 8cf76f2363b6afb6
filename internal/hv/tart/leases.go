package tart

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// DefaultLeasesFile is where the DHCP server of macOS stores the leases of guests.
const DefaultLeasesFile = "/var/db/dhcpd_leases"

const maxLeasesBytes = 16 << 20 // of the file of leases

// lease is a lease of the DHCP server of macOS.
type lease struct {
	mac     string // lower case, two digits a byte
	address netip.Addr
	expires time.Time
}

// leasedAddress returns the address that a MAC address has leased: of several unexpired leases, the
// latest; not valid if there is none.
func leasedAddress(leases []lease, mac string, now time.Time) netip.Addr {
	var best lease
	for _, l := range leases {
		if l.mac == strings.ToLower(mac) && l.expires.After(now) && l.expires.After(best.expires) {
			best = l
		}
	}
	return best.address
}

// readLeases reads a file of leases. A missing file has none: the server makes it with its first lease.
func readLeases(path string) ([]lease, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read DHCP leases: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLeasesBytes))
	if err != nil {
		return nil, fmt.Errorf("read DHCP leases: %w", err)
	}
	return parseLeases(text), nil
}

// parseLeases reads blocks of key=value lines between braces. What is malformed is left out: one bad
// entry must not hide the others.
func parseLeases(text []byte) []lease {
	var leases []lease
	var current lease
	for line := range bytes.Lines(text) {
		line := strings.TrimSpace(string(line))
		switch line {
		case "{":
			current = lease{}
		case "}":
			if current.mac != "" && current.address.IsValid() && !current.expires.IsZero() {
				leases = append(leases, current)
			}
			current = lease{}
		default:
			current.setField(line)
		}
	}
	return leases
}

func (l *lease) setField(line string) {
	key, value, _ := strings.Cut(line, "=")
	switch key {
	case "ip_address":
		if ip, err := netip.ParseAddr(value); err == nil && ip.Is4() {
			l.address = ip
		}
	case "hw_address":
		_, digits, _ := strings.Cut(value, ",") // the type of hardware is before it
		l.mac = normalizeMAC(digits)
	case "lease":
		if seconds, err := strconv.ParseInt(value, 0, 64); err == nil {
			l.expires = time.Unix(seconds, 0)
		}
	}
}

// normalizeMAC adds the zeros that macOS leaves out; "" for anything else.
func normalizeMAC(mac string) string {
	parts := strings.Split(mac, ":")
	for i, p := range parts {
		if len(p) == 1 {
			parts[i] = "0" + p
		}
	}
	hw, err := net.ParseMAC(strings.Join(parts, ":"))
	if err != nil || len(hw) != 6 {
		return ""
	}
	return hw.String()
}
