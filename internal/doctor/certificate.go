package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Times before the end of a certificate.
const (
	certificateWarning = 30 * 24 * time.Hour
	certificateFailure = 3 * 24 * time.Hour
)

// maxCertificateBytes bounds a file of certificates, in bytes.
const maxCertificateBytes = 1 << 20

// CertificateFile returns the check of the first certificate in a PEM file. setting names the file.
func CertificateFile(name, path, setting string) Check {
	return Check{name, func(context.Context) Finding {
		certificate, err := readCertificate(path)
		if err != nil {
			return Finding{Failed, err.Error(), "correct the setting " + setting}
		}
		return evaluateCertificate(certificate, time.Now(), false)
	}}
}

func readCertificate(path string) (*x509.Certificate, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxCertificateBytes))
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New(path + " has no certificate in PEM form")
}

// evaluateCertificate evaluates a certificate at a time; unverified: its signature was not checked.
func evaluateCertificate(c *x509.Certificate, now time.Time, unverified bool) Finding {
	const remedy = "renew it; the services read changed files without a restart"
	left := c.NotAfter.Sub(now)
	ends := c.NotAfter.UTC().Format(time.DateOnly)
	name := c.Subject.CommonName
	if name == "" && len(c.DNSNames) > 0 {
		name = c.DNSNames[0]
	}
	switch {
	case now.Before(c.NotBefore):
		return Finding{
			Failed, fmt.Sprintf("%q is valid only from %s", name, c.NotBefore.UTC().Format(time.RFC3339)),
			"check the clock of this machine",
		}
	case left <= 0:
		return Finding{Failed, fmt.Sprintf("%q expired on %s", name, ends), remedy}
	case left < certificateFailure:
		return Finding{Failed, fmt.Sprintf("%q expires on %s", name, ends), remedy}
	case left < certificateWarning:
		return Finding{Warning, fmt.Sprintf("%q expires on %s", name, ends), remedy}
	case unverified:
		return Finding{
			Warning, fmt.Sprintf("%q is valid until %s, but verification is off", name, ends),
			"trust its CA (--ca-cert) instead of --skip-tls-verification",
		}
	}
	return Finding{Outcome: OK, Detail: fmt.Sprintf("%q is valid until %s", name, ends)}
}
