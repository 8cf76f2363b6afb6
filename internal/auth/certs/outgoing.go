package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// ClientTrust says whom a service trusts that it calls. The zero value trusts the authorities
// of the system.
type ClientTrust struct {
	CA   string // PEM file: trusted instead of the system's authorities
	Skip bool   // believe whoever answers: whoever is on the way can read and change what is said
}

// Config makes what a client needs.
func (o ClientTrust) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Skip} //nolint:gosec // as the operator asks
	if o.CA == "" {
		return c, nil
	}
	_, text, err := read(o.CA)
	if err != nil {
		return nil, fmt.Errorf("authorities to trust: %w", err)
	}
	authorities, err := certificatesIn(o.CA, text)
	if err != nil {
		return nil, fmt.Errorf("authorities to trust: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	for _, a := range authorities {
		c.RootCAs.AddCert(a)
	}
	return c, nil
}
