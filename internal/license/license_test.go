package license

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// authority makes a new authority.
func authority(t testing.TB) (TrustedKeys, ed25519.PrivateKey) {
	t.Helper()
	public, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return TrustedKeys{public}, secret
}

func mustIssue(t testing.TB, secret ed25519.PrivateKey, l License) string {
	t.Helper()
	key, err := IssueKey(secret, l)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var sample = License{
	Product: Controller, Tier: farm.TierEnterprise, Subject: "Example Ltd. ü",
	Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Version: 1,
}

func TestKeysAreTrusted(t *testing.T) {
	trust, secret := authority(t)
	other, _ := authority(t)
	key := mustIssue(t, secret, sample)
	if !strings.HasPrefix(key, "BY1.") || strings.Count(key, ".") != 2 || strings.ContainsAny(key, "=+/ \n") {
		t.Errorf("key %q", key)
	}
	for _, trusted := range []TrustedKeys{trust, append(other, trust...)} {
		got, err := trusted.VerifyFor(Controller, "\n "+key+"\n")
		if err != nil || got != sample {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for why, c := range map[error]struct {
		trust   TrustedKeys
		product Product
	}{ErrSignature: {other, Controller}, ErrProduct: {trust, Node}} {
		if _, err := c.trust.VerifyFor(c.product, key); !errors.Is(err, why) {
			t.Errorf("want %v, got %v", why, err)
		}
	}
	if _, err := (TrustedKeys{}).Verify(key); !errors.Is(err, ErrSignature) ||
		!strings.Contains(err.Error(), "no trusted license authority") {
		t.Errorf("without an authority: %v", err)
	}
}

// TestPayloadIsAsAgreed holds the form that other programs read.
func TestPayloadIsAsAgreed(t *testing.T) {
	_, secret := authority(t)
	parts := strings.Split(mustIssue(t, secret, sample), ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"product":"controller","tier":"enterprise","subject":"Example Ltd. ü","expires":"2030-01-02T03:04:05Z","version":1}`
	if string(raw) != want {
		t.Errorf("payload %s", raw)
	}
}

// TestOneBitIsEnough: no key that differs in any place is trusted.
func TestOneBitIsEnough(t *testing.T) {
	trust, secret := authority(t)
	key := mustIssue(t, secret, sample)
	for i := range key {
		for _, c := range []byte{'A', 'B', '.', key[i] ^ 1} {
			wrong := key[:i] + string(c) + key[i+1:]
			if wrong == key {
				continue
			}
			if l, err := trust.Verify(wrong); err == nil {
				t.Fatalf("byte %d: %+v from %q", i, l, wrong)
			}
		}
		if _, err := trust.Verify(key[:i] + "\n" + key[i:]); i > 0 && err == nil {
			t.Fatalf("a line break at %d is taken", i)
		}
	}
}

// sign makes a key of any payload.
func sign(secret ed25519.PrivateKey, payload string) string {
	return signText(secret, "BY1."+base64.RawURLEncoding.EncodeToString([]byte(payload)))
}

// signText makes a key of any text in front of the signature.
func signText(secret ed25519.PrivateKey, text string) string {
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(secret, []byte(text)))
}

func TestWrongPayloadsAreRefused(t *testing.T) {
	trust, secret := authority(t)
	const good = `{"product":"node","tier":"basic","subject":"","expires":"0001-01-01T00:00:00Z","version":1,"later":[1]}`
	longest := strings.Replace(good, `"subject":""`, `"subject":"`+strings.Repeat("x", 255)+`"`, 1)
	for _, payload := range []string{good, longest} {
		if l, err := trust.Verify(sign(secret, payload)); err != nil || l.Expired(time.Now()) {
			t.Errorf("%+v, %v", l, err)
		}
	}
	for payload, want := range map[string]error{
		``: ErrNotAKey, `null`: ErrNotAKey, `[]`: ErrNotAKey, good + `{}`: ErrNotAKey, `{`: ErrNotAKey,
		` ` + good: ErrNotAKey,
		strings.Replace(good, `"subject":""`, `"subject":5`, 1):                                      ErrNotAKey,
		strings.Replace(good, `:1,`, `:2,`, 1):                                                       ErrNewer,
		strings.Replace(good, `:1,`, `:0,`, 1):                                                       ErrNotAKey,
		strings.Replace(good, `node`, `car`, 1):                                                      ErrNotAKey,
		strings.Replace(good, `basic`, `Basic`, 1):                                                   ErrNotAKey,
		strings.Replace(good, `basic`, ``, 1):                                                        ErrNotAKey,
		strings.Replace(good, `0001-01-01T00:00:00Z`, `tomorrow`, 1):                                 ErrNotAKey,
		strings.Replace(good, `"subject":""`, `"subject":"a\nb"`, 1):                                 ErrNotAKey,
		strings.Replace(good, `"subject":""`, `"subject":"`+strings.Repeat("x", 256)+`"`, 1):         ErrNotAKey,
		strings.Replace(good, `"subject":""`, `"subject":"`+strings.Repeat("x", MaxKeyBytes)+`"`, 1): ErrNotAKey,
	} {
		if _, err := trust.Verify(sign(secret, payload)); !errors.Is(err, want) {
			t.Errorf("%.80s: want %v, got %v", payload, want, err)
		}
	}
	whole := base64.RawURLEncoding.EncodeToString([]byte(good + strings.Repeat(" ", 3-len(good)%3)))
	for _, text := range []string{
		"", "BY1", "BY1..", "BY2.e30.e30", "BY1.e30.e30.e30", "BY1.e30=.AAAA", "BY1.e30.AAAA", "BY1." + whole + ".AAAA",
		"BY1." + whole + ".!",
		signText(secret, "BY2."+whole), signText(secret, "BY1."+whole+"="), signText(secret, "BY1."+whole+"!"),
	} {
		if _, err := trust.Verify(text); !errors.Is(err, ErrNotAKey) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestKeysHaveABoundedLength: a key of any length up to the limit is read, and no longer one.
func TestKeysHaveABoundedLength(t *testing.T) {
	trust, secret := authority(t)
	payload := `{"product":"node","tier":"basic","subject":"","expires":"0001-01-01T00:00:00Z","version":1}`
	payload += strings.Repeat(" ", 2880)
	within, beyond := 0, 0
	for ; beyond < 3; payload += " " {
		key := sign(secret, payload)
		_, err := trust.Verify(" " + key + "\n")
		if len(key) <= MaxKeyBytes {
			within++
		} else {
			beyond++
		}
		if (err == nil) != (len(key) <= MaxKeyBytes) || err != nil && !errors.Is(err, ErrNotAKey) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	if within < 20 {
		t.Errorf("%d keys were short enough", within)
	}
}

func TestIssueRefusesWhatVerifyWould(t *testing.T) {
	_, secret := authority(t)
	for _, change := range []func(*License){
		func(l *License) { l.Product = "car" },
		func(l *License) { l.Tier = "" },
		func(l *License) { l.Subject = "a\x00" },
		func(l *License) { l.Subject = "a\xff" },
		func(l *License) { l.Subject = strings.Repeat("x", 256) },
		func(l *License) { l.Version = 2 },
		func(l *License) { l.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		l := sample
		change(&l)
		if key, err := IssueKey(secret, l); err == nil {
			t.Errorf("%+v gives %s", l, key)
		}
	}
}

func TestExpired(t *testing.T) {
	at := sample.Expires
	if sample.Expired(at.Add(-time.Nanosecond)) || !sample.Expired(at) || (License{}).Expired(at) {
		t.Error("a licence is over from the moment on that it names, and never without one")
	}
}

func FuzzVerify(f *testing.F) {
	trust, secret := authority(f)
	f.Add(mustIssue(f, secret, sample))
	f.Add("BY1.e30.AAAA")
	f.Add(sign(secret, `{"product":"node"}`))
	f.Fuzz(func(t *testing.T, text string) {
		l, err := trust.Verify(text)
		if err != nil {
			return
		}
		if err := l.validate(); err != nil {
			t.Fatalf("%+v is believed: %v", l, err)
		}
		if _, err := json.Marshal(l); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseTrust(f *testing.F) {
	f.Add([]byte("# x\n" + strings.Repeat("A", 43) + "= somebody\n"))
	f.Add([]byte("\n\n#"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		trust, err := ParseTrustedKeys(raw)
		if err == nil && (len(trust) == 0 || len(trust) > maxKeys) {
			t.Fatalf("%d keys", len(trust))
		}
		for _, key := range trust {
			if len(key) != ed25519.PublicKeySize {
				t.Fatalf("a key of %d bytes", len(key))
			}
		}
	})
}
