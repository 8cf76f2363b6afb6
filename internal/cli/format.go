package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Plural formats a number of items: "1 volume", "2 volumes".
func Plural[N int | int64](n N, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "ty"):
		thing = strings.TrimSuffix(thing, "y") + "ies"
	default:
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// FormatAge formats an age: in days when it is long, else in hours.
func FormatAge(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return Plural(int(d/day), "day")
	case d >= 2*time.Hour:
		return Plural(int(d/time.Hour), "hour")
	}
	return d.Round(time.Second).String()
}

// Decimal is the number that a flag of 32 bits was given as: 7.1, not 7.099999904.
func Decimal(f float32) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return v
}
