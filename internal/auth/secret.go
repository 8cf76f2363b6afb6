package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// secretMask replaces a secret in output.
const secretMask = "***"

// Secret is a text that is not shown: printing it in any form, JSON and logs show "***". The zero
// value is the absence of a secret.
type Secret struct {
	text *string // a pointer, since fmt prints the fields of what is unexported without asking
}

var (
	_ fmt.Formatter  = Secret{}
	_ slog.LogValuer = Secret{}
)

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal compares with a text that a caller sent, in a time that reveals nothing about the secret,
// its length included.
func (s Secret) Equal(text string) bool {
	want, got := sha256.Sum256([]byte(s.Reveal())), sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && s.text != nil
}

// Format implements fmt.Formatter: every verb prints the mask.
func (Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, secretMask) }

// String returns the mask.
func (Secret) String() string { return secretMask }

// MarshalText returns the mask, in JSON too.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretMask), nil }

// LogValue returns the mask.
func (Secret) LogValue() slog.Value { return slog.StringValue(secretMask) }
