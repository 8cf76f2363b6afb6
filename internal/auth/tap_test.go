package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestHandshake(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci", "a")
	text, err := w.tap.Hand("ci")
	must(t, err)
	if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil || len(text) != 344 {
		t.Errorf("%q", text)
	}
	secret := open(t, pair2048(), text)
	if len(secret) != 27 || strings.ContainsFunc(secret, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", r)
	}) {
		t.Errorf("secret %q", secret)
	}
	session, err := w.shake(t, "ci", secret+"\n")
	must(t, err)
	if session.UserName != "ci" || session.SessionID == "" || session.Token == "" {
		t.Errorf("%+v", session)
	}
	_, err = w.shake(t, "ci", secret)
	refusedAs(t, err, errShakeUsed)
	if other := w.session(t, "ci"); other.SessionID == session.SessionID {
		t.Error("two sessions have one id")
	}
}

// TestHandsForUnknownKeys: a hand does not reveal whether there is a key. Each ID has a separate
// decoy key, the same on every replica, and no two hands are alike.
func TestHandsForUnknownKeys(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	w.add(t, "over")
	key, err := w.keys.Get("over")
	must(t, err)
	gone := key
	gone.Expires = time.Now().Add(-time.Minute)
	must(t, w.keys.store.Replace(t.Context(), key, gone))
	seen := map[string]bool{}
	for _, id := range []string{"ci", "nobody", "nobody", "over", "root", strings.Repeat("x", 2*MaxKeyID), "\x00"} {
		text, err := w.tap.Hand(id)
		raw, bad := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || bad != nil || len(raw) != 256 || seen[text] {
			t.Errorf("%.20q: %q, %v, %v", id, text, err, bad)
		}
		seen[text] = true
		for _, secret := range []string{"AAAAAAAAAAAAAAAAAAAAAAAAAAA", ""} {
			if _, err := w.shake(t, id, secret); farm.CodeOf(err) != farm.CodeUnauthenticated {
				t.Errorf("a shake of %.20q: %v", id, err)
			}
		}
	}
	a, b := w.tap.decoyKey("nobody"), w.tap.decoyKey("nobody2")
	if a.N.BitLen() != generatedKeyBits || a.N.Cmp(b.N) == 0 ||
		a.N.Cmp(w.replica(&MemoryNonces{}).tap.decoyKey("nobody").N) != 0 {
		t.Error("the numbers that stand for keys tell which ids are unknown")
	}
}

// TestManySecretsAndReplicas: a hand on one replica, a shake on another, many concurrently.
func TestManySecretsAndReplicas(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	marks := &MemoryNonces{}
	one, two := w.replica(marks), w.replica(marks)
	secrets := map[string]bool{}
	for range 50 {
		secrets[one.hand(t, "ci")] = true
	}
	if len(secrets) != 50 {
		t.Errorf("%d different secrets", len(secrets))
	}
	for secret := range secrets {
		session, err := two.shake(t, "ci", secret)
		must(t, err)
		if _, err := one.sessions.Verify(bearer(t, session)); err != nil {
			t.Error(err)
		}
		one.tap.failures = FailureLimiter{} // no limit here
		_, err = one.shake(t, "ci", secret)
		refusedAs(t, err, errShakeUsed)
	}
}

// TestOneOfManyShakesWins has a secret shaken by many at the same time.
func TestOneOfManyShakesWins(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	secret := w.hand(t, "ci")
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := 0
	for range 16 {
		wg.Go(func() {
			if _, err := w.shake(t, "ci", secret); err == nil {
				mu.Lock()
				defer mu.Unlock()
				good++
			}
		})
	}
	wg.Wait()
	if good != 1 {
		t.Errorf("%d sessions of one secret", good)
	}
}

func TestSecretsLiveThreeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci")
		a, b := w.hand(t, "ci"), w.hand(t, "ci")
		time.Sleep(3 * time.Minute)
		if _, err := w.shake(t, "ci", a); err != nil {
			t.Errorf("after three minutes: %v", err)
		}
		time.Sleep(time.Second)
		_, err := w.shake(t, "ci", b)
		refusedAs(t, err, errShakeLate)
		time.Sleep(30 * time.Minute)
		_, err = w.shake(t, "ci", a)
		refusedAs(t, err, errShakeLate)
	})
}

