package oidc

import (
	"fmt"
	"io"
	"log/slog"
)

const masked = "***"

// Secret is a text that no print, log or JSON shows. The zero value is no secret.
type Secret struct {
	text *string // a pointer, since fmt prints fields of what is unexported without asking
}

var (
	_ fmt.Formatter  = Secret{}
	_ slog.LogValuer = Secret{}
)

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{&text} }

func (s Secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format prints the mask, whatever the verb.
func (Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, masked) }

// String gives the mask.
func (Secret) String() string { return masked }

// MarshalText gives the mask, in JSON too.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// LogValue gives the mask.
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }
