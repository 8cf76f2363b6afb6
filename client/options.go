package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Defaults of Options.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultRetries   = 3
	DefaultMaxAnswer = 512 << 20 // enough for a list of 100,000 instances
)

// NoRetries is the value of Options.Retries for a client that tries once.
const NoRetries = -1

// Options configures the connection to a service. The zero value is for a service without credentials.
type Options struct {
	Credentials Credentials   // nil: none are sent
	TLS         TLS           // for https addresses
	Timeout     time.Duration // timeout of one try, streams aside; 0: DefaultTimeout
	Retries     int           // retries of repeatable calls; 0: DefaultRetries
	MaxAnswer   int64         // maximum bytes of a response, streams and files aside; 0: DefaultMaxAnswer
	UserAgent   string        // "": the name of this package
	// Transport replaces the client's default transport, including its TLS settings; nil: the default.
	Transport http.RoundTripper
}

// TLS configures the trusted authorities and the client certificate. The zero value trusts the system's
// authorities.
type TLS struct {
	CAFile     string // PEM: trusted instead of the system's authorities
	CertFile   string // PEM: the client's own certificate, with KeyFile
	KeyFile    string // PEM: the private key of CertFile
	ServerName string // expected instead of the address's host
	SkipVerify bool   // trust any server: only for tests
}

// Config returns the settings for package crypto/tls.
func (t TLS) Config() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.SkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // as requested
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("CA file %s has no certificate in PEM form", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("client certificate: certificate and key are both required")
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// transport creates the connections of a client.
func (o Options) transport() (http.RoundTripper, error) {
	if o.Transport != nil {
		return o.Transport, nil
	}
	config, err := o.TLS.Config()
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       time.Minute,
		ExpectContinueTimeout: time.Second,
	}, nil
}
