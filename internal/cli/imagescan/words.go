package imagescan

import (
	"fmt"
	"strings"
	"time"
)

// many is a number of things: "1 volume", "2 volumes".
func many[N int | int64](n N, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "ty"):
		thing = strings.TrimSuffix(thing, "y") + "ies"
	default:
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// about is what is said of something, with its name once.
func about(name, text string) string {
	if strings.Contains(text, name) {
		return text
	}
	return name + ": " + text
}

// ageText is an age as people say it: of some days, the hours do not matter.
func ageText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return many(int(d/day), "day")
	case d >= 2*time.Hour:
		return many(int(d/time.Hour), "hour")
	}
	return d.Round(time.Second).String()
}
