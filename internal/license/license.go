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
	MaxKey     = 4096
	maxSubject = 255
)

// prefix begins every key; it identifies the form of the text.
const prefix = "BY1"

// version is the newest version of the payload that is understood.
const version = 1

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
	// ErrForm is a text that is not a key.
	ErrForm = errors.New("not a license key")
	// ErrNewer is a key that an older program does not understand.
	ErrNewer = errors.New("the license key requires a newer version of this program")
	// ErrSignature is a key that no trusted authority has signed.
	ErrSignature = errors.New("the license key is not signed by a trusted license authority")
	// ErrProduct is a key of another product.
	ErrProduct = errors.New("the license key is for another product")
)

// check reports whether the fields have valid values.
func (l License) check() error {
	switch {
	case l.Version > version:
		return fmt.Errorf("%w: its version is %d, this program supports up to %d", ErrNewer, l.Version, version)
	case l.Version < 1:
		return fmt.Errorf("%w: version %d is invalid", ErrForm, l.Version)
	case !slices.Contains(Products, l.Product):
		return fmt.Errorf("%w: product must be one of %v", ErrForm, Products)
	case !l.Tier.Known():
		return fmt.Errorf("%w: tier must be basic, enterprise or enterprise plus", ErrForm)
	case len(l.Subject) > maxSubject || !utf8.ValidString(l.Subject) ||
		strings.ContainsFunc(l.Subject, unicode.IsControl):
		return fmt.Errorf("%w: subject must have at most %d bytes and no control characters", ErrForm, maxSubject)
	}
	return nil
}

// coding is the base64 of keys: URL-safe, without padding, one text for each content.
var coding = base64.RawURLEncoding.Strict()

// Issue signs a license and returns its key. Version may be left 0.
func Issue(key ed25519.PrivateKey, l License) (string, error) {
	if l.Version == 0 {
		l.Version = version
	}
	l.Expires = l.Expires.UTC()
	if err := l.check(); err != nil {
		return "", err
	}
	payload, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("license: %w", err)
	}
	signed := prefix + "." + coding.EncodeToString(payload)
	return signed + "." + coding.EncodeToString(ed25519.Sign(key, []byte(signed))), nil
}

// parsed is a parsed key that is not trusted yet.
type parsed struct {
	license   License
	signed    []byte
	signature []byte
}

// parse parses a key. White space around it is ignored.
func parse(text string) (parsed, error) {
	var p parsed
	text = strings.TrimSpace(text)
	if len(text) > MaxKey {
		return p, fmt.Errorf("%w: the key has more than %d bytes", ErrForm, MaxKey)
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 || parts[0] != prefix || strings.ContainsAny(text, "\r\n") {
		return p, fmt.Errorf("%w: want the form %s.PAYLOAD.SIGNATURE", ErrForm, prefix)
	}
	payload, err := coding.DecodeString(parts[1])
	if err != nil {
		return p, fmt.Errorf("%w: the payload is not base64url", ErrForm)
	}
	if p.signature, err = coding.DecodeString(parts[2]); err != nil || len(p.signature) != ed25519.SignatureSize {
		return p, fmt.Errorf("%w: the signature is not base64url of %d bytes", ErrForm, ed25519.SignatureSize)
	}
	p.signed = []byte(parts[0] + "." + parts[1])
	if err := json.Unmarshal(payload, &p.license); err != nil || !bytes.HasPrefix(payload, []byte("{")) {
		return p, fmt.Errorf("%w: the payload cannot be parsed", ErrForm)
	}
	return p, p.license.check()
}

// Verify verifies a key for any product. The license may have expired: see License.Expired. With
// ErrSignature, which only concerns the signature, it also returns the license, for display.
func (t Trust) Verify(text string) (License, error) {
	p, err := parse(text)
	if err != nil {
		return License{}, err
	}
	for _, key := range t {
		if ed25519.Verify(key, p.signed, p.signature) {
			return p.license, nil
		}
	}
	if len(t) == 0 {
		return p.license, fmt.Errorf("%w: this program has no trusted license authority", ErrSignature)
	}
	return p.license, ErrSignature
}

// VerifyFor verifies a key for one product.
func (t Trust) VerifyFor(product Product, text string) (License, error) {
	l, err := t.Verify(text)
	if err == nil && l.Product != product {
		return License{}, fmt.Errorf("%w: %s, not %s", ErrProduct, l.Product, product)
	}
	return l, err
}
