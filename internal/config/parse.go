package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/farm"
)

var (
	errForm  = errors.New("invalid form")
	errRange = errors.New("out of range")
)

// ParseSize parses a size with its unit, as bytesize.Parse does: 1024B, 10KB, 140MB, 45GB, 2TiB. A number without
// a unit is an error, since settings differ in what it would mean, and so is space around it.
func ParseSize(text string) (int64, error) {
	if strings.Trim(text, "0123456789") == "" {
		return 0, errForm
	}
	return parseSize(text, bytesize.B)
}

// parseSize parses a size; a number without a unit counts in units of bare.
func parseSize(text string, bare int64) (int64, error) {
	if strings.TrimSpace(text) != text {
		return 0, errForm
	}
	n, err := bytesize.ParseText(text, bare)
	if errors.Is(err, bytesize.ErrLimit) {
		return 0, sentenceError{bytesize.ErrLimit}
	}
	return n, err
}

// ParseDuration reads a duration in Go's form (90s, 1m, 1h30m) or as a plain number
// of seconds. It is never negative.
func ParseDuration(text string) (time.Duration, error) {
	if strings.Trim(text, "0123456789") == "" && text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return 0, errRange
		}
		return time.Duration(seconds) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errForm
	}
	if d < 0 {
		return 0, errRange
	}
	return d, nil
}

// ParseDays reads a plain number of days, or a duration in Go's form.
func ParseDays(text string) (time.Duration, error) {
	days := strings.TrimSuffix(text, "d")
	if days == "" || strings.Trim(days, "0123456789") != "" {
		return ParseDuration(text)
	}
	n, err := strconv.ParseInt(days, 10, 64)
	if err != nil || n > int64(math.MaxInt64/maxTimeout) {
		return 0, errRange
	}
	return time.Duration(n) * maxTimeout, nil
}

// ParseMegabytes reads a plain number of MiB, or a size with its unit.
func ParseMegabytes(text string) (int64, error) { return parseSize(text, bytesize.MB) }

// parseList splits at commas and drops empty elements; it returns nil without elements.
func parseList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// checkLine accepts every text that a line of a file or an environment can contain.
func checkLine(text string) error {
	if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\r\n") {
		return errForm
	}
	return nil
}

// checkText accepts every text that a file or an environment can contain.
func checkText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errForm
	}
	return nil
}

func checkAddr(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return errForm
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errRange
	}
	return checkLine(text)
}

// checkBool requires true or false; for settings that also have a third state, not given.
func checkBool(text string) error {
	if _, err := strconv.ParseBool(text); err != nil {
		return errors.New(kinds[Bool].form)
	}
	return nil
}

// checkURL requires the address of another service.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return errors.New("an http or https URL such as http://registry.example:8089")
	}
	return nil
}

// checkEndpoint requires an operator's own address, which may contain a password.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("an http or https URL such as https://events.example/path")
	}
	return nil
}

// checkMACRange requires a range of MAC addresses.
func checkMACRange(text string) error {
	if _, err := farm.ParseMACRange(text); err != nil {
		return sentenceError{err}
	}
	return nil
}

// checkURLs requires a list of addresses.
func checkURLs(text string) error {
	for _, item := range parseList(text) {
		if err := checkURL(item); err != nil {
			return err
		}
	}
	return nil
}

// checkControllerURLs requires a list of addresses that nodes accept.
func checkControllerURLs(text string) error {
	if _, err := cloudkey.CanonicalURLs(parseList(text)); err != nil {
		return errors.New("URLs of controllers such as https://build.example:8090, at most " +
			strconv.Itoa(cloudkey.MaxURLs))
	}
	return nil
}

// intAtLeast requires a number that is not below a bound.
func intAtLeast(lo int) func(string) error {
	return func(text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < lo {
			return fmt.Errorf("a whole number of at least %d", lo)
		}
		return nil
	}
}

// checkPercent requires a percentage.
func checkPercent(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 100 {
		return errors.New("a percentage between 1 and 100")
	}
	return nil
}

// sizeAtLeast requires a size of at least so many bytes.
func sizeAtLeast(lo int64) func(string) error {
	return func(text string) error {
		if n, err := ParseSize(text); err != nil || n < lo {
			return fmt.Errorf("a size of at least %s", bytesize.Format(lo))
		}
		return nil
	}
}

// checkPort requires a TCP port, or 0.
func checkPort(text string) error {
	if _, err := strconv.ParseUint(text, 10, 16); err != nil {
		return errors.New("a port between 0 and 65535")
	}
	return nil
}

// pathPattern is a path of a URL that needs no escaping and is nothing else to a mux.
var pathPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

// checkURLPath requires the path of a URL.
func checkURLPath(text string) error {
	if !pathPattern.MatchString(text) || path.Clean(text) != text {
		return errors.New("a path such as /metrics")
	}
	return nil
}

// durationBetween requires a duration within bounds.
func durationBetween(lo, hi time.Duration) func(string) error {
	return func(text string) error {
		if d, err := ParseDuration(text); err != nil || d < lo || d > hi {
			return fmt.Errorf("a duration between %s and %s", lo, hi)
		}
		return nil
	}
}

// daysBetween requires days within bounds.
func daysBetween(lo, hi time.Duration) func(string) error {
	return func(text string) error {
		if d, err := ParseDays(text); err != nil || d < lo || d > hi {
			return fmt.Errorf("a number of days, or a duration, between %s and %d days", lo, hi/maxTimeout)
		}
		return nil
	}
}

// megabytesAtLeast requires a size that is not below a bound.
func megabytesAtLeast(lo int64) func(string) error {
	return func(text string) error {
		if n, err := ParseMegabytes(text); err != nil || n < lo {
			return fmt.Errorf("a number of MiB, or a size, of at least %s", bytesize.Format(lo))
		}
		return nil
	}
}

// oneOf requires one of a few words.
func oneOf(words ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return errors.New("one of " + strings.Join(words, ", "))
		}
		return nil
	}
}
