package cloudkey_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/cloudkey"
)

// TestPeerToken: a token is valid for one version, one reader and one server, and for a short time.
func TestPeerToken(t *testing.T) {
	key, other := newKey(t), newKey(t)
	now := time.Unix(1_800_000_000, 0)
	permit := cloudkey.PeerPermit{ContentID: "content", Reader: "reader", Server: "server"}
	token := key.SignPeerToken(permit, now.Add(cloudkey.PeerTokenLife))
	if err := cloudkey.VerifyPeerToken(key.Public(), token, permit, now); err != nil {
		t.Fatal(err)
	}
	expiry, signature, _ := strings.Cut(token, ".")
	for name, c := range map[string]struct {
		public, token string
		permit        cloudkey.PeerPermit
		now           time.Time
	}{
		"another version": {permit: cloudkey.PeerPermit{ContentID: "other", Reader: "reader", Server: "server"}},
		"another reader":  {permit: cloudkey.PeerPermit{ContentID: "content", Reader: "other", Server: "server"}},
		"another server":  {permit: cloudkey.PeerPermit{ContentID: "content", Reader: "reader", Server: "other"}},
		"swapped":         {permit: cloudkey.PeerPermit{ContentID: "content", Reader: "server", Server: "reader"}},
		"joined lines":    {permit: cloudkey.PeerPermit{ContentID: "content\nreader", Reader: "server"}},
		"another cloud":   {public: other.Public()},
		"no key":          {public: "-"},
		"expired":         {now: now.Add(cloudkey.PeerTokenLife)},
		"valid too long":  {now: now.Add(-6 * time.Minute)},
		"another expiry":  {token: expiry[:len(expiry)-1] + "9." + signature},
		"no signature":    {token: expiry + "."},
		"no expiry":       {token: signature},
		"empty":           {token: "."},
		"long":            {token: expiry + "." + signature + strings.Repeat("A", 100)},
	} {
		if c.public == "" {
			c.public = key.Public()
		}
		if c.token == "" {
			c.token = token
		}
		if c.permit == (cloudkey.PeerPermit{}) {
			c.permit = permit
		}
		if c.now.IsZero() {
			c.now = now
		}
		if err := cloudkey.VerifyPeerToken(c.public, c.token, c.permit, c.now); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzVerifyPeerToken(f *testing.F) {
	key, err := cloudkey.New()
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	permit := cloudkey.PeerPermit{ContentID: "content", Reader: "reader", Server: "server"}
	token := key.SignPeerToken(permit, now.Add(time.Minute))
	f.Add(token)
	f.Add(".")
	f.Add("9223372036854775807.AA")
	f.Fuzz(func(t *testing.T, text string) {
		if err := cloudkey.VerifyPeerToken(key.Public(), text, permit, now); err == nil && text != token {
			t.Errorf("%q was accepted", text)
		}
	})
}
