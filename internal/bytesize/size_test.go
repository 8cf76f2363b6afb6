package bytesize_test

import (
	"errors"
	"testing"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7 * bytesize.MB, "1024B": 1024, "10KB": 10 << 10, "140MB": 140 << 20, "45GB": 45 << 30,
		"4G": 4 << 30, "4g": 4 << 30, " 2 TiB ": 2 << 40, "1048576TB": 1 << 60,
	} {
		got, err := bytesize.Parse("x", text, bytesize.MB)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"1K\u0131B", "1\u212aB", "１B", "1GB GB", "99999999999999999999", "1048577TB",
		"", "GB", "-1", "+1", "1.5GB", "1 G B", "1XB", "9223372036854775807", "9999999TB", "0x10", "1e3",
	} {
		if got, err := bytesize.Parse("x", text, bytesize.MB); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("Parse(%q) = %d, %v, want an error about the input", text, got, err)
		}
	}
}

// TestParseLimit: a size above the limit is said to be so, however large it is.
func TestParseLimit(t *testing.T) {
	for text, want := range map[string]bool{
		"1048577TB": true, "99999999999999999999": true, "1048576TB": false, "1XB": false,
		"99999999999999999999XB": false,
	} {
		if _, err := bytesize.ParseText(text, bytesize.MB); errors.Is(err, bytesize.ErrLimit) != want {
			t.Errorf("ParseText(%q): %v", text, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 45 << 30: "45 GiB", 1 << 60: "1024 PiB",
		1<<20 - 1: "1.0 MiB", 1<<20 - 51: "1.0 MiB", 1<<20 - 52: "1023.9 KiB", 1<<30 - 1: "1.0 GiB", 1 << 20: "1 MiB",
		-1: "-1 B", -1536: "-1.5 KiB", 1 - 1<<20: "-1.0 MiB", -1 << 63: "-8192 PiB",
	} {
		if got := bytesize.Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestReserve(t *testing.T) {
	for text, want := range map[string]int64{
		"": 20_000, "0%": 0, "5%": 5_000, "99%": 99_000, "1KB": 1024, "0": 0, "3": 3,
	} {
		r, err := bytesize.ParseReserve(text)
		if err != nil || r.Of(100_000) != want {
			t.Errorf("ParseReserve(%q).Of(100000) = %d, %v, want %d", text, r.Of(100_000), err, want)
		}
	}
	for _, text := range []string{"%", "100%", "-1%", "1.5%", "all"} {
		if r, err := bytesize.ParseReserve(text); err == nil {
			t.Errorf("ParseReserve(%q) = %v, want an error", text, r)
		}
	}
}

func FuzzReserve(f *testing.F) {
	for _, seed := range []string{
		"", "1024B", "10KB", "140MB", "45GB", "20%", "4G", "99999999999999999999", "1 TiB", "%",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := bytesize.ParseReserve(text)
		if err != nil {
			return
		}
		if r.Bytes < 0 || r.Bytes > 1<<60 || r.Percent < 0 || r.Percent > 99 {
			t.Fatalf("%q gives %+v", text, r)
		}
		again, err := bytesize.ParseReserve(r.String())
		if err != nil || again != r {
			t.Fatalf("%q gives %+v, written %q, read %+v, %v", text, r, r.String(), again, err)
		}
	})
}
