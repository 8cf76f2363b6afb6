package bytesize

import (
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// DefaultReserve is the reserve of a node that configures none.
var DefaultReserve = DiskReserve{Percent: 20}

// DiskReserve is the part of a disk that templates leave free: a number of bytes, or a share of the
// disk. The zero value reserves nothing.
type DiskReserve struct {
	Bytes   int64 `json:"bytes,omitempty"`
	Percent int   `json:"percent,omitempty"` // 0..99, when Bytes is 0
}

// ParseReserve reads "20GB" or "20%"; "" is DefaultReserve.
func ParseReserve(text string) (DiskReserve, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return DefaultReserve, nil
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseUint(share, 10, 8)
		if err != nil || n > 99 {
			return DiskReserve{}, farm.Invalid("reserve-space", "invalid share of a disk %q: want 0%% to 99%%", text)
		}
		return DiskReserve{Percent: int(n)}, nil
	}
	n, err := Parse("reserve-space", text, B)
	return DiskReserve{Bytes: n}, err
}

// Of returns the bytes to keep free on a disk of total bytes.
func (r DiskReserve) Of(total int64) int64 {
	if r.Bytes > 0 {
		return r.Bytes
	}
	return total / 100 * int64(r.Percent)
}

// String formats the reserve so that ParseReserve reads the same one.
func (r DiskReserve) String() string {
	if r.Bytes > 0 || r.Percent == 0 {
		return strconv.FormatInt(r.Bytes, 10) + "B"
	}
	return strconv.Itoa(r.Percent) + "%"
}
