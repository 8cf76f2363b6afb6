package client

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
)

// maxKeyText bounds the text of a private key, in bytes; one of 4096 bits takes 3300.
const maxKeyText = 64 << 10

// APIKey is the credentials of an API key: its ID and the private key, which is never sent. It keeps one
// session per service, which all clients and goroutines share. The session is opened at the first request, and
// renewed before it expires or when the service refuses it.
type APIKey struct {
	id      string
	private *rsa.PrivateKey

	mu       sync.Mutex
	sessions map[string]*session // address -> session
}

var _ Renewable = (*APIKey)(nil)

// ParseAPIKey makes credentials from a key's ID and its private key: the single line that the key API returns
// (base64 of PKCS#1 DER), or a PEM file (PKCS#1 or PKCS#8).
func ParseAPIKey(id, private string) (*APIKey, error) {
	if id == "" {
		return nil, errors.New("API key: the ID is empty")
	}
	key, err := parsePrivate(private)
	if err != nil {
		return nil, fmt.Errorf("API key %q: %w", id, err)
	}
	return &APIKey{id: id, private: key, sessions: map[string]*session{}}, nil
}

// LoadAPIKey is ParseAPIKey for a private key in a file. It refuses a file that other users may read or
// change.
func LoadAPIKey(id, file string) (*APIKey, error) {
	text, err := readPrivate(file)
	if err != nil {
		return nil, fmt.Errorf("API key %q: %w", id, err)
	}
	return ParseAPIKey(id, text)
}

func readPrivate(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || (info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0) {
		return "", errors.Join(err, fmt.Errorf("%s is accessible by other users: run chmod 600", file))
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKeyText+1))
	return string(raw), err
}

// parsePrivate reads a private key. Its errors contain nothing of the text.
func parsePrivate(text string) (*rsa.PrivateKey, error) {
	if len(text) > maxKeyText {
		return nil, fmt.Errorf("the private key is longer than %d bytes", maxKeyText)
	}
	der, kind := []byte(nil), ""
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der, kind = block.Bytes, block.Type
		if strings.Contains(kind, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
			return nil,
				errors.New("the private key is encrypted with a password: remove the password (openssl rsa -in FILE)")
		}
	} else {
		var err error
		if der, err = decode64(strings.Join(strings.Fields(text), "")); err != nil || len(der) == 0 {
			return nil, errors.New("the private key is neither one line of base64 nor a PEM file")
		}
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if key, ok := parsed.(*rsa.PrivateKey); ok {
		return key, nil
	}
	switch {
	case err == nil:
		return nil, errors.New("the private key is not an RSA key")
	case strings.Contains(kind, "PUBLIC") || isPublic(der):
		return nil, errors.New("this is a public key: want the private key")
	case strings.Contains(kind, "CERTIFICATE"):
		return nil, errors.New("this is a certificate: want the private key")
	}
	return nil, errors.New("the private key is not in PKCS#1 or PKCS#8 form, or is damaged")
}

func isPublic(der []byte) bool {
	_, err := x509.ParsePKIXPublicKey(der)
	return err == nil
}

// decode64 reads base64 of either alphabet, padded or not.
func decode64(text string) ([]byte, error) {
	coding := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		coding = base64.RawURLEncoding
	}
	return coding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
}

// ID returns the key's id.
func (k *APIKey) ID() string { return k.id }

// Authorize implements Credentials. It makes a handshake with the service unless a valid session exists.
func (k *APIKey) Authorize(r *http.Request, to Target) error {
	value, err := k.session(to).value(r.Context(), handshake{k, to}.shake)
	if err != nil {
		return err
	}
	r.Header.Set(authorization, bearerScheme+value.reveal())
	return nil
}

// Renew implements Renewable: it drops a refused session.
func (k *APIKey) Renew(r *http.Request, to Target) bool {
	value, ok := strings.CutPrefix(r.Header.Get(authorization), bearerScheme)
	if ok {
		k.session(to).refused(value)
	}
	return ok
}

// session returns the key's session with a service, which may not be open yet.
func (k *APIKey) session(to Target) *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sessions[to.Address]
	if s == nil {
		s = &session{life: sessionLife}
		k.sessions[to.Address] = s
	}
	return s
}

// String names the key.
func (k *APIKey) String() string { return fmt.Sprintf("API key %q", k.id) }

// Format names the key, whatever the verb.
func (k *APIKey) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, k.String()) }

// LogValue names the key.
func (k *APIKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
