package farm

import (
	"fmt"
	"strconv"
	"strings"
)

// MAC is the address of a network card: 48 bits, the first byte highest. Numbers of adjacent
// addresses differ by one. The zero value is the address of no card.
type MAC uint64

// macDigits is how many hexadecimal digits an address has.
const macDigits = 12

// ParseMAC reads an address in any usual form: six pairs of hexadecimal digits of either
// case with colons or dashes between them, three groups of four with dots, or twelve
// digits.
func ParseMAC(text string) (MAC, error) {
	digits := strings.TrimSpace(text)
	for _, form := range []struct {
		separator string
		width     int
	}{{":", 2}, {"-", 2}, {".", 4}} {
		if !strings.Contains(digits, form.separator) {
			continue
		}
		parts := strings.Split(digits, form.separator)
		for _, part := range parts {
			if len(part) != form.width {
				return 0, notMACError(text)
			}
		}
		digits = strings.Join(parts, "")
		break
	}
	n, err := strconv.ParseUint(digits, 16, 48)
	if err != nil || len(digits) != macDigits {
		return 0, notMACError(text)
	}
	return MAC(n), nil
}

func notMACError(text string) error {
	return fmt.Errorf(
		"invalid MAC address %q: want six pairs of hexadecimal digits with colons between them, such "+
			"as 52:54:00:12:34:56",
		text)
}

// String returns the address in capital letters with colons. The order of these texts is
// that of the numbers.
func (m MAC) String() string {
	return fmt.Sprintf("%02X:%02X:%02X:%02X:%02X:%02X",
		byte(m>>40), byte(m>>32), byte(m>>24), byte(m>>16), byte(m>>8), byte(m))
}

// checkCardAddress returns why an address cannot be that of a card; nil when it can.
func (m MAC) checkCardAddress() error {
	switch {
	case m == 0:
		return fmt.Errorf("%s cannot be the address of a network card", m)
	case m>>40&1 != 0:
		return fmt.Errorf("%s is a multicast address (its first byte is odd): want a unicast address", m)
	}
	return nil
}

// MaxMACs bounds a range of addresses.
const MaxMACs = 1_000_000

// MACRange is the addresses from From to To, both included. The zero value is empty.
type MACRange struct{ From, To MAC }

// ParseMACRange reads <FROM>-<TO>; the addresses have colons, dots or nothing inside.
func ParseMACRange(text string) (MACRange, error) {
	from, to, ok := strings.Cut(text, "-")
	if !ok || strings.Contains(to, "-") {
		return MACRange{},
			fmt.Errorf("invalid MAC address range %q: want <FROM>-<TO>, such as 52:54:00:00:00:01-52:54:00:00:0F:FF",
				text)
	}
	var r MACRange
	var err error
	if r.From, err = ParseMAC(from); err != nil {
		return MACRange{}, err
	}
	if r.To, err = ParseMAC(to); err != nil {
		return MACRange{}, err
	}
	for _, end := range []MAC{r.From, r.To} {
		if err := end.checkCardAddress(); err != nil {
			return MACRange{}, err
		}
	}
	switch {
	case r.From > r.To:
		return MACRange{}, fmt.Errorf("the MAC address range ends before it begins: %s", r)
	case r.Count() > MaxMACs:
		return MACRange{}, fmt.Errorf("the MAC address range %s has %d addresses: want at most %d", r, r.Count(),
			MaxMACs)
	}
	return r, nil
}

// Count returns the number of addresses.
func (r MACRange) Count() int {
	if r == (MACRange{}) {
		return 0
	}
	return int(r.To-r.From) + 1
}

// Contains reports whether an address is among them.
func (r MACRange) Contains(m MAC) bool { return r.Count() > 0 && r.From <= m && m <= r.To }

// String returns <FROM>-<TO>; "" for an empty range.
func (r MACRange) String() string {
	if r.Count() == 0 {
		return ""
	}
	return r.From.String() + "-" + r.To.String()
}
