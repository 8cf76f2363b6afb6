package controllers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"
)

// Trust has the certificate authorities for connections to the controllers and the registry: those of the node's owner,
// and those that the cloud announces.
type Trust struct {
	base *tls.Config

	mu        sync.Mutex // guards the field below
	announced string     // PEM
}

// NewTrust returns the authorities of a configuration and the announced ones.
func NewTrust(base *tls.Config, announced string) *Trust {
	if base == nil {
		base = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &Trust{base: base, announced: announced}
}

// SetAnnounced replaces the announced authorities for new connections.
func (t *Trust) SetAnnounced(pem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announced = pem
}

// Config returns the present configuration.
func (t *Trust) Config() *tls.Config {
	t.mu.Lock()
	announced := t.announced
	t.mu.Unlock()
	config := t.base.Clone()
	if announced == "" {
		return config
	}
	roots := config.RootCAs
	if roots != nil {
		roots = roots.Clone()
	} else if system, err := x509.SystemCertPool(); err == nil {
		roots = system
	} else {
		roots = x509.NewCertPool() // a system without authorities
	}
	roots.AppendCertsFromPEM([]byte(announced))
	config.RootCAs = roots
	return config
}

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	keepAlive        = 15 * time.Second
)

// DialTLS opens a connection with the present configuration. It has the form of http.Transport.DialTLSContext.
func (t *Trust) DialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := t.Config()
	config.ServerName = host
	secure := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}
