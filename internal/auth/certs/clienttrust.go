package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// ClientTrust is what a service trusts in the servers that it calls. The zero value trusts the
// authorities of the system.
type ClientTrust struct {
	CA   string // PEM file: trusted instead of the system's authorities
	Skip bool   // skip verification: an attacker on the network path can read and change the traffic
}

// Config returns the TLS configuration of a client.
func (o ClientTrust) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Skip} //nolint:gosec // as the operator asks
	if o.CA == "" {
		return c, nil
	}
	_, text, err := readFile(o.CA)
	if err != nil {
		return nil, fmt.Errorf("read CA file: %w", err)
	}
	authorities, err := certificatesIn(o.CA, text)
	if err != nil {
		return nil, fmt.Errorf("read CA file: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	for _, a := range authorities {
		c.RootCAs.AddCert(a)
	}
	return c, nil
}
