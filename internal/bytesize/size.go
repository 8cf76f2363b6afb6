// Package bytesize parses sizes of command lines and settings ("1024B", "10KB", "140MiB", "4G") and
// formats sizes for people. Units are powers of 1024; KB and KiB are the same.
//
// It is not for sizes on the wire, which are plain numbers of bytes.
//
// Invariant: a size that parses is between 0 and 1 EiB, so that sums of a few of them cannot
// overflow.
package bytesize

import (
	"errors"
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

// ErrLimit is the cause of an error about a size above the limit.
var ErrLimit = errors.New("size limit (1 EiB, which is 1048576TB) reached")

// Parse parses a size in bytes; a number without a unit counts in units of bare. ASCII letters of either
// case are accepted, signs and fractions are not. field names the option in the error, which has
// the code farm.CodeInvalid.
func Parse(field, text string, bare int64) (int64, error) {
	n, err := ParseText(text, bare)
	if err != nil {
		return 0, farm.Invalid(field, "%s", err)
	}
	return n, nil
}

// ParseText is Parse with an error that names no option. Its cause is ErrLimit for a size above the limit.
func ParseText(text string, bare int64) (int64, error) {
	text = strings.TrimSpace(text)
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	suffix := strings.TrimSpace(text[len(digits):])
	unit, known := units[strings.Map(upperASCII, suffix)]
	if suffix == "" {
		unit, known = bare, true
	}
	if !known || digits == "" {
		return 0, fmt.Errorf("invalid size %q: want 1024B, 10KB, 140MB or 45GB", text)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > limit/unit {
		return 0, fmt.Errorf("%w: %q", ErrLimit, text)
	}
	return n * unit, nil
}

// upperASCII returns the capital form of an ASCII letter. Other letters stay, also those with an ASCII capital.
func upperASCII(r rune) rune {
	if 'a' <= r && r <= 'z' {
		return r - 'a' + 'A'
	}
	return r
}

// Format formats a number of bytes for people: "0 B", "1.5 GiB", "64 MiB".
func Format(n int64) string {
	names := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	sign, value, at := "", math.Abs(float64(n)), 0
	if n < 0 {
		sign = "-"
	}
	for math.Round(value*10)/10 >= 1024 && at < len(names)-1 { // as it is shown: not "1024.0 KiB"
		value /= 1024
		at++
	}
	if value == math.Trunc(value) {
		return fmt.Sprintf("%s%.0f %s", sign, value, names[at])
	}
	return fmt.Sprintf("%s%.1f %s", sign, value, names[at])
}
