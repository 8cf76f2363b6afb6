package certs

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Headers of a reverse proxy that has requested its client's certificate, as ingress-nginx sends
// them.
const (
	VerifyHeader = "Ssl-Client-Verify" // SUCCESS, NONE or FAILED:reason
	CertHeader   = "Ssl-Client-Cert"   // the certificate in PEM form, URL-encoded
)

// maxForwardedBytes is the longest certificate in a header, in bytes.
const maxForwardedBytes = 16 << 10

var (
	errHeaderTwice      = errors.New("a certificate header occurs twice")
	errNoVerifyHeader   = errors.New("the header " + CertHeader + " comes without " + VerifyHeader)
	errNoForwarded      = errors.New("the proxy reports a verified certificate, but its certificate header is missing")
	errProxyRefused     = errors.New("the proxy could not verify the client certificate")
	errForwardedTooLong = fmt.Errorf("the header %s is longer than %d bytes", CertHeader, maxForwardedBytes)
	errForwardedForm    = errors.New("the header " + CertHeader + " is not one URL-encoded certificate in PEM form")
)

// forwardedCertificate reads the headers of a proxy: the text of the certificate, "" when its client has sent
// none, and whether the request came by a proxy that requests certificates at all. Then the
// connection's own certificate is the proxy's and does not identify the caller.
func forwardedCertificate(h http.Header) (text string, proxied bool, err error) {
	verified, certs := h[VerifyHeader], h[CertHeader]
	switch {
	case len(verified) > 1 || len(certs) > 1:
		return "", true, errHeaderTwice
	case len(verified) == 0 && len(certs) == 0:
		return "", false, nil
	case len(verified) == 0:
		return "", true, errNoVerifyHeader
	case verified[0] == "NONE" || verified[0] == "":
		return "", true, nil
	case verified[0] != "SUCCESS":
		return "", true, errProxyRefused
	case len(certs) == 0 || certs[0] == "":
		return "", true, errNoForwarded
	case len(certs[0]) > maxForwardedBytes:
		return "", true, errForwardedTooLong
	}
	return certs[0], true, nil
}

// decodeForwarded reads the value of the header: one certificate and nothing else.
func decodeForwarded(text string) (*x509.Certificate, error) {
	decoded, err := url.PathUnescape(text) // a plus is one: base64 has them
	if err != nil {
		return nil, errForwardedForm
	}
	decoded = strings.TrimSpace(decoded)
	b, rest := pem.Decode([]byte(decoded))
	if b == nil || !strings.HasPrefix(decoded, "-----BEGIN ") || b.Type != blockCertificate || len(rest) > 0 {
		return nil, errForwardedForm
	}
	cert, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForwardedForm, err)
	}
	return cert, nil
}
