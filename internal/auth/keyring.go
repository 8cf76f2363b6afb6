package auth

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Limits of the key ring: how long a new key waits before it signs, so that every replica has it by
// then; how long an old one is trusted after the next has begun to sign; how many keys it may have.
const (
	newKeyDelay     = time.Minute
	oldKeyRetention = MaxSessionTTL + time.Hour
	maxRingKeys     = 64
)

// RotationAge is the age of the newest signing key at which it is replaced automatically.
const RotationAge = 30 * 24 * time.Hour

const ringFormat = 1

// KeyRing is the cluster's signing keys, the oldest first. It is stored as returned by Encode, once
// for all replicas, and is never changed: rotation makes a new one. The zero value signs nothing.
type KeyRing struct {
	keys []*signingKey // pointers, so that nothing that prints them shows them
}

// signingKey is one key of a ring.
type signingKey struct {
	version   uint32
	signsFrom time.Time // it signs from then on, until a newer one does
	secret    *[32]byte // a pointer, like the keys themselves
}

// Format implements fmt.Formatter: every verb prints the mask.
func (KeyRing) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, secretMask) }

// MarshalText returns the mask, in JSON too: storing a ring takes Encode.
func (KeyRing) MarshalText() ([]byte, error) { return []byte(secretMask), nil }

// NewKeyRing returns a ring of one key, which signs immediately.
func NewKeyRing(now time.Time) KeyRing { return KeyRing{[]*signingKey{newSigningKey(1, now)}} }

func newSigningKey(version uint32, from time.Time) *signingKey {
	k := &signingKey{version, from.UTC().Truncate(time.Second), new([32]byte)}
	_, _ = rand.Read(k.secret[:]) // never fails
	return k
}

// Rotated returns the ring with a new key, which signs a minute from now, and without those whose
// signatures have all expired. Existing signatures stay valid for their lifetime.
func (r KeyRing) Rotated(now time.Time) KeyRing {
	keys, last := slices.Clone(r.keys), uint32(0)
	for len(keys) > 1 && now.Sub(keys[1].signsFrom) > oldKeyRetention {
		keys = keys[1:]
	}
	if len(keys) > 0 {
		last = keys[len(keys)-1].version
	}
	return KeyRing{append(keys, newSigningKey(last+1, now.Add(newKeyDelay)))}
}

// NeedsRotation reports whether the newest key is due for replacement.
func (r KeyRing) NeedsRotation(now time.Time) bool {
	return len(r.keys) > 0 && now.Sub(r.keys[len(r.keys)-1].signsFrom) >= RotationAge
}

// Full reports whether the ring has been rotated so often in so short a time that it accepts no
// more keys.
func (r KeyRing) Full() bool { return len(r.keys) >= maxRingKeys }

// signingKey returns the key that signs now.
func (r KeyRing) signingKey(now time.Time) *signingKey {
	for i := len(r.keys) - 1; i > 0; i-- {
		if !r.keys[i].signsFrom.After(now) {
			return r.keys[i]
		}
	}
	return r.keys[0]
}

// findKey returns the key of a version.
func (r KeyRing) findKey(version uint32) *signingKey {
	for _, k := range r.keys {
		if k.version == version {
			return k
		}
	}
	return nil
}

// storedRing is a ring as it is stored.
type storedRing struct {
	FormatVersion int         `json:"form"`
	Keys          []storedKey `json:"keys"`
}

type storedKey struct {
	Version   uint32    `json:"version"`
	SignsFrom time.Time `json:"from"`
	Secret    []byte    `json:"secret"`
}

// Encode returns the ring with its secrets, for a store that only the services read.
func (r KeyRing) Encode() ([]byte, error) {
	out := storedRing{FormatVersion: ringFormat}
	for _, k := range r.keys {
		out.Keys = append(out.Keys, storedKey{k.version, k.signsFrom, k.secret[:]})
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode the signing keys: %w", err)
	}
	return raw, nil
}

// ParseKeyRing parses what Encode returned. Its errors contain nothing of the text.
func ParseKeyRing(raw []byte) (KeyRing, error) {
	var in storedRing
	if err := json.Unmarshal(raw, &in); err != nil {
		return KeyRing{}, errors.New("signing keys: invalid JSON")
	}
	if in.FormatVersion > ringFormat {
		return KeyRing{}, fmt.Errorf("signing keys have format %d, this program supports up to %d; update this program",
			in.FormatVersion, ringFormat)
	}
	if n := len(in.Keys); n < 1 || n > maxRingKeys {
		return KeyRing{}, fmt.Errorf("record has %d signing keys: want 1 to %d", n, maxRingKeys)
	}
	var r KeyRing
	for i, k := range in.Keys {
		key := &signingKey{k.Version, k.SignsFrom, new([32]byte)}
		if len(k.Secret) != len(key.secret) {
			return KeyRing{}, fmt.Errorf("signing key %d does not have %d bytes", k.Version, len(key.secret))
		}
		copy(key.secret[:], k.Secret)
		if i > 0 && (k.Version <= in.Keys[i-1].Version || k.SignsFrom.Before(in.Keys[i-1].SignsFrom)) {
			return KeyRing{}, errors.New("signing keys are out of order")
		}
		r.keys = append(r.keys, key)
	}
	return r, nil
}
