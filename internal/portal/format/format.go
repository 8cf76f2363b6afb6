package format

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// Ago formats how long ago a time was; "-" where it is unknown.
func Ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() <= 0 {
		return "-"
	}
	return Duration(now.Sub(t).Truncate(time.Second))
}

// Duration formats a duration: the two largest units.
func Duration(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case d > 0 && d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d m %02d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %02d m", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %02d h", s/86400, s/3600%24)
}

// Stamp is a time for <time datetime>.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Full formats a time in full, for the tooltip of a relative one.
func Full(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Percent writes a share of 1.
func Percent(f float64) string { return fmt.Sprintf("%.0f", 100*f) }

// Count formats a number with a narrow space between thousands.
func Count(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// Confirm is a number with its unit as a visitor types it: without the marks between thousands.
func Confirm(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Plural writes a number with its unit.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Path returns a path with parameters, from pairs of names and values. Empty values are left out.
func Path(path string, pairs ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			q.Set(fmt.Sprint(pairs[i]), text)
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Unix formats a time in seconds since 1970.
func Unix(seconds int64) string { return Full(time.Unix(seconds, 0)) }

// ShortID is the end of an id: those of instances begin with the time, so that all of a minute begin alike.
func ShortID(id string) string { return id[max(0, len(id)-8):] }

// UpperFirst returns a text with a first letter in upper case.
func UpperFirst(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// Seconds is a number of seconds as a time.
func Seconds(seconds float64) string {
	return Duration(time.Duration(seconds * float64(time.Second)))
}
