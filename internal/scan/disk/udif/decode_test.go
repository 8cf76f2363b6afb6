package udif

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// xz returns what the program xz makes of bytes.
func xz(t testing.TB, b []byte, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip(err)
	}
	c := exec.Command("xz", append([]string{"-c"}, args...)...)
	c.Stdin = bytes.NewReader(b)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Streams of xz with any checksum, in one block and in several, decode to exactly their length.
func TestXZ(t *testing.T) {
	var text strings.Builder
	for k := range 9000 {
		fmt.Fprintf(&text, "line %d of %d\n", k, k*k%977)
	}
	want := []byte(text.String())
	for _, args := range [][]string{
		{}, {"-9"}, {"--check=none"}, {"--check=crc32"}, {"--check=sha256"}, {"--block-size=10000", "-T2"},
	} {
		packed := xz(t, want, args...)
		out := make([]byte, len(want))
		if n, err := decodeXZ(out, packed); n != len(want) || err != nil || !bytes.Equal(out, want) {
			t.Errorf("%v: %d bytes of %d, %v", args, n, len(want), err)
		}
		if n, err := decodeXZ(make([]byte, len(want)-1), packed); err == nil {
			t.Errorf("%v: it has %d bytes more than expected", args, n)
		}
		for n := 0; n < len(packed); n += 1 + len(packed)/100 {
			if got, err := decodeXZ(out, packed[:n]); err == nil && got == len(want) && n < len(packed)-200 {
				t.Errorf("%v: cut off at %d of %d", args, n, len(packed))
			}
			bad := bytes.Clone(packed)
			bad[n] ^= 0x55
			if got, err := decodeXZ(out, bad); err == nil && got == len(want) && !bytes.Equal(out, want) {
				t.Errorf("%v: changed at %d: other bytes without an error", args, n)
			}
		}
	}
	if n, err := decodeXZ(make([]byte, len(want)), xz(t, want, "--x86", "--lzma2")); err == nil {
		t.Errorf("another filter: %d bytes", n)
	}
}

func TestADC(t *testing.T) {
	for packed, want := range map[string]string{
		"":                                "",
		"\x80a":                           "a",
		"\x82abc\x00\x02":                 "abcabc",
		"\x80a\x0c\x00":                   "aaaaaaa",
		"\x81ab\x40\x00\x01":              "ababab",
		"\x81ab\x43\x00\x00":              "abbbbbbbb",
		"\x82abc\x00\x02\x83defg\x00\x09": "abcabcdefgabc",
	} {
		out := make([]byte, len(want)+1)
		if n, err := decodeADC(out, []byte(packed)); err != nil || string(out[:n]) != want {
			t.Errorf("%q: %q, %v", packed, out[:n], err)
		}
		for n := range want {
			if _, err := decodeADC(make([]byte, n), []byte(packed)); err == nil {
				t.Errorf("%q: it fits in %d bytes", packed, n)
			}
		}
	}
	for _, packed := range []string{
		"\x80", "\xff1234", "\x00\x00", "\x00", "\x80a\x40\x00", "\x80a\x00\x01", "\x80a\x40\x01\x00",
	} {
		if n, err := decodeADC(make([]byte, 1000), []byte(packed)); err == nil {
			t.Errorf("%q: %d bytes", packed, n)
		}
	}
}

// FuzzDecode decodes any bytes as each kind of chunk.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x82abc\x00\x02"), 6)
	f.Add([]byte("\x78\x01\x01\x00\x00\xff\xff\x00\x00\x00\x01"), 0)
	f.Add([]byte("BZh91AY&SY"), 10)
	f.Add([]byte("\xfd7zXZ\x00\x00\x00\xff\x12\xd9\x41\x02\x00\x21\x01\x00\x00\x00\x00\x37\x27\x97\xd6"+
		"\x01\x00\x00a\x00\x00\x00\x00"), 1)
	f.Fuzz(func(t *testing.T, packed []byte, size int) {
		if size < 0 || size > 1<<16 {
			return
		}
		for kind, decode := range decoders {
			if n, _ := decode(make([]byte, size), packed); n < 0 || n > size {
				t.Errorf("kind %#x: %d bytes of %d", kind, n, size)
			}
		}
	})
}
