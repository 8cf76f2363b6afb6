package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Sizes of keys, in bits.
const (
	generatedKeyBits = 2048 // of pairs made here
	minKeyBits       = 2048
	maxKeyBits       = 4096
)

// maxPublicKeyText bounds the text of a public key, in bytes; one of 4096 bits takes 736.
const maxPublicKeyText = 4096

// publicField is the parameter of a public key, as refusals name it.
const publicField = "publicKey"

// ParsePublicKey parses a public key that a client made: PKIX DER in base64 of either alphabet. It
// returns the key and its DER. Errors are sentences for the client.
func ParsePublicKey(text string) (*rsa.PublicKey, []byte, error) {
	text = strings.TrimSpace(text)
	switch {
	case len(text) > maxPublicKeyText:
		return nil, nil, farm.Invalid(publicField, "public key is longer than %d bytes", maxPublicKeyText)
	case strings.Contains(text, "-----"):
		return nil,
			nil, farm.Invalid(publicField, "remove the BEGIN and END lines of the PEM form, and all line breaks")
	case strings.ContainsAny(text, "\r\n"):
		return nil, nil, farm.Invalid(publicField, "the base64 text must be a single line")
	}
	der, err := decodeBase64(text)
	if err != nil {
		return nil, nil, farm.Invalid(publicField, "public key is not base64")
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		if _, err := x509.ParsePKCS1PublicKey(der); err == nil {
			return nil, nil, farm.Invalid(publicField,
				"public key has the form PKCS#1: want PKIX (openssl rsa -RSAPublicKey_in -pubout -outform DER)")
		}
		return nil, nil, farm.Invalid(publicField, "public key is not in PKIX DER form")
	}
	key, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, nil, farm.Invalid(publicField, "public key must be an RSA key of %d to %d bits", minKeyBits,
			maxKeyBits)
	}
	return key, der, checkPublicKey(key)
}

// checkPublicKey reports whether secrets can be encrypted with a key, by doing it once.
func checkPublicKey(key *rsa.PublicKey) error {
	if bits := key.N.BitLen(); bits < minKeyBits || bits > maxKeyBits {
		return farm.Invalid(publicField, "public key has %d bits: want an RSA key of %d to %d bits", bits, minKeyBits,
			maxKeyBits)
	}
	if _, err := encrypt(key, "x"); err != nil {
		return farm.Invalid(publicField, "public key cannot encrypt; create a new key pair")
	}
	return nil
}

// encrypt returns the standard base64 of a text that only the private key's holder can read.
func encrypt(key *rsa.PublicKey, text string) (string, error) {
	sealed, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, key, []byte(text), nil)
	if err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// generateKeyPair makes a pair of keys: the public one in PKIX DER, the private one as the single
// line that clients expect, standard base64 of PKCS#1 DER.
func generateKeyPair() (public []byte, private Secret, err error) {
	key, err := rsa.GenerateKey(rand.Reader, generatedKeyBits)
	if err != nil {
		return nil, Secret{}, fmt.Errorf("create key pair: %w", err)
	}
	if public, err = x509.MarshalPKIXPublicKey(&key.PublicKey); err != nil {
		return nil, Secret{}, fmt.Errorf("create key pair: %w", err)
	}
	return public, NewSecret(base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PrivateKey(key))), nil
}

// parseDER parses the public key of a record, which was validated when the record was made.
func parseDER(der []byte) (*rsa.PublicKey, error) {
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("the stored public key of the API key cannot be parsed")
	}
	key, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, errors.New("the stored public key of the API key is not an RSA key")
	}
	return key, nil
}
