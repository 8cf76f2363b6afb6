//go:build linux

package anka

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestLicense: a node shows as inactive unless the license is valid.
func TestLicense(t *testing.T) {
	for _, c := range []struct{ status, expires, want string }{
		{"valid", "17-aug-2099", "17-aug-2099"},
		{"valid", "17-aug-2025", "17-aug-2025"},
		{"expired", "17-aug-2099", farm.InvalidLicense},
		{"invalid", "", farm.InvalidLicense},
	} {
		m := newMac(t)
		m.knob("license", c.status)
		m.knob("license-expires", c.expires)
		h, err := m.open().Describe(t.Context())
		if err != nil || h.LicenseExpires != c.want || h.LicenseKind != "com.veertu.anka.entplus" ||
			h.Version != "3.5.0" {
			t.Errorf("%s, %s: %+v, %v", c.status, c.expires, h, err)
		}
		ends := farm.Hypervisor{LicenseExpires: h.LicenseExpires}.LicenseExpiresAt()
		if ends.IsZero() || ends.After(time.Now()) != (c.want == "17-aug-2099") {
			t.Errorf("%s, %s: the license ends %s", c.status, c.expires, ends)
		}
	}
}

// TestLicenseChanges: an open driver notices a license that becomes valid or invalid.
func TestLicenseChanges(t *testing.T) {
	m := newMac(t)
	m.knob("license", "invalid")
	d := m.open()
	for _, step := range []struct{ status, want string }{
		{"invalid", farm.InvalidLicense}, {"valid", "17-aug-2099"}, {"expired", farm.InvalidLicense},
	} {
		m.knob("license", step.status)
		read, err := d.ReadLicense(t.Context())
		if err != nil || read.Expires != step.want {
			t.Errorf("%s: %+v, %v, want the end %s", step.status, read, err, step.want)
		}
		h, err := d.Describe(t.Context())
		if err != nil || h.LicenseExpires != step.want || h.LicenseKind != read.Kind {
			t.Errorf("%s: described as %+v, %v", step.status, h, err)
		}
	}
}
