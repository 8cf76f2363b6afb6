package config

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0B": 0, "1024B": 1024, "10KB": 10 << 10, "140MB": 140 << 20, "45GB": 45 << 30, "2TB": 2 << 40,
		"45gb": 45 << 30, "1Kb": 1 << 10, "007B": 7, "10K": 10 << 10, "10 GiB": 10 << 30, "1048576TB": 1 << 60,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		" 10 GiB", "10GiB ", " 10 ", "\t10", "10K\u0131B",
		"", "B", "GB", "10", "-1B", "+1B", "1.5GB", "10XB", "10BB", "10MGB", "0x1B",
		"1_0B", "１B",
		"9223372036854775807B", "1048577TB", strings.Repeat("9", 400) + "B",
	} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

// TestParseMegabytes: space around a number is refused, instead of changing its unit.
func TestParseMegabytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "10": 10 << 20, "10B": 10, "4GB": 4 << 30, "1099511627776": 1 << 60,
	} {
		if got, err := ParseMegabytes(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", " 10", "10 ", "\n10", "-1", "10XB", "1099511627777"} {
		if got, err := ParseMegabytes(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "90s": 90 * time.Second, "1m": time.Minute, "1h30m": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "9223372036": 9223372036 * time.Second,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "-1", "-1s", "1 m", "1d", "9223372037", "99999999999999999999", "1.5", "３"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

func TestCheckURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"http://registry:8089": true, "https://r.example/base": true, "http://[::1]:8089": true,
		"registry:8089": false, "ftp://r": false, "http://": false, "http://u:p@r": false, "http://%zz": false,
	} {
		if err := checkURL(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"1024B", "10KB", "140MB", "45GB", "2TB", "", "-1B", "9223372036854775808B", "1e3B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
		if again, err := ParseSize(strconv.FormatInt(n, 10) + "B"); err != nil || again != n {
			t.Fatalf("%q is %d, again %d, %v", text, n, again, err)
		}
	})
}
