package cloudkey_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cloudkey"
)

func newKey(t testing.TB) cloudkey.Key {
	t.Helper()
	key, err := cloudkey.New()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestKeySurvivesStorage: a key that is read again signs the same, and is printed by nothing.
func TestKeySurvivesStorage(t *testing.T) {
	key := newKey(t)
	again, err := cloudkey.Parse(key.Encode())
	if err != nil || again.Public() != key.Public() || again.Prove("n", "u") != key.Prove("n", "u") {
		t.Errorf("another key: %v", err)
	}
	if text := fmt.Sprintf("%v %+v %s %#v %x", key, key, key, key, key); strings.Contains(text, key.Encode()) ||
		text != "*** *** *** *** ***" {
		t.Errorf("printed as %s", text)
	}
	for _, bad := range []string{"", "x", key.Encode() + "A", key.Public() + "==", strings.Repeat("!", 43)} {
		if _, err := cloudkey.Parse(bad); err == nil || strings.Contains(err.Error(), key.Encode()) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if !cloudkey.ValidPublic(key.Public()) || cloudkey.ValidPublic("") || cloudkey.ValidPublic(key.Public()+"AA") {
		t.Error("the form of the public key is not checked")
	}
	if id := cloudkey.CloudID(key.Public()); len(id) != 16 || id == cloudkey.CloudID(newKey(t).Public()) {
		t.Errorf("cloud ID %q", id)
	}
}

// TestProof: a proof is valid for its key, nonce and URL only.
func TestProof(t *testing.T) {
	key, other := newKey(t), newKey(t)
	signature := key.Prove("nonce", "https://a:1")
	if err := cloudkey.VerifyProof(key.Public(), "nonce", "https://a:1", signature); err != nil {
		t.Error(err)
	}
	announced := key.Announce(cloudkey.Announcement{})
	for name, tt := range map[string]struct{ public, nonce, url, signature string }{
		"another key":       {other.Public(), "nonce", "https://a:1", signature},
		"another nonce":     {key.Public(), "nonc", "ehttps://a:1", signature},
		"another URL":       {key.Public(), "nonce", "https://b:1", signature},
		"shifted lines":     {key.Public(), "nonce\nhttps://a:1", "", signature},
		"another statement": {key.Public(), "nonce", "https://a:1", announced},
		"no signature":      {key.Public(), "nonce", "https://a:1", ""},
	} {
		err := cloudkey.VerifyProof(tt.public, tt.nonce, tt.url, tt.signature)
		if !errors.Is(err, cloudkey.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := cloudkey.VerifyProof("damaged", "nonce", "https://a:1", signature); err == nil {
		t.Error("a damaged key verifies")
	}
}

func TestAnnouncement(t *testing.T) {
	key := newKey(t)
	a := cloudkey.Announcement{URLs: []string{"https://a:1", "https://b:1"}, CA: "pem"}
	signature := key.Announce(a)
	if err := cloudkey.VerifyAnnouncement(key.Public(), a, signature); err != nil {
		t.Error(err)
	}
	for name, changed := range map[string]cloudkey.Announcement{
		"another URL":   {URLs: []string{"https://a:1", "https://c:1"}, CA: "pem"},
		"another order": {URLs: []string{"https://b:1", "https://a:1"}, CA: "pem"},
		"fewer URLs":    {URLs: []string{"https://a:1"}, CA: "pem"},
		"another CA":    {URLs: a.URLs, CA: "mep"},
		"no CA":         {URLs: a.URLs},
	} {
		err := cloudkey.VerifyAnnouncement(key.Public(), changed, signature)
		if !errors.Is(err, cloudkey.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := key.Announce(cloudkey.Announcement{URLs: []string{}})
	if err := cloudkey.VerifyAnnouncement(key.Public(), cloudkey.Announcement{}, none); err != nil {
		t.Errorf("an empty list that was read back: %v", err)
	}
}

// TestRequestMAC: it is valid for its credential, node, nonce and URL, and does not contain the credential.
func TestRequestMAC(t *testing.T) {
	digest := cloudkey.CredentialDigest("secret")
	mac := cloudkey.RequestMAC(digest, "node", "nonce", "url")
	if !cloudkey.VerifyRequestMAC(digest, "node", "nonce", "url", mac) || strings.Contains(mac, "secret") {
		t.Errorf("mac %q", mac)
	}
	for _, bad := range [][5]string{
		{cloudkey.CredentialDigest("secre"), "node", "nonce", "url", mac},
		{digest, "nod", "nonce", "url", mac},
		{digest, "node", "nonc", "url", mac},
		{digest, "node", "nonce", "ur", mac},
		{digest, "node", "nonce", "url", ""},
		{digest, "node\nnonce", "url", "", mac},
	} {
		if cloudkey.VerifyRequestMAC(bad[0], bad[1], bad[2], bad[3], bad[4]) {
			t.Errorf("valid: %q", bad)
		}
	}
}

func TestCanonicalURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://Build.Example:8090/":    "http://build.example:8090",
		" https://build.example ":       "https://build.example:443",
		"http://build.example":          "http://build.example:80",
		"https://[2001:DB8::1]:8090/by": "https://[2001:db8::1]:8090/by",
		"ftp://a":                       "", "a:8090": "", "": "", "http://": "", "http://u:secret@a": "",
		"http://a?x=1": "", "http://a#x": "", "http:opaque": "",
		"http://" + strings.Repeat("a", cloudkey.MaxURLBytes): "",
	} {
		got, err := cloudkey.CanonicalURL(text)
		if got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	list, err := cloudkey.CanonicalURLs([]string{"http://b", "http://a:80/", "http://B:80"})
	if err != nil || strings.Join(list, " ") != "http://b:80 http://a:80" {
		t.Errorf("%q, %v", list, err)
	}
	var many []string
	for i := range cloudkey.MaxURLs + 1 {
		many = append(many, fmt.Sprintf("http://a:%d", i+1))
	}
	if _, err := cloudkey.CanonicalURLs(many); err == nil {
		t.Error("too many are accepted")
	}
}

// FuzzCanonicalURL: the canonical form of a canonical form is itself.
func FuzzCanonicalURL(f *testing.F) {
	for _, text := range []string{"http://a", "https://[::1]:8090/x/", "http://A%41:1", "http://a:0x1", "https://a\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, err := cloudkey.CanonicalURL(text)
		if err != nil {
			return
		}
		if again, err := cloudkey.CanonicalURL(one); err != nil || again != one {
			t.Errorf("%q becomes %q, then %q (%v)", text, one, again, err)
		}
	})
}

func TestCheckCA(t *testing.T) {
	for name, text := range map[string]string{
		"text":                 "x",
		"a key":                "-----BEGIN PRIVATE " + "KEY-----\nAAAA\n-----END PRIVATE " + "KEY-----\n",
		"no certificate in it": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"too long":             strings.Repeat(" ", cloudkey.MaxCABytes+1),
	} {
		if err := cloudkey.CheckCA(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := cloudkey.CheckCA(""); err != nil {
		t.Error(err)
	}
}
