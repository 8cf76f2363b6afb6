package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// Options are the options --skip-tls-verification, --client-cert, --client-key and --ca-cert of a client.
type Options struct {
	SkipVerify bool   // do not check the registry's certificate
	CertFile   string // PEM file of the client certificate
	KeyFile    string // PEM file of its key
	CAFile     string // PEM file of authorities to trust instead of the system's
}

// Config reads the files that the options name.
func Config(o Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.SkipVerify} //nolint:gosec // an option of the caller
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, fmt.Errorf("a client certificate requires a certificate file and a key file")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		config.GetClientCertificate = reloadingCertificate(o, pair)
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s has no certificate in PEM form", o.CAFile)
		}
	}
	return config, nil
}

// reloadingCertificate returns the certificate in the files at the time of a connection, so that one that is replaced
// before it expires needs no restart. It returns the last good one when the files do not match.
func reloadingCertificate(
	o Options, pair tls.Certificate,
) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(&pair)
	return func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if fresh, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err == nil {
			last.Store(&fresh)
		}
		mine := last.Load()
		if asked.SupportsCertificate(mine) != nil {
			return &tls.Certificate{}, nil // none, as is usual
		}
		return mine, nil
	}
}
