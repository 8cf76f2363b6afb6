package certs

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the TLS settings of a service.
type Options struct {
	What       string   // whose certificate it is, in the log: "the API", "the node interface"
	Cert, Key  string   // PEM files: the server's certificate with its chain, and its private key
	MinVersion string   // "1.2" or "1.3"; "": 1.2
	Protocols  []string // offered by ALPN; nil: HTTP/2 and HTTP/1.1
	Clients    *Clients // accepted client certificates; nil: none are requested
	Logger     *slog.Logger
	Now        func() time.Time // nil: time.Now
}

// Server is the server's side of TLS. It follows its files while Run runs.
type Server struct {
	opts       Options
	minVersion uint16
	files      *reloadedFiles
	keyPair    atomic.Pointer[tls.Certificate]

	configMu    sync.Mutex // guards config and configTrust
	config      *tls.Config
	configTrust *trust // whose config is
}

// suites are those of TLS 1.2 with forward secrecy. Those of TLS 1.3 all have it.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Open reads the pair of a server. A file that cannot be used is an error; a date that has
// passed or is to come is an alarm.
func Open(o Options) (*Server, error) {
	version, err := ParseVersion(o.MinVersion)
	if err != nil {
		return nil, err
	}
	if o.Protocols == nil {
		o.Protocols = []string{"h2", "http/1.1"}
	}
	if o.Cert == "" || o.Key == "" {
		return nil, fmt.Errorf("certificate of %s: HTTPS requires a certificate file and a private key file", o.What)
	}
	s := &Server{opts: o, minVersion: version, files: newFiles("the certificate of "+o.What, o.Logger, o.Now, o.Cert,
		o.Key)}
	s.files.activate, s.files.dateWarnings = s.activate, s.dateWarnings
	if err := s.files.loadFirst(); err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", o.What, err)
	}
	return s, nil
}

// Config returns the configuration for a listener or http.Server. It never changes; what it refers
// to does.
func (s *Server) Config() *tls.Config {
	c := s.baseConfig()
	if s.opts.Clients != nil {
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.currentConfig(), nil }
	}
	return c
}

func (s *Server) baseConfig() *tls.Config {
	return &tls.Config{
		MinVersion: s.minVersion, CipherSuites: suites, NextProtos: s.opts.Protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.keyPair.Load(), nil },
	}
}

// currentConfig returns the config for the current authorities.
func (s *Server) currentConfig() *tls.Config {
	t := s.opts.Clients.trust.Load()
	s.configMu.Lock()
	defer s.configMu.Unlock()
	if s.configTrust != t {
		c := s.baseConfig()
		c.ClientAuth, c.ClientCAs, c.VerifyConnection = tls.VerifyClientCertIfGiven, t.roots,
			s.opts.Clients.verifyConnection
		s.config, s.configTrust = c, t
	}
	return s.config
}

// Run follows the files until ctx ends.
func (s *Server) Run(ctx context.Context) { s.files.run(ctx) }

// Alarm returns the problem that an operator has to fix; "" for none.
func (s *Server) Alarm() string { return s.files.alarm() }

// Expired reports whether the validity of the certificate has ended, so that clients refuse it.
func (s *Server) Expired() bool { return s.files.now().After(s.keyPair.Load().Leaf.NotAfter) }

func (s *Server) activate(texts [][]byte) error {
	pair, err := parsePair(s.opts, texts[0], texts[1])
	if err == nil {
		s.keyPair.Store(pair)
	}
	return err
}

func (s *Server) dateWarnings(now time.Time) []string {
	leaf, path := s.keyPair.Load().Leaf, s.opts.Cert
	out := dateWarnings(leaf, path, now)
	if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs) == 0 {
		out = append(out,
			fmt.Sprintf("The certificate %s in %s names no host (subjectAltName), so that clients refuse it",
				describeCertificate(leaf), path))
	}
	usages := leaf.ExtKeyUsage
	if len(usages) > 0 && !slices.Contains(usages, x509.ExtKeyUsageServerAuth) &&
		!slices.Contains(usages, x509.ExtKeyUsageAny) {
		out = append(out,
			fmt.Sprintf(
				"The certificate %s in %s is not meant for servers (extendedKeyUsage), so that clients refuse it",
				describeCertificate(leaf), path))
	}
	return out
}

// parsePair parses a pair of two PEM texts.
func parsePair(o Options, cert, key []byte) (*tls.Certificate, error) {
	chain, err := certificatesIn(o.Cert, cert)
	if err != nil {
		return nil, err
	}
	block, err := keyIn(o.Key, key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, pem.EncodeToMemory(block))
	if err == nil {
		pair.Leaf = chain[0]
		return &pair, nil
	}
	public := publicKeyOf(block)
	if public == nil {
		return nil, fmt.Errorf("the private key in %s cannot be used: %w", o.Key, err)
	}
	whose := slices.IndexFunc(chain, func(c *x509.Certificate) bool {
		of, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		return ok && of.Equal(public)
	})
	switch {
	case whose < 0:
		return nil, fmt.Errorf("the private key in %s does not belong to the certificate in %s", o.Key, o.Cert)
	case whose > 0:
		return nil,
			fmt.Errorf(
				"the private key in %s belongs to certificate %d in %s: the server's certificate must be the first one",
				o.Key, whose+1, o.Cert)
	}
	return nil, fmt.Errorf("the certificate in %s and the private key in %s cannot be used: %w", o.Cert, o.Key, err)
}

// ParseVersion reads the minimum version of TLS that a service accepts: 1.2 or 1.3, with or
// without "TLS" before it; "" is 1.2.
func ParseVersion(text string) (uint16, error) {
	switch strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "tls"), "v") {
	case "", "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	case "1.0", "1.1", "1":
		return 0, fmt.Errorf("TLS %s is insecure and not supported: want 1.2 or 1.3", text)
	}
	return 0, fmt.Errorf("unsupported TLS version %.20q: want 1.2 or 1.3", text)
}
