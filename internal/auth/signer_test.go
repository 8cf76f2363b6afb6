package auth

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSigner(NewKeyRing(time.Now()))
		text := s.Sign("a", []byte("payload"), "x", "yz")
		got, err := s.Verify("a", text, time.Minute, "x", "yz")
		if err != nil || string(got) != "payload" || strings.ContainsAny(text, "+/= \n") {
			t.Errorf("%q from %q, %v", got, text, err)
		}
		for name, try := range map[string]func() ([]byte, error){
			"another purpose": func() ([]byte, error) { return s.Verify("b", text, time.Minute, "x", "yz") },
			"other bounds":    func() ([]byte, error) { return s.Verify("a", text, time.Minute, "xy", "z") },
			"fewer bounds":    func() ([]byte, error) { return s.Verify("a", text, time.Minute, "x") },
			"another ring": func() ([]byte, error) {
				return NewSigner(NewKeyRing(time.Now())).Verify("a", text, time.Minute, "x", "yz")
			},
		} {
			if got, err := try(); !errors.Is(err, ErrSignedTextForeign) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		for i := range text {
			for _, c := range []string{"A", "B", "", "AA"} {
				wrong := text[:i] + c + text[i+1:]
				if got, err := s.Verify("a", wrong, time.Minute, "x", "yz"); err == nil && wrong != text &&
					i < len(text)-1 {
					t.Fatalf("byte %d as %q: %q", i, c, got)
				}
			}
		}
		for _, wrong := range []string{"", "A", text[:len(text)/2], strings.Repeat("A", maxSignedText+1), "*" + text} {
			if _, err := s.Verify("a", wrong, time.Minute, "x", "yz"); err == nil {
				t.Errorf("%.30q is taken", wrong)
			}
		}
		time.Sleep(time.Minute)
		if _, err := s.Verify("a", text, time.Minute, "x", "yz"); err != nil {
			t.Errorf("after its time: %v", err)
		}
		time.Sleep(time.Millisecond)
		if _, err := s.Verify("a", text, time.Minute, "x", "yz"); !errors.Is(err, ErrSignedTextExpired) {
			t.Errorf("beyond its time: %v", err)
		}
	})
}

// TestRotation has two replicas, one of which receives a new key later.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := NewKeyRing(time.Now())
		early, late := NewSigner(old), NewSigner(old)
		check := func(by, of *Signer) {
			t.Helper()
			if _, err := by.Verify("p", of.Sign("p", nil), time.Hour); err != nil {
				t.Errorf("%v", err)
			}
		}
		before := early.Sign("p", nil)
		rotated := old.Rotated(time.Now())
		early.ReplaceRing(rotated)
		time.Sleep(newKeyDelay - time.Second)
		check(late, early) // not signed with the new key yet
		late.ReplaceRing(rotated)
		time.Sleep(2 * time.Second)
		check(late, early)
		check(early, late)
		if rotated.signingKey(time.Now()).version != 2 {
			t.Error("the new key does not sign")
		}
		if _, err := late.Verify("p", before, time.Hour); err != nil {
			t.Errorf("what was signed before: %v", err)
		}
		time.Sleep(oldKeyRetention - time.Minute)
		if again := rotated.Rotated(time.Now()); len(again.keys) != 3 {
			t.Errorf("%d keys while the first still counts", len(again.keys))
		}
		time.Sleep(2 * time.Minute)
		again := rotated.Rotated(time.Now())
		if len(again.keys) != 2 || again.keys[0].version != 2 || again.keys[1].version != 3 {
			t.Errorf("%d keys, the first of version %d", len(again.keys), again.keys[0].version)
		}
		late.ReplaceRing(again)
		check(late, early) // they still share the key that signs
		if _, err := late.Verify("p", before, 1000*time.Hour); !errors.Is(err, ErrSignedTextForeign) {
			t.Errorf("what the forgotten key signed: %v", err)
		}
	})
}

func TestRingsAreStored(t *testing.T) {
	ring := NewKeyRing(time.Now()).Rotated(time.Now())
	raw, err := ring.Encode()
	must(t, err)
	back, err := ParseKeyRing(raw)
	must(t, err)
	if len(back.keys) != 2 {
		t.Fatalf("%d keys", len(back.keys))
	}
	for i, k := range ring.keys {
		if b := back.keys[i]; b.version != k.version || *b.secret != *k.secret || !b.signsFrom.Equal(k.signsFrom) {
			t.Errorf("key %d differs", i)
		}
	}
	for range maxRingKeys {
		if !ring.Full() {
			ring = ring.Rotated(time.Now())
		}
	}
	if raw, err = ring.Encode(); err != nil || !ring.Full() {
		t.Fatal(err)
	}
	if _, err := ParseKeyRing(raw); err != nil {
		t.Errorf("a full ring: %v", err)
	}
	good := storedRing{FormatVersion: 1, Keys: []storedKey{{Version: 1, Secret: make([]byte, 32)}}}
	for words, change := range map[string]func(*storedRing){
		"have format 2":   func(r *storedRing) { r.FormatVersion = 2 },
		"0 signing keys":  func(r *storedRing) { r.Keys = nil },
		"65 signing keys": func(r *storedRing) { r.Keys = make([]storedKey, 65) },
		"32 bytes":        func(r *storedRing) { r.Keys = []storedKey{{Version: 1, Secret: make([]byte, 33)}} },
		"out of order":    func(r *storedRing) { r.Keys = append(r.Keys, r.Keys[0]) },
	} {
		wrong := good
		change(&wrong)
		raw, err := json.Marshal(wrong)
		must(t, err)
		if _, err := ParseKeyRing(raw); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want ...%s..., got %v", words, err)
		}
	}
	if _, err := ParseKeyRing([]byte("secret, secret")); err == nil || strings.Contains(err.Error(), "secret,") {
		t.Errorf("%v", err)
	}
}

func TestRingsGrowOld(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ring := NewKeyRing(now)
	if ring.Full() || ring.NeedsRotation(now) || ring.NeedsRotation(now.Add(RotationAge-time.Second)) ||
		!ring.NeedsRotation(now.Add(RotationAge)) ||
		(KeyRing{}).NeedsRotation(now) {
		t.Error("a ring is old when its newest key is a month old")
	}
	if ring = ring.Rotated(now.Add(RotationAge)); ring.NeedsRotation(now.Add(RotationAge+newKeyDelay)) ||
		!ring.NeedsRotation(now.Add(2*RotationAge+newKeyDelay)) {
		t.Error("a ring that was rotated is as old as its newest key")
	}
}

// TestClocksMayDiffer by so much and no more.
func TestClocksMayDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSigner(NewKeyRing(time.Now()))
		key := s.ring.Load().keys[0]
		for ahead, good := range map[time.Duration]bool{0: true, maxClockSkew: true, maxClockSkew +
			time.Millisecond: false} {
			out := binary.BigEndian.AppendUint32(nil, key.version)
			out = binary.BigEndian.AppendUint64(out, uint64(time.Now().Add(ahead).UnixMilli()))
			mac := key.sign("a", out)
			_, err := s.Verify("a", base64.RawURLEncoding.EncodeToString(append(out, mac[:]...)), time.Minute)
			if (err == nil) != good || err != nil && !errors.Is(err, ErrSignedTextExpired) {
				t.Errorf("made %s from now: %v", ahead, err)
			}
		}
	})
}
