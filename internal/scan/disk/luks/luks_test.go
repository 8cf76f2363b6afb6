package luks_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
	"github.com/buildyard/buildyard/internal/scan/disk/luks"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

const (
	ext4File   = "luks2-ext4.img"
	lvmFile    = "luks2-lvm.img"
	oldFile    = "luks1.img"
	cheapFile  = "luks1-cheap.img"
	plainBytes = 128 << 10
	plainSum   = "beed467ca50fd24a0d8d47bd63dd39502636fba47e5f1cc0cfbf4236e7b510ee"
)

func unpacked(t testing.TB, name string) []byte {
	t.Helper()
	return treetest.Unpacked(t, "testdata/"+name+".zst")
}

func unlock(b []byte, keys ...string) (*luks.Device, error) {
	c, err := luks.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for _, k := range keys {
		list = append(list, []byte(k))
	}
	return c.Unlock(context.Background(), list, luks.NewBudget())
}

// The bytes are those that cryptsetup and qemu-img encrypted.
func TestUnlock(t *testing.T) {
	for _, c := range []struct {
		file  string
		start int64 // of the file system in the decrypted data
		keys  []string
		opens bool
	}{
		{ext4File, 0, []string{"secret"}, true},
		{ext4File, 0, []string{"other"}, true},
		{ext4File, 0, []string{"wrong", "other"}, true},
		{ext4File, 0, []string{"secret\n"}, false},
		{ext4File, 0, nil, false},
		{lvmFile, 64 << 10, []string{"secret"}, true},
		{lvmFile, 64 << 10, []string{"other"}, false},
		{oldFile, 0, []string{"secret"}, true},
		{oldFile, 0, []string{"other"}, false},
	} {
		t.Run(fmt.Sprintf("%s %q", c.file, c.keys), func(t *testing.T) {
			d, err := unlock(unpacked(t, c.file), c.keys...)
			if !c.opens {
				if !errors.Is(err, luks.ErrWrongKey) {
					t.Fatalf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := c.start + plainBytes; d.Size() < want {
				t.Fatalf("%d bytes", d.Size())
			}
			got, err := io.ReadAll(io.NewSectionReader(d, c.start, plainBytes))
			if err != nil || fmt.Sprintf("%x", sha256.Sum256(got)) != plainSum {
				t.Fatalf("%d other bytes, %v", len(got), err)
			}
			part := make([]byte, 5000)
			for _, at := range []int64{0, 1, 511, 512, 4095, 4097, 70_001} {
				if n, err := d.ReadAt(part, c.start+at); n != len(part) || err != nil ||
					!bytes.Equal(part, got[at:at+int64(n)]) {
					t.Errorf("at %d: %d bytes, %v", at, n, err)
				}
			}
			if n, err := d.ReadAt(part, d.Size()-700); n != 700 || !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %d bytes, %v", n, err)
			}
		})
	}
}

// Either of the two headers of version 2 suffices, and of two intact ones the newer is used.
func TestHeaderCopies(t *testing.T) {
	const second = 16 << 10
	b := unpacked(t, ext4File)
	b[5000]++ // in the JSON
	if _, err := unlock(b, "secret"); err != nil {
		t.Errorf("without the first: %v", err)
	}
	b[second+5000]++
	if _, err := unlock(b, "secret"); !errors.Is(err, chunked.ErrDamaged) {
		t.Errorf("without both: %v", err)
	}
	b = unpacked(t, ext4File)
	replaceJSON(t, b, second, "aes-xts-plain64", "aes-xts-plain65")
	binary.BigEndian.PutUint64(b[second+16:], 1<<40)
	resign(b, second)
	if _, err := unlock(b, "secret"); err == nil || !strings.Contains(err.Error(), "aes-xts-plain65") {
		t.Errorf("with a newer second: %v", err)
	}
}

// replaceJSON replaces a text in the JSON of a header by one of the same length, or a shorter one and spaces.
func replaceJSON(t testing.TB, b []byte, at int, from, to string) {
	t.Helper()
	text := b[at+4096 : at+16<<10]
	if bytes.Count(text, []byte(from)) == 0 || len(to) > len(from) {
		t.Fatalf("%q is not replaced", from)
	}
	copy(text, bytes.ReplaceAll(text, []byte(from), []byte(to+strings.Repeat(" ", len(from)-len(to)))))
	resign(b, at)
}

// resign writes the checksum of a header.
func resign(b []byte, at int) {
	h := b[at : at+16<<10]
	clear(h[448 : 448+64])
	sum := sha256.Sum256(h)
	copy(h[448:], sum[:])
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"memory":64`, `"memory":1048577`, "takes 1048577 KiB of memory, more than the limit of 1048576 KiB (1 GiB)"},
		{`"memory":64`, `"memory":99999999999`, "takes 99999999999 KiB of memory"},
		{`"time":4`, `"time":4194305`, "passes over 64 KiB of memory, more than the limit"},
		{`"time":4`, `"time":-4`, "-4 iterations"},
		{`"cpus":1`, `"cpus":0`, "0 lanes"},
		{`"cpus":1`, `"cpus":64`, "64 KiB of memory and 64 lanes"},
		{`"iterations":1000,`, `"iterations":2000000000,`, "iterations"},
		{`"type":"argon2i"`, `"type":"balloon"`, `the key derivation "balloon" is not supported here`},
		{`"stripes":4000`, `"stripes":400000`, "in 400000 stripes"},
		{`"stripes":4000`, `"stripes":5000`, "its area of 131072 bytes"},
		{`"offset":"32768"`, `"offset":"16777215"`, "is not before the encrypted data"},
		{`"offset":"32768"`, `"offset":"-1"`, "at byte -1"},
		{`"type":"crypt"`, `"type":"linear"`, `a segment of the type "linear"`},
		{`"sector_size":512`, `"sector_size":768`, "sectors of 768 bytes"},
		{`"sector_size":512`, `"sector_size":8192`, "sectors of 8192 bytes"},
		{`"iv_tweak":"0"`, `"iv_tweak":"-"`, "tweak"},
		{`"offset":"16777216"`, `"offset":"0"`, "a LUKS header apart from its data"},
		{`"offset":"16777216"`, `"offset":"167772160000"`, "its encrypted data is at byte"},
		{`"config":{`, `"config":{"requirements":{"mandatory":["online-reencrypt-v2"]},`, "online-reencrypt-v2"},
		{`"encryption":"aes-xts-plain64","sector`, `"encryption":"serpent-cbc","sector`, `the cipher "serpent-cbc"`},
		{`"sector_size":512`, `"integrity":{"type":"hmac"},"sector_size":512`, "integrity"},
		{`"keyslots":{`, `"keyslots":[`, "the JSON of its LUKS header"},
	} {
		t.Run(c.to, func(t *testing.T) {
			b := unpacked(t, ext4File)
			setJSON(t, b, c.from, c.to)
			_, err := unlock(b, "secret")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// setJSON replaces all of a text in the JSON of the first header, and damages the second.
func setJSON(t testing.TB, b []byte, from, to string) {
	t.Helper()
	text, _, _ := bytes.Cut(b[4096:16<<10], []byte{0})
	if !bytes.Contains(text, []byte(from)) {
		t.Fatalf("%q is not in %s", from, text)
	}
	text = bytes.ReplaceAll(bytes.Clone(text), []byte(from), []byte(to))
	clear(b[4096 : 16<<10])
	copy(b[4096:16<<10], text)
	resign(b, 0)
	b[20<<10]++
}

func TestRefusedOld(t *testing.T) {
	for _, c := range []struct {
		at    int
		bytes string
		want  string
	}{
		{6, "\x00\x03", "unsupported version 3 of LUKS"},
		{40, "cbc-essiv:sha256\x00", `the cipher "aes-cbc-essiv:sha256"`},
		{72, "whirlpool\x00", `the hash "whirlpool"`},
		{104, "\x00\x00\x00\x00", "a LUKS header apart from its data"},
		{104, "\xff\xff\xff\xff", "its encrypted data is at byte"},
		{108, "\x00\x00\x00\x18", "keys of 192 bits"},
		{208, "\x00\x00\xde\xad", "without key slots"},
		{208 + 4, "\xff\xff\xff\xff", "iterations"},
		{208 + 40, "\xff\xff\xff\xff", "is not before the encrypted data"},
		{208 + 44, "\x00\x00\x00\x00", "in 0 stripes"},
	} {
		b := unpacked(t, oldFile)
		copy(b[c.at:], c.bytes)
		if _, err := unlock(b, "secret"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q at %d: %v", c.bytes, c.at, err)
		}
	}
}

func TestKeysInFile(t *testing.T) {
	for _, c := range []struct {
		content string
		want    []string
	}{
		{"secret", []string{"secret"}},
		{"secret\n", []string{"secret", "secret\n"}},
		{"two\nlines\n\n", []string{"two\nlines\n", "two\nlines\n\n"}},
		{"\x00\xff", []string{"\x00\xff"}},
	} {
		got := luks.KeysInFile([]byte(c.content))
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%q: %q", c.content, got)
		}
	}
}

// FuzzJSON reads headers of version 2 with another JSON and an intact checksum.
func FuzzJSON(f *testing.F) {
	whole := unpacked(f, ext4File)[:512<<10]
	text, _, _ := bytes.Cut(whole[4096:16<<10], []byte{0})
	f.Add(text)
	f.Add(bytes.ReplaceAll(text, []byte(`"0"`), []byte(`"1"`)))
	f.Add(bytes.ReplaceAll(text, []byte(`"16777216"`), []byte(`"300032"`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		head := make([]byte, 16<<10)
		copy(head, whole[:4096])
		copy(head[4096:], text)
		resign(head, 0)
		readSome(t, headed{head, whole})
	})
}

// FuzzOldHeader reads headers of version 1.
func FuzzOldHeader(f *testing.F) {
	whole := unpacked(f, cheapFile)
	if _, err := unlock(whole, "secret"); err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:592])
	f.Fuzz(func(t *testing.T, header []byte) {
		readSome(t, headed{header[:min(len(header), 592)], whole})
	})
}

// headed is a container with another header.
type headed struct{ head, whole []byte }

func (h headed) ReadAt(p []byte, at int64) (int, error) {
	n, err := bytes.NewReader(h.whole).ReadAt(p, at)
	if at < int64(len(h.head)) {
		copy(p[:n], h.head[at:])
	}
	return n, err
}

// readSome opens a container whose derivations take some milliseconds, and reads its data.
func readSome(t *testing.T, r headed) {
	c, err := luks.Open(r, int64(len(r.whole)))
	if err != nil || c.Cost() > 1<<14 {
		return
	}
	d, err := c.Unlock(t.Context(), [][]byte{[]byte("secret")}, luks.NewBudget())
	if err != nil {
		return
	}
	if d.Size() > int64(len(r.whole)) {
		t.Fatalf("%d bytes in %d", d.Size(), len(r.whole))
	}
	for _, at := range []int64{0, d.Size() / 2, d.Size() - 100} {
		_, _ = d.ReadAt(make([]byte, 9000), max(at, 0))
	}
}
