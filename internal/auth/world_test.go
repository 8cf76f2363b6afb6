package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// pairs are made once: that takes a while.
var (
	pair2048 = sync.OnceValue(func() *rsa.PrivateKey { return mustMake(2048) })
	pair4096 = sync.OnceValue(func() *rsa.PrivateKey { return mustMake(4096) })
)

func mustMake(bits int) *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
}

func publicText(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// world is a service with API keys.
type world struct {
	keys     *APIKeys
	signer   *Signer
	sessions *Sessions
	tap      *TAP
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{keys: NewAPIKeys(NewKeyTable(nil, nil)), signer: NewSigner(NewKeyRing(time.Now()))}
	return w.replica(&MemoryNonces{})
}

// replica is another process of the same service: all it shares are keys and signing keys.
func (w *world) replica(marks NonceStore) *world {
	r := &world{keys: w.keys, signer: NewSigner(*w.signer.ring.Load())}
	r.sessions = NewSessions(r.keys, r.signer, 0)
	r.tap = NewTAP(r.sessions, marks)
	return r
}

// add makes a key with the pair of 2048 bits, which lives an hour.
func (w *world) add(t testing.TB, id string, groups ...string) {
	t.Helper()
	must(t, w.create(t, NewAPIKey{ID: id, TTL: 3600, Groups: groups, PublicKey: publicText(t, &pair2048().PublicKey)}))
}

func (w *world) create(t testing.TB, n NewAPIKey) error {
	t.Helper()
	_, err := w.keys.Create(t.Context(), n)
	return err
}

func (w *world) hand(t testing.TB, id string) string {
	t.Helper()
	text, err := w.tap.Hand(id)
	must(t, err)
	return open(t, pair2048(), text)
}

// open decrypts as clients do.
func open(t testing.TB, key *rsa.PrivateKey, text string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	must(t, err)
	plain, err := rsa.DecryptOAEP(sha256.New(), nil, key, raw, nil)
	must(t, err)
	return string(plain)
}

func (w *world) shake(t testing.TB, id, secret string) (api.Session, error) {
	t.Helper()
	a, err := w.tap.Shake(t.Context(), api.ShakeRequest{ID: id, Secret: secret}, "192.0.2.1:4711")
	if err == nil && a.ID != id {
		t.Errorf("the answer is for %q", a.ID)
	}
	return a.Data, err
}

func (w *world) session(t testing.TB, id string) api.Session {
	t.Helper()
	s, err := w.shake(t, id, w.hand(t, id))
	must(t, err)
	return s
}

// bearer is what a client makes of a session.
func bearer(t testing.TB, s api.Session) string {
	t.Helper()
	raw, err := json.Marshal(s)
	must(t, err)
	return base64.StdEncoding.EncodeToString(raw)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refusedAs checks that credentials are refused, for a reason, and alike to all others.
func refusedAs(t testing.TB, err error, reason *farm.Error) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Errorf("refused with %v; want %v", err, reason)
	}
	if farm.CodeOf(err) != farm.CodeUnauthenticated || reason.Message != "Authentication Required" ||
		reason.Field != "" {
		t.Errorf("the caller sees %+v", err)
	}
}

// refusedWith checks for a sentence.
func refusedWith(t testing.TB, err error, code farm.Code, words string) {
	t.Helper()
	if farm.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v; want %s, ...%s...", farm.CodeOf(err), err, code, words)
	}
}
