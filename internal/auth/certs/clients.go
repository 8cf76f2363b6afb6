package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// ClientOptions are the settings for client certificates.
type ClientOptions struct {
	What   string   // whose callers these are, in the log: "the API", "the node interface"
	CA     string   // PEM file with the certificates of the authorities
	CRLs   []string // files with revocation lists of these authorities, PEM or DER
	Proxy  Proxy
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
}

// Proxy is whether certificates may come in headers.
type Proxy int

// The choices.
const (
	Direct      Proxy = iota // headers are ignored
	BehindProxy              // a reverse proxy is trusted; nothing else must reach the port
)

// certSubject is the subject of a certificate.
type certSubject struct {
	name   string   // the CN
	groups []string // the OUs, or all Os without an OU
}

// Clients authenticates callers by their certificates. It follows its files while Run runs. A nil
// one authenticates no caller.
type Clients struct {
	opts  ClientOptions
	files *reloadedFiles
	trust atomic.Pointer[trust]
}

// OpenClients reads authorities and revocation lists. A file that cannot be used is an error.
func OpenClients(o ClientOptions) (*Clients, error) {
	if o.CA == "" {
		return nil, fmt.Errorf("client certificates of %s: a CA file to verify them is required", o.What)
	}
	c := &Clients{opts: o, files: newFiles("the authorities of "+o.What, o.Logger, o.Now,
		append([]string{o.CA}, o.CRLs...)...)}
	c.files.activate, c.files.dateWarnings = c.activate, c.dateWarnings
	if err := c.files.loadFirst(); err != nil {
		return nil, fmt.Errorf("client certificates of %s: %w", o.What, err)
	}
	return c, nil
}

// Run follows the files until ctx ends. It is not called for a nil one.
func (c *Clients) Run(ctx context.Context) { c.files.run(ctx) }

// Alarm returns the problem that an operator has to fix; "" for none.
func (c *Clients) Alarm() string { return c.files.alarm() }

// Identity returns the caller of a request, as required by auth.Authenticator: the groups must not
// be changed, and ok is false when the request has no certificate. The error is
// farm.CodeUnauthenticated, for a certificate that is not accepted; its cause is for the log. A
// certificate is verified with the current files, on long-lived connections too.
func (c *Clients) Identity(r *http.Request) (name string, groups []string, ok bool, err error) {
	who, ok, err := c.subjectOf(r)
	return who.name, who.groups, ok, err
}

func (c *Clients) subjectOf(r *http.Request) (certSubject, bool, error) {
	if c == nil {
		return certSubject{}, false, nil
	}
	if c.opts.Proxy == BehindProxy {
		if text, proxied, err := forwardedCertificate(r.Header); proxied || err != nil {
			return c.forwardedSubject(text, err)
		}
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return certSubject{}, false, nil
	}
	who, err := c.verifyChain(r.TLS.PeerCertificates)
	if err != nil {
		return certSubject{}, false, certificateRefusal(err)
	}
	return who, true, nil
}

// forwardedSubject returns the subject of the certificate that a proxy has passed on: text is "" when its
// client has none.
func (c *Clients) forwardedSubject(text string, err error) (certSubject, bool, error) {
	if err == nil && text == "" {
		return certSubject{}, false, nil
	}
	var who certSubject
	if err == nil {
		who, err = c.verifyForwarded(text)
	}
	if err != nil {
		return certSubject{}, false,
			certificateRefusal(fmt.Errorf("client certificate forwarded by the proxy: %w", err))
	}
	return who, true, nil
}

func certificateRefusal(cause error) error {
	return &farm.Error{Code: farm.CodeUnauthenticated, Message: "Authentication Required", Err: cause}
}

// verifyChain verifies the chain that a client has sent in its handshake: its own certificate first.
func (c *Clients) verifyChain(chain []*x509.Certificate) (certSubject, error) {
	t, now := c.trust.Load(), c.files.now()
	digest := sha256.Sum256(chain[0].Raw)
	if who, ok := t.cachedResult(digest, now); ok {
		return who, nil
	}
	v, err := t.verifyClient(chain[0], chain[1:], now)
	if err == nil {
		t.cacheResult(digest, v)
	}
	return v.subject, err
}

// verifyForwarded verifies a certificate that a proxy has passed on.
func (c *Clients) verifyForwarded(text string) (certSubject, error) {
	t, now := c.trust.Load(), c.files.now()
	digest := sha256.Sum256([]byte(text))
	if who, ok := t.cachedResult(digest, now); ok {
		return who, nil
	}
	leaf, err := decodeForwarded(text)
	if err != nil {
		return certSubject{}, err
	}
	v, err := t.verifyClient(leaf, nil, now)
	if err == nil {
		t.cacheResult(digest, v)
	}
	return v.subject, err
}

// verifyConnection ends the handshake of a client whose certificate is not accepted.
func (c *Clients) verifyConnection(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	_, err := c.verifyChain(s.PeerCertificates)
	return err
}

var errNoAuthority = errors.New("the certificate is not a CA (basicConstraints)")

func (c *Clients) activate(texts [][]byte) error {
	authorities, err := certificatesIn(c.opts.CA, texts[0])
	if err != nil {
		return err
	}
	for _, a := range authorities {
		if a.Version > 2 && (!a.BasicConstraintsValid || !a.IsCA) {
			return fmt.Errorf("the certificate %s in %s cannot issue client certificates: %w", describeCertificate(a),
				c.opts.CA,
				errNoAuthority)
		}
	}
	var lists []*crl
	for i, path := range c.opts.CRLs {
		more, err := crlsIn(path, texts[i+1], authorities)
		if err != nil {
			return err
		}
		lists = append(lists, more...)
	}
	c.trust.Store(newTrust(authorities, lists))
	return nil
}

func (c *Clients) dateWarnings(now time.Time) (out []string) {
	t := c.trust.Load()
	for _, a := range t.authorities {
		out = append(out, dateWarnings(a, c.opts.CA, now)...)
	}
	for _, l := range t.crls {
		out = append(out, l.dateWarnings(now)...)
	}
	return out
}
