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
	ringLead  = time.Minute
	ringKeep  = MaxSessionTTL + time.Hour
	ringLimit = 64
)

// RingAge is the age of the newest signing key at which it is replaced automatically.
const RingAge = 30 * 24 * time.Hour

const ringForm = 1

// KeyRing is the cluster's signing keys, the oldest first. It is stored as returned by Encode, once
// for all replicas, and is never changed: rotation makes a new one. The zero value signs nothing.
type KeyRing struct {
	keys []*signingKey // pointers, so that nothing that prints them shows them
}

// signingKey is one key of a ring.
type signingKey struct {
	version uint32
	from    time.Time // it signs from then on, until a newer one does
	secret  *[32]byte // a pointer, like the keys themselves
}

// Format implements fmt.Formatter: every verb prints the mask.
func (KeyRing) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, masked) }

// MarshalText returns the mask, in JSON too: storing a ring takes Encode.
func (KeyRing) MarshalText() ([]byte, error) { return []byte(masked), nil }

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
	for len(keys) > 1 && now.Sub(keys[1].from) > ringKeep {
		keys = keys[1:]
	}
	if len(keys) > 0 {
		last = keys[len(keys)-1].version
	}
	return KeyRing{append(keys, newSigningKey(last+1, now.Add(ringLead)))}
}

// NeedsRotation reports whether the newest key is due for replacement.
func (r KeyRing) NeedsRotation(now time.Time) bool {
	return len(r.keys) > 0 && now.Sub(r.keys[len(r.keys)-1].from) >= RingAge
}

// Full reports whether the ring has been rotated so often in so short a time that it accepts no
// more keys.
func (r KeyRing) Full() bool { return len(r.keys) >= ringLimit }

// signing returns the key that signs now.
func (r KeyRing) signing(now time.Time) *signingKey {
	for i := len(r.keys) - 1; i > 0; i-- {
		if !r.keys[i].from.After(now) {
			return r.keys[i]
		}
	}
	return r.keys[0]
}

// find returns the key of a version.
func (r KeyRing) find(version uint32) *signingKey {
	for _, k := range r.keys {
		if k.version == version {
			return k
		}
	}
	return nil
}

// storedRing is a ring as it is stored.
type storedRing struct {
	Form int         `json:"form"`
	Keys []storedKey `json:"keys"`
}

type storedKey struct {
	Version uint32    `json:"version"`
	From    time.Time `json:"from"`
	Secret  []byte    `json:"secret"`
}

// Encode returns the ring with its secrets, for a store that only the services read.
func (r KeyRing) Encode() ([]byte, error) {
	out := storedRing{Form: ringForm}
	for _, k := range r.keys {
		out.Keys = append(out.Keys, storedKey{k.version, k.from, k.secret[:]})
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
	if in.Form > ringForm {
		return KeyRing{}, fmt.Errorf("signing keys have format %d, this program supports up to %d; update this program",
			in.Form, ringForm)
	}
	if n := len(in.Keys); n < 1 || n > ringLimit {
		return KeyRing{}, fmt.Errorf("record has %d signing keys: want 1 to %d", n, ringLimit)
	}
	var r KeyRing
	for i, k := range in.Keys {
		key := &signingKey{k.Version, k.From, new([32]byte)}
		if len(k.Secret) != len(key.secret) {
			return KeyRing{}, fmt.Errorf("signing key %d does not have %d bytes", k.Version, len(key.secret))
		}
		copy(key.secret[:], k.Secret)
		if i > 0 && (k.Version <= in.Keys[i-1].Version || k.From.Before(in.Keys[i-1].From)) {
			return KeyRing{}, errors.New("signing keys are out of order")
		}
		r.keys = append(r.keys, key)
	}
	return r, nil
}