// TestClocksOfReplicas: a secret that was made ahead of this clock is good within a minute,
// and is still used once for all of its life.
func TestClocksOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		must(t, w.create(t, NewAPIKey{ID: "ci", TTL: 86400, PublicKey: publicText(t, &pair2048().PublicKey)}))
		key, _ := w.keys.GetUnexpired("ci")
		ahead := w.tap.newSecret(key, time.Now().Add(maxClockSkew))
		if _, err := w.shake(t, "ci", ahead); err != nil {
			t.Error(err)
		}
		for range 2 {
			time.Sleep(2*time.Minute - time.Second)
			_, err := w.shake(t, "ci", ahead)
			refusedAs(t, err, errShakeUsed)
		}
		_, err := w.shake(t, "ci", w.tap.newSecret(key, time.Now().Add(maxClockSkew+time.Second)))
		refusedAs(t, err, errShakeLate)
	})
}

func TestWrongSecrets(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	w.add(t, "other")
	foreign := newWorld(t)
	foreign.add(t, "ci")
	good := w.hand(t, "ci")
	raw, err := handText.DecodeString(good)
	must(t, err)
	try := func(id, secret string) {
		t.Helper()
		w.tap.failures = FailureLimiter{} // no limit here
		a, err := w.shake(t, id, secret)
		if id == "who" {
			refusedAs(t, err, errHandKey)
		} else {
			refusedAs(t, err, errShakeSecret)
		}
		if a.Token != "" {
			t.Errorf("%q gives a session", secret)
		}
	}
	try("other", good) // of another key
	try("who", good)
	try("ci", foreign.hand(t, "ci")) // of another cluster
	for i := range raw {
		wrong := append([]byte{}, raw...)
		wrong[i] ^= 0x10
		try("ci", handText.EncodeToString(wrong))
	}
	for _, text := range []string{
		"", "x", good[:26], good + "A", base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw),
		strings.Repeat("*", 27), strings.Repeat("A", 1<<20), strings.Repeat("\x00", 27), good[:13] + "\n" + good[13:],
	} {
		try("ci", text)
	}
	// The last character has two bits to spare: no other one stands for the same secret.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, c := range alphabet {
		if text := good[:26] + string(c); text != good {
			try("ci", text)
		}
	}
	if _, err := w.shake(t, "ci", good); err != nil {
		t.Errorf("the right one afterwards: %v", err)
	}
}

// TestRotationKeepsSecrets: a secret of the old signing key is good after the rotation.
func TestRotationKeepsSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci")
		session := bearer(t, w.session(t, "ci"))
		secret := w.hand(t, "ci")
		w.signer.ReplaceRing(w.signer.ring.Load().Rotated(time.Now()))
		time.Sleep(newKeyDelay + time.Second)
		if _, err := w.shake(t, "ci", secret); err != nil {
			t.Error(err)
		}
		if _, err := w.sessions.Verify(session); err != nil {
			t.Error(err)
		}
		if _, err := w.shake(t, "ci", w.hand(t, "ci")); err != nil {
			t.Errorf("with the new key: %v", err)
		}
	})
}

