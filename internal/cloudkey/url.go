package cloudkey

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Limits of what a cloud announces and a node stores.
const (
	MaxURLs     = 16
	MaxURLBytes = 512
	MaxCABytes  = 64 << 10
)

// CanonicalURL returns the form of a controller's URL in which URLs are compared and signed: lower case, with the
// port, without a slash at its end.
func CanonicalURL(text string) (string, error) {
	text = strings.TrimSpace(text)
	u, err := url.Parse(text)
	switch {
	case len(text) > MaxURLBytes:
		return "", fmt.Errorf("invalid controller URL of %d bytes: want at most %d", len(text), MaxURLBytes)
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.Opaque != "":
		return "", fmt.Errorf("invalid controller URL %q: want one such as https://build.example:8090", text)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", fmt.Errorf("invalid controller URL %q: want no user, query or fragment", u.Redacted())
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	out := url.URL{
		Scheme: u.Scheme, Host: net.JoinHostPort(strings.ToLower(u.Hostname()), port),
		Path: strings.TrimRight(u.Path, "/"),
	}
	if text = out.String(); len(text) > MaxURLBytes {
		return "", fmt.Errorf("invalid controller URL of %d bytes: want at most %d", len(text), MaxURLBytes)
	}
	return text, nil
}

// CanonicalURLs returns the canonical forms of a list without repetitions, in the same order.
func CanonicalURLs(list []string) ([]string, error) {
	var out []string
	for _, text := range list {
		one, err := CanonicalURL(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	if len(out) > MaxURLs {
		return nil, fmt.Errorf("%d controller URLs: want at most %d", len(out), MaxURLs)
	}
	return out, nil
}

// CheckCA reports why a text is not a list of certificates in PEM form; "" is an empty list.
func CheckCA(text string) error {
	if len(text) > MaxCABytes {
		return fmt.Errorf("certificate authorities of %d bytes: want at most %d", len(text), MaxCABytes)
	}
	rest := []byte(text)
	for count := 0; ; count++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && (count == 0 && text != "" || len(strings.TrimSpace(string(rest))) > 0):
			return errors.New("certificate authorities: want certificates in PEM form")
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return fmt.Errorf("certificate authorities: found %q, want certificates only", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate authorities: %w", err)
		}
	}
}
