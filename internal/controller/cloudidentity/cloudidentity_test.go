package cloudidentity_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/controller/cloudidentity"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestKeyIsKept: a restart and another replica have the same key; another cloud has another one.
func TestKeyIsKept(t *testing.T) {
	db := recordtest.Open(t)
	keys := map[string]bool{}
	for range 3 {
		i, err := cloudidentity.New(t.Context(), db, cloudidentity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		keys[i.Announcement().Key] = true
	}
	other, err := cloudidentity.New(t.Context(), recordtest.Open(t), cloudidentity.Options{})
	if err != nil || len(keys) != 1 || keys[other.Announcement().Key] {
		t.Errorf("keys %v, another cloud has %s, %v", keys, other.Announcement().Key, err)
	}
}

func TestAnnouncementIsSigned(t *testing.T) {
	i, err := cloudidentity.New(t.Context(), recordtest.Open(t),
		cloudidentity.Options{URLs: []string{"https://B.example", "https://a.example:1/"}})
	if err != nil {
		t.Fatal(err)
	}
	a := i.Announcement()
	if !slices.Equal(a.URLs, []string{"https://b.example:443", "https://a.example:1"}) {
		t.Errorf("%q", a.URLs)
	}
	if err := cloudkey.VerifyAnnouncement(a.Key, cloudkey.Announcement{URLs: a.URLs}, a.Signature); err != nil {
		t.Error(err)
	}
	for _, bad := range []cloudidentity.Options{{URLs: []string{"x"}}, {CA: "x"}} {
		if _, err := cloudidentity.New(t.Context(), recordtest.Open(t), bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestProofs: an announced URL and an own one are signed, no other one.
func TestProofs(t *testing.T) {
	i, err := cloudidentity.New(t.Context(), recordtest.Open(t), cloudidentity.Options{
		URLs: []string{"https://a.example:1"},
		IsOwnURL: func(url, remote string) bool {
			return url == "http://own.example:1" && remote == "10.0.0.1:99"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		url, remote string
		ok          bool
	}{
		{"https://a.example:1", "", true},
		{"http://a.example:1", "10.0.0.1:99", false},
		{"http://own.example:1", "10.0.0.1:99", true},
		{"http://own.example:1", "10.0.0.2:99", false},
	} {
		proof, err := i.Prove("nonce", tt.url, tt.remote)
		if !tt.ok {
			if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "SVC_ADVERTISE_URLS") {
				t.Errorf("%s from %q: %v", tt.url, tt.remote, err)
			}
			continue
		}
		if err == nil {
			err = cloudkey.VerifyProof(i.Announcement().Key, "nonce", tt.url, proof.Signature)
		}
		if err != nil {
			t.Errorf("%s from %q: %v", tt.url, tt.remote, err)
		}
	}
}
