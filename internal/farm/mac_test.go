package farm

import (
	"strings"
	"testing"
)

func TestParseMAC(t *testing.T) {
	for _, text := range []string{
		"52:54:00:AB:cd:01", "52-54-00-ab-CD-01", "5254.00ab.cd01", "525400abcd01", " 52:54:00:ab:cd:01 ",
	} {
		if m, err := ParseMAC(text); err != nil || m.String() != "52:54:00:AB:CD:01" {
			t.Errorf("%q is %s, %v", text, m, err)
		}
	}
	for _, text := range []string{
		"", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "52:54:00:ab:cd:0", "5:254:00:ab:cd:01", "52:54-00:ab:cd:01",
		"5254.00ab:cd01",
		"525400abcd0", "525400abcd011", "+52540abcd01", "0x5254abcd01", "52_5400abcd1", "gg:54:00:ab:cd:01",
		"52540.0ab.cd01",
	} {
		if m, err := ParseMAC(text); err == nil {
			t.Errorf("%q is %s", text, m)
		}
	}
}

func TestParseMACRange(t *testing.T) {
	r, err := ParseMACRange("52:54:00:00:00:0a-5254000000ff")
	if err != nil || r.Count() != 246 || r.String() != "52:54:00:00:00:0A-52:54:00:00:00:FF" || !r.Contains(r.From) ||
		!r.Contains(r.To) || r.Contains(r.To+1) || r.Contains(r.From-1) {
		t.Errorf("%s with %d, %v", r, r.Count(), err)
	}
	if one, err := ParseMACRange("52:54:00:00:00:01-52:54:00:00:00:01"); err != nil || one.Count() != 1 {
		t.Errorf("%s, %v", one, err)
	}
	if most, err := ParseMACRange("52:54:00:00:00:01-52:54:00:0F:42:40"); err != nil || most.Count() != MaxMACs {
		t.Errorf("%d, %v", most.Count(), err)
	}
	var none MACRange
	if none.Count() != 0 || none.Contains(0) || none.String() != "" {
		t.Error("the zero range has addresses")
	}
	for text, want := range map[string]string{
		"": "invalid MAC address range", "52:54:00:00:00:01": "invalid MAC address range",
		"a-b-c":              "invalid MAC address range",
		"52:54:00:00:00:01-": "invalid MAC address", "x-52:54:00:00:00:01": "invalid MAC address",
		"52:54:00:00:00:02-52:54:00:00:00:01": "ends before it begins",
		"00:00:00:00:00:00-00:00:00:00:00:10": "cannot be the address",
		"53:54:00:00:00:01-53:54:00:00:00:02": "multicast", "52:54:00:00:00:01-52:54:00:0F:42:41": "1000001 addresses",
		"00:ff:ff:ff:ff:ff-01:00:00:00:00:00": "multicast",
	} {
		if r, err := ParseMACRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v", text, r, err)
		}
	}
}

// What is read is written in one form, which is read as the same.
func FuzzMACRange(f *testing.F) {
	f.Add("52:54:00:00:00:01-52:54:00:00:0F:FF")
	f.Add("5254.0000.0001-525400000FFF")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseMACRange(text)
		if err != nil {
			return
		}
		again, err := ParseMACRange(r.String())
		if err != nil || again != r || r.Count() < 1 || r.Count() > MaxMACs || r.From.String() > r.To.String() {
			t.Errorf("%q is %s, which is %s: %v", text, r, again, err)
		}
	})
}
