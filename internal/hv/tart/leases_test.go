package tart

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// leasesText has the form of /var/db/dhcpd_leases: no leading zeros, a tab before each line.
const leasesText = `{
	name=mac-1
	ip_address=192.168.64.4
	hw_address=1,ee:a7:85:9:92:39
	identifier=1,ee:a7:85:9:92:39
	lease=0x685bf986
}
{
	ip_address=192.168.64.9
	hw_address=1,ee:a7:85:9:92:39
	lease=0x685bf000
}
{
	ip_address=192.168.64.10
	hw_address=1,ee:a7:85:9:92:39
	lease=0x685b0000
}
{
	ip_address=not an address
	hw_address=1,2:2:2:2:2:2
	lease=0x685bf986
}
{
	ip_address=192.168.64.11
	hw_address=ff,f1:f5:dd:7f:0:2:0:0:ab:11
	lease=0x685bf986
}
`

func TestLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	if leases, err := readLeases(path); err != nil || len(leases) != 0 {
		t.Errorf("a missing file: %v, %v", leases, err)
	}
	if err := os.WriteFile(path, []byte(leasesText), 0o600); err != nil {
		t.Fatal(err)
	}
	leases, err := readLeases(path)
	if err != nil || len(leases) != 3 {
		t.Fatalf("%d leases, %v: want 3", len(leases), err)
	}
	for _, c := range []struct {
		mac  string
		now  int64
		want string
	}{
		{"EE:A7:85:09:92:39", 0x685b8000, "192.168.64.4"},
		{"ee:a7:85:09:92:39", 0x685bf986, "invalid IP"}, // all have expired
		{"02:02:02:02:02:02", 0, "invalid IP"},
	} {
		if got := leasedAddress(leases, c.mac, time.Unix(c.now, 0)).String(); got != c.want {
			t.Errorf("%s at %#x: got %s, want %s", c.mac, c.now, got, c.want)
		}
	}
}

func TestNormalizeMAC(t *testing.T) {
	for mac, want := range map[string]string{
		"1:2:3:4:5:6": "01:02:03:04:05:06", "EE:A7:85:9:92:39": "ee:a7:85:09:92:39", "": "", "1:2": "",
		"1:2:3:4:5:6:7:8": "", "x:2:3:4:5:6": "",
	} {
		if got := normalizeMAC(mac); got != want {
			t.Errorf("%s: got %q, want %q", mac, got, want)
		}
	}
}

func FuzzLeases(f *testing.F) {
	f.Add([]byte(leasesText))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, l := range parseLeases(text) {
			if len(l.mac) != 17 || !l.address.Is4() || l.expires.IsZero() {
				t.Errorf("%+v", l)
			}
		}
	})
}
