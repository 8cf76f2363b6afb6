// Package bytesize parses and formats sizes as people write them on a command line: "1024B",
// "10KB", "140MB", "45GB", "4G".
//
// It is not for sizes on the wire, which are plain numbers of bytes. Units are powers of 1024, as
// the node commands have always had it.
//
// Invariant: a size that parses is between 0 and 1 EiB, so that sums of a few of them cannot
// overflow.
package bytesize

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// The units in bytes.
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
		return 0, farm.Invalid(field, "%q is more than 1048576TB", text)
	}
	return n * unit, nil
}

// Format formats a number of bytes for people: "0 B", "1.5 GB".
func Format(n int64) string {
	names := []string{"B", "KB", "MB", "GB", "TB"}
	value, at := float64(n), 0
	for value >= 1024 && at < len(names)-1 {
		value /= 1024
		at++
	}
	if at == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, names[at])
}
