// Package license reads, verifies and makes license keys: signed lines of text that name the
// licensed product, its licensee, its tier and its expiry.
//
// It does not define what a tier grants: each program decides that. It makes no network calls; a
// key is verified with the public keys that a program trusts and the time.
//
// Invariant: a License that Verify returns without an error was signed, byte for byte, by a trusted
// authority; whether it has expired is a separate check, so that a program can report it.
package license

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// Product is what a license is for.
type Product string

// The products.
const (
	Controller   Product = "controller"
	Node         Product = "node"
	ImageScanner Product = "image-scanner"
)

// Products lists them.
var Products = []Product{Controller, Node, ImageScanner}

// Limits of a key, in bytes.
const (
	MaxKeyBytes     = 4096
	maxSubjectBytes = 255
)

// keyPrefix begins every key; it identifies the form of the text.
const keyPrefix = "BY1"

// payloadVersion is the newest version of the payload that is understood.
const payloadVersion = 1

// License is the content of a key.
type License struct {
	Product Product   `json:"product"`
	Tier    farm.Tier `json:"tier"`
	Subject string    `json:"subject"` // the licensee; any text
	Expires time.Time `json:"expires"` // zero: never
	Version int       `json:"version"` // of the payload
}

// Expired reports whether the license has expired.
func (l License) Expired(now time.Time) bool { return !l.Expires.IsZero() && !now.Before(l.Expires) }

// The ways in which a key can be wrong. Each error of Verify and Parse is one of them.
var (
	// ErrNotAKey is a text that is not a key.
	ErrNotAKey = errors.New("not a license key")
	// ErrNewer is a key that an older program does not understand.
	ErrNewer = errors.New("the license key requires a newer version of this program")
	// ErrSignature is a key that no trusted authority has signed.
	ErrSignature = errors.New("the license key is not signed by a trusted license authority")
	// ErrProduct is a key of another product.
	ErrProduct = errors.New("the license key is for another product")
)

// validate reports whether the fields have valid values.
func (l License) validate() error {
	switch {
	case l.Version > payloadVersion:
		return fmt.Errorf("%w: its version is %d, this program supports up to %d", ErrNewer, l.Version, payloadVersion)
	case l.Version < 1:
		return fmt.Errorf("%w: version %d is invalid", ErrNotAKey, l.Version)
	case !slices.Contains(Products, l.Product):
		return fmt.Errorf("%w: product must be one of %v", ErrNotAKey, Products)
	case !l.Tier.Known():
		return fmt.Errorf("%w: tier must be basic, enterprise or enterprise plus", ErrNotAKey)
	case len(l.Subject) > maxSubjectBytes || !utf8.ValidString(l.Subject) ||
		strings.ContainsFunc(l.Subject, unicode.IsControl):
		return fmt.Errorf("%w: subject must have at most %d bytes and no control characters", ErrNotAKey,
			maxSubjectBytes)
	}
	return nil
}

// keyEncoding is the base64 of keys: URL-safe, without padding, one text for each content.
var keyEncoding = base64.RawURLEncoding.Strict()

// IssueKey signs a license and returns its key. Version may be left 0.
func IssueKey(key ed25519.PrivateKey, l License) (string, error) {
	if l.Version == 0 {
		l.Version = payloadVersion
	}
	l.Expires = l.Expires.UTC()
	if err := l.validate(); err != nil {
		return "", err
	}
	payload, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("license: %w", err)
	}
	signed := keyPrefix + "." + keyEncoding.EncodeToString(payload)
	return signed + "." + keyEncoding.EncodeToString(ed25519.Sign(key, []byte(signed))), nil
}

// parsedKey is a parsed key that is not trusted yet.
type parsedKey struct {
	license     License
	signedBytes []byte
	signature   []byte
}

// parseKey parses a key. White space around it is ignored.
func parseKey(text string) (parsedKey, error) {
	var p parsedKey
	text = strings.TrimSpace(text)
	if len(text) > MaxKeyBytes {
		return p, fmt.Errorf("%w: the key has more than %d bytes", ErrNotAKey, MaxKeyBytes)
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 || parts[0] != keyPrefix || strings.ContainsAny(text, "\r\n") {
		return p, fmt.Errorf("%w: want the form %s.PAYLOAD.SIGNATURE", ErrNotAKey, keyPrefix)
	}
	payload, err := keyEncoding.DecodeString(parts[1])
	if err != nil {
		return p, fmt.Errorf("%w: the payload is not base64url", ErrNotAKey)
	}
	if p.signature, err = keyEncoding.DecodeString(parts[2]); err != nil || len(p.signature) != ed25519.SignatureSize {
		return p, fmt.Errorf("%w: the signature is not base64url of %d bytes", ErrNotAKey, ed25519.SignatureSize)
	}
	p.signedBytes = []byte(parts[0] + "." + parts[1])
	if err := json.Unmarshal(payload, &p.license); err != nil || !bytes.HasPrefix(payload, []byte("{")) {
		return p, fmt.Errorf("%w: the payload cannot be parsed", ErrNotAKey)
	}
	return p, p.license.validate()
}

// Verify verifies a key for any product. The license may have expired: see License.Expired. With
// ErrSignature, which only concerns the signature, it also returns the license, for display.
func (t TrustedKeys) Verify(text string) (License, error) {
	p, err := parseKey(text)
	if err != nil {
		return License{}, err
	}
	for _, key := range t {
		if ed25519.Verify(key, p.signedBytes, p.signature) {
			return p.license, nil
		}
	}
	if len(t) == 0 {
		return p.license, fmt.Errorf("%w: this program has no trusted license authority", ErrSignature)
	}
	return p.license, ErrSignature
}

// VerifyFor verifies a key for one product.
func (t TrustedKeys) VerifyFor(product Product, text string) (License, error) {
	l, err := t.Verify(text)
	if err == nil && l.Product != product {
		return License{}, fmt.Errorf("%w: %s, not %s", ErrProduct, l.Product, product)
	}
	return l, err
}
