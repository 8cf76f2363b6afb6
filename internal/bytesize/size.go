// Package bytesize parses sizes of command lines and settings ("1024B", "10KB", "140MiB", "4G") and
// formats sizes for people. Units are powers of 1024; KB and KiB are the same.
//
// It is not for sizes on the wire, which are plain numbers of bytes.
//
// Invariant: a size that parses is between 0 and 1 EiB, so that sums of a few of them cannot
// overflow.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// The units in bytes, all of them binary.
const (
	B  int64 = 1
	KB       = 1024 * B
	MB       = 1024 * KB
	GB       = 1024 * MB
	TB       = 1024 * GB

	limit = 1024 * 1024 * TB
)

// units contains every suffix in capital letters.
var units = map[string]int64{
	"B": B,
	"K": KB, "KB": KB, "KIB": KB,
	"M": MB, "MB": MB, "MIB": MB,
	"G": GB, "GB": GB, "GIB": GB,
	"T": TB, "TB": TB, "TIB": TB,
}

// Parse parses a size in bytes; a number without a unit counts in units of bare. Letters of either
// case are accepted, signs and fractions are not. field names the option in the error, which has
// the code farm.CodeInvalid.
func Parse(field, text string, bare int64) (int64, error) {
	text = strings.TrimSpace(text)
	cut := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	digits, suffix := text, ""
	if cut >= 0 {
		digits, suffix = text[:cut], strings.ToUpper(strings.TrimSpace(text[cut:]))
	}
	unit := bare
	if suffix != "" {
		var known bool
		if unit, known = units[suffix]; !known {
			return 0, farm.Invalid(field, "invalid size %q: want 1024B, 10KB, 140MB or 45GB", text)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || digits == "" {
		return 0, farm.Invalid(field, "invalid size %q: want 1024B, 10KB, 140MB or 45GB", text)
	}
	if n > limit/unit {
		return 0, farm.Invalid(field, "size limit (1048576TB) reached: %q", text)
	}
	return n * unit, nil
}

// Format formats a number of bytes for people: "0 B", "1.5 GiB", "64 MiB".
func Format(n int64) string {
	names := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, at := float64(n), 0
	for value >= 1024 && at < len(names)-1 {
		value /= 1024
		at++
	}
	if value == math.Trunc(value) {
		return fmt.Sprintf("%.0f %s", value, names[at])
	}
	return fmt.Sprintf("%.1f %s", value, names[at])
}
