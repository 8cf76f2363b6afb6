package keybag

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The test vectors of RFC 3394, sections 4.1, 4.3, 4.5 and 4.6.
func TestUnwrap(t *testing.T) {
	const key = "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F"
	const data = "00112233445566778899AABBCCDDEEFF000102030405060708090A0B0C0D0E0F"
	for _, c := range []struct {
		keyBytes, dataBytes int
		wrapped             string
	}{
		{16, 16, "1FA68B0A8112B447AEF34BD8FB5A7B829D3E862371D2CFE5"},
		{32, 16, "64E8C3F9CE0F5BA263E9777905818A2A93C8191E7D6E8AE7"},
		{32, 32, "28C9F404C4B810F4CBCCB35CFB87F8263F5786E2D80ED326CBC7F0E71A99F43BFB988B9B7A02DD21"},
	} {
		wrapped := unhex(t, c.wrapped)
		got := unwrap(unhex(t, key)[:c.keyBytes], wrapped)
		if !bytes.Equal(got, unhex(t, data)[:c.dataBytes]) {
			t.Errorf("%d bytes with %d: %x", c.dataBytes, c.keyBytes, got)
		}
		for i := range wrapped {
			changed := bytes.Clone(wrapped)
			changed[i] ^= 1
			if unwrap(unhex(t, key)[:c.keyBytes], changed) != nil {
				t.Errorf("byte %d changed", i)
			}
		}
	}
}

func TestParse(t *testing.T) {
	entry := func(tag byte, length byte, data string) string {
		return "an-id-of-16-byte" + string([]byte{tag, 0, length, 0, 0, 0, 0, 0}) + data
	}
	bag := func(count, length byte, entries string) []byte {
		return append([]byte{2, 0, count, 0, length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, entries...)
	}
	got, err := Parse(bag(2, 80, entry(3, 5, "hello\x00\x00\x00")+entry(2, 8, "12345678")))
	if err != nil || len(got) != 2 || string(got[0].Data) != "hello" || got[1].Tag != 2 ||
		string(got[1].Data) != "12345678" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":    {nil, "not of version 2"},
		"version":  {append([]byte{1}, bag(0, 0, "")[1:]...), "not of version 2"},
		"length":   {bag(0, 17, ""), "0 entries in 17 bytes"},
		"cut off":  {bag(1, 10, entry(3, 5, "hello")[:20]), "entry 0 is cut off"},
		"too long": {bag(1, 10, entry(3, 6, "hello")), "entry 0 has 30 bytes"},
		"too many": {bag(3, 10, entry(3, 8, "12345678")+entry(3, 8, "12345678")), "entry 2 is cut off"},
	} {
		if _, err := Parse(c.b); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParsePlace(make([]byte, 15)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a place of 15 bytes: %v", err)
	}
}

// The derivations of all records take no more than the budget.
func TestBudget(t *testing.T) {
	b := &Budget{left: 10}
	if err := b.spend(7); err != nil {
		t.Error(err)
	}
	if err := b.spend(4); !errors.Is(err, errBudget) {
		t.Error(err)
	}
	if err := b.spend(3); err != nil {
		t.Error(err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte{0x30, 3, 0x80, 1, 0}, true)
	f.Fuzz(func(t *testing.T, b []byte, hasPassword bool) {
		if r, err := parseRecord(b, hasPassword); (r == nil) == (err == nil) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(append([]byte{2, 0, 1, 0, 40}, make([]byte, 60)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Parse(b)
		for _, e := range list {
			if len(e.Data) > len(b) {
				t.Error("an entry is longer than its keybag")
			}
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}