// TestOnlyFailuresAreLimited: the holder of a key is admitted, however often another caller fails
// under its name or from the same address.
func TestOnlyFailuresAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci")
		fail := func(id, addr string) error {
			_, err := w.tap.Shake(t.Context(), api.ShakeRequest{ID: id, Secret: "wrong"}, addr)
			return err
		}
		for i := range failureBurst {
			if err := fail("ci", fmt.Sprintf("198.51.100.%d", i)); farm.CodeOf(err) != farm.CodeUnauthenticated {
				t.Fatalf("failure %d: %v", i, err)
			}
		}
		refusedWith(t, fail("ci", "203.0.113.1"), farm.CodeTooMany, "try again later") // the key's are used up
		for range failureBurst - 1 {
			if err := fail("who", "203.0.113.1"); farm.CodeOf(err) != farm.CodeUnauthenticated {
				t.Fatal(err)
			}
		}
		if err := fail("somebody", "203.0.113.1:999"); farm.CodeOf(err) != farm.CodeTooMany {
			t.Errorf("the address's are used up: %v", err)
		}
		for range 100 {
			w.session(t, "ci") // from 192.0.2.1, and
			secret := w.hand(t, "ci")
			if _, err := w.tap.Shake(t.Context(), api.ShakeRequest{ID: "ci", Secret: secret},
				"203.0.113.1"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(failureInterval)
		if err := fail("ci", "203.0.113.9"); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Error(err)
		}
		refusedWith(t, fail("ci", "203.0.113.9"), farm.CodeTooMany, "")
	})
}

func TestFailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f FailureLimiter
		refused := 0
		for i := range 3 * maxTrackedNames {
			if f.Count(fmt.Sprint(i), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)) {
				refused++
			}
		}
		if len(f.byID.fullAt) != maxTrackedNames || len(f.byName.fullAt) != maxTrackedNames ||
			refused != 2*maxTrackedNames-failureBurst {
			t.Errorf("%d ids, %d addresses, %d refused", len(f.byID.fullAt), len(f.byName.fullAt), refused)
		}
		time.Sleep(failureBurst * failureInterval)
		if f.Count("new", "192.0.2.7") || len(f.byID.fullAt) != 1 || len(f.byName.fullAt) != 1 {
			t.Errorf("%d ids and %d addresses are remembered", len(f.byID.fullAt), len(f.byName.fullAt))
		}
		f.Count(strings.Repeat("x", 1<<20), "")
		for name := range f.byID.fullAt {
			if len(name) > MaxKeyID {
				t.Error("a long id is kept")
			}
		}
	})
}

func TestNeighborhoods(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64", "[2001:db8:1:2:5::6]:80": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64",
		"":             "", "@": "",
	} {
		if got := LimiterKey(addr); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

// broken cannot remember anything.
type broken struct{}

var errDisk = errors.New("disk full")

func (broken) Use(context.Context, Nonce, time.Time) (bool, error) { return true, errDisk }

// TestNoNonceNoSession: if the nonce cannot be stored, no session is created, and no failure is
// counted.
func TestNoNonceNoSession(t *testing.T) {
	w := newWorld(t).replica(broken{})
	w.add(t, "ci")
	secret := w.hand(t, "ci")
	for range 2 * failureBurst {
		if s, err := w.shake(t, "ci", secret); !errors.Is(err, errDisk) || s.Token != "" {
			t.Fatalf("%+v, %v", s, err)
		}
	}
}

func TestDamagedRecordsAreErrors(t *testing.T) {
	store := NewKeyTable([]farm.APIKey{{ID: "ci", PublicKey: []byte("x"), Expires: time.Now().Add(time.Hour)}}, nil)
	keys := NewAPIKeys(store)
	tap := NewTAP(NewSessions(keys, NewSigner(NewKeyRing(time.Now())), 0), &MemoryNonces{})
	if _, err := tap.Hand("ci"); err == nil || farm.CodeOf(err) != farm.CodeInternal {
		t.Error(err)
	}
}

func TestNoncesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m MemoryNonces
		for i := range 600 {
			if first, err := m.Use(t.Context(), Nonce{byte(i), byte(i >> 8)}, time.Now().Add(3*time.Minute)); !first ||
				err != nil {
				t.Fatal(first, err)
			}
			time.Sleep(time.Second)
		}
		if m.count > 5*60 || len(m.noncesByMinute) > 6 {
			t.Errorf("%d marks of %d minutes are remembered", m.count, len(m.noncesByMinute))
		}
		if _, err := m.Use(t.Context(), Nonce{0, 0, 2}, time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		m.count = MaxNonces
		if _, err := m.Use(t.Context(), Nonce{0, 0, 1},
			time.Now().Add(time.Minute)); farm.CodeOf(err) != farm.CodeBusy {
			t.Error(err)
		}
	})
}

