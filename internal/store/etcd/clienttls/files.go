// Package clienttls reads the certificates with which a controller and its etcd cluster authenticate each other.
//
// It opens no connection and checks no member.
//
// Invariant: a configuration that it returns never falls back to a connection without encryption.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// Files are the PEM files with which a controller and its etcd cluster authenticate each other. All may be empty.
type Files struct {
	CA   string // authorities of the members' certificates; empty: those of the system
	Cert string // certificate of the client, with its chain
	Key  string // its private key
}

// maxPEMBytes bounds a file with certificates or a key.
const maxPEMBytes = 1 << 20

// TLS returns the configuration of connections to endpoints; nil when none of them is encrypted. The
// certificate and its key are read again for every connection, the authorities once.
func (f Files) TLS(endpoints []string) (*tls.Config, error) {
	encrypted, plain := splitByScheme(endpoints)
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("the client certificate and its private key are needed together: give both or none")
	case f != (Files{}) && len(plain) > 0:
		return nil, fmt.Errorf("etcd endpoint %s is not encrypted, but certificates are configured: want https://",
			plain[0])
	case len(encrypted) > 0 && len(plain) > 0:
		return nil, fmt.Errorf("etcd endpoint %s is encrypted and %s is not: want https:// for all", encrypted[0],
			plain[0])
	case len(encrypted) == 0:
		return nil, nil //nolint:nilnil // connections are plain
	}

	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pool, err := readAuthorities(f.CA)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	if f.Cert == "" {
		return cfg, nil
	}
	if _, err := f.keyPair(); err != nil { // a wrong file is an error now, not a failed connection later
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.keyPair() }
	return cfg, nil
}

// splitByScheme returns the encrypted endpoints and the others.
func splitByScheme(endpoints []string) (encrypted, plain []string) {
	for _, endpoint := range endpoints {
		if at, err := url.Parse(endpoint); err == nil && at.Scheme == "https" {
			encrypted = append(encrypted, endpoint)
		} else {
			plain = append(plain, endpoint)
		}
	}
	return encrypted, plain
}

func (f Files) keyPair() (*tls.Certificate, error) {
	cert, err := readPEM(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("read the client certificate for etcd: %w", err)
	}
	key, err := readPEM(f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the client key for etcd: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client certificate for etcd %s with key %s: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	data, err := readPEM(path)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of etcd: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM form: want the authorities of etcd's certificates", path)
	}
	return pool, nil
}

// readPEM reads a file of limited size.
func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPEMBytes {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxPEMBytes)
	}
	return os.ReadFile(path)
}
