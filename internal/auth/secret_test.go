package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// TestSecretsAreNotShown prints what holds a secret in every way that a program has.
func TestSecretsAreNotShown(t *testing.T) {
	const hidden = "hunter2hunter2"
	root, err := NewRootToken(hidden)
	must(t, err)
	ring := NewKeyRing(time.Now())
	raw := string(ring.keys[0].secret[:])
	session := api.Session{UserName: "u", SessionID: "s", Token: hidden}
	for name, v := range map[string]any{
		"secret": NewSecret(hidden), "root": root, "root value": *root,
		"field":      struct{ token Secret }{NewSecret(hidden)},
		"list":       []Secret{NewSecret(hidden)},
		"ring":       ring,
		"ring field": struct{ r KeyRing }{ring},
		"signer":     NewSigner(ring),
		"session":    session,
		"shake":      api.ShakeRequest{ID: "x", Secret: hidden},
		"answer":     api.ShakeAnswer{ID: "x", Data: session},
	} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb, v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
		if !strings.HasPrefix(name, "s") && !strings.HasPrefix(name, "a") {
			if err := json.NewEncoder(&out).Encode(v); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, leak := range []string{hidden, fmt.Sprintf("%x", hidden), fmt.Sprintf("%X",
			hidden), raw, fmt.Sprintf("%x", raw), fmt.Sprint([]byte(raw))} {
			if strings.Contains(out.String(), leak) {
				t.Errorf("%s shows it:\n%s", name, out.String())
			}
		}
	}
}

func TestSecretsAreCompared(t *testing.T) {
	s := NewSecret("0123456789")
	for text, want := range map[string]bool{"0123456789": true, "012345678": false, "": false, "01234567890": false} {
		if s.Equal(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
	if (Secret{}).Equal("") || (Secret{}).Reveal() != "" || s.Reveal() != "0123456789" {
		t.Error("no secret is like the empty text")
	}
	if text, err := json.Marshal(s); err != nil || string(text) != `"***"` || s.String() != "***" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestComparesAreInConstantTime looks at how secrets are compared: always as sums, by the
// functions that are made for it. Timing cannot be measured reliably in a test.
func TestComparesAreInConstantTime(t *testing.T) {
	for file, must := range map[string][]string{
		"secret.go": {`crypto/subtle`, "subtle.ConstantTimeCompare(want[:], got[:])", "sha256.Sum256([]byte(text))"},
		"signer.go": {`crypto/hmac`, "hmac.Equal(mac[:], sum)"},
		"tap.go": {
			`crypto/subtle`, "subtle.ConstantTimeCompare(mac[:secretBytes-secretHeadBytes], raw[secretHeadBytes:])",
		},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly); err != nil {
			t.Fatal(err)
		}
		for _, m := range must {
			if !bytes.Contains(text, []byte(m)) {
				t.Errorf("%s does not have %s", file, m)
			}
		}
		for _, no := range []string{"bytes.Equal(", "token ==", "== token", "secret ==", "== secret", "mac =="} {
			if bytes.Contains(text, []byte(no)) {
				t.Errorf("%s has %s", file, no)
			}
		}
	}
}