func TestBodies(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"a"}`:                       "a",
		" {\n\"x\":[1],\"id\" : \"a\" }\n": "a",
		`{"id":""}`:                        "id: is required",
		`{}`:                               "id: is required",
		`null`:                             "id: is required",
		``:                                 "body: must be",
		`{"id":1}`:                         "body: must be",
		`{"id":"a"`:                        "body: must be",
		`["a"]`:                            "body: must be",
		`{"id":"a"}{}`:                     "body: must be",
		`{"id":"` + strings.Repeat("x", maxTapBody) + `"}`: "larger than",
	} {
		r, err := ParseHand([]byte(body))
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && r.ID != want {
			t.Errorf("%.40s: %+v, %v; want %s", body, r, err, want)
		}
	}
	if _, err := ParseShake([]byte(`{"id":"a","secret":["topsecret"]}`)); err == nil ||
		strings.Contains(err.Error(), "topsecret") {
		t.Errorf("%v", err)
	}
	if _, err := ParseShake([]byte(`{"id":"a"}`)); err == nil || !strings.Contains(err.Error(), "secret: is required") {
		t.Errorf("%v", err)
	}
	if r, err := ParseShake([]byte(`{"secret":"s","id":"a"}`)); err != nil || r.ID != "a" || r.Secret != "s" {
		t.Errorf("%v", err)
	}
}

func FuzzTap(f *testing.F) {
	w := newWorld(f)
	w.add(f, "ci")
	good := w.hand(f, "ci")
	f.Add([]byte(`{"id":"ci"}`))
	f.Add([]byte(`{"id":"ci","secret":"` + good[:26] + `"}`))
	f.Add([]byte(`{"id":"who","secret":null,"x":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := ParseHand(body); err == nil {
			if text, err := w.tap.Hand(r.ID); err != nil || len(text) != 344 {
				t.Fatalf("%q: %q, %v", r.ID, text, err)
			}
		}
		r, err := ParseShake(body)
		if err != nil {
			return
		}
		if a, err := w.tap.Shake(t.Context(), r, "192.0.2.1"); err == nil && r.Secret != good {
			t.Fatalf("%q opens %+v", r.Secret, a)
		}
	})
}

// TestBodiesOfTaps: what is required is named, and nothing of a body is in an error.
func TestBodiesOfTaps(t *testing.T) {
	whole := func(n int) string { return `{"id":"a","secret":"geheim"` + strings.Repeat(" ", n-28) + "}" }
	for body, want := range map[string]string{
		`{"id":"a","secret":"s"}`: "", `{"id":"a"}`: "secret: is required", `{"secret":"geheim"}`: "id: is required",
		`{"id":5,"secret":"geheim"}`: "body: must be a JSON object", ``: "body: must be", `geheim`: "body: must be",
		whole(maxTapBody): "", whole(maxTapBody + 1): "larger than",
	} {
		_, err := ParseShake([]byte(body))
		if (err == nil) != (want == "") ||
			err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%.40s: %v, want %q", body, err, want)
		}
		r, err := ParseHand([]byte(body))
		if ok := want == "" || strings.HasPrefix(want, "secret"); (err == nil) != ok || ok && r.ID != "a" {
			t.Errorf("a hand %.40s: %v", body, err)
		}
	}
}

// TestSecretsLiveForTheirTime, which is counted from the second in which they were made.
func TestSecretsLiveForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci")
		key, err := w.keys.Get("ci")
		must(t, err)
		secret := w.tap.newSecret(key, time.Now())
		time.Sleep(SecretTTL + time.Second - time.Nanosecond)
		if _, _, refusal := w.tap.openSecret(key, secret); refusal != nil {
			t.Errorf("to the end: %v", refusal)
		}
		time.Sleep(time.Nanosecond)
		if _, _, refusal := w.tap.openSecret(key, secret); refusal != errShakeLate {
			t.Errorf("after its time: %v", refusal)
		}
	})
}
