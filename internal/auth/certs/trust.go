package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of the subject of a certificate.
const (
	maxNameBytes = 256 // bytes
	maxGroups    = 100
	maxVerified  = 10_000 // certificates whose verification is remembered
)

// trust is a set of authorities and revocation lists. It never changes but for its cache: a change
// of the files makes a new one.
type trust struct {
	authorities []*x509.Certificate
	crls        []*crl
	roots       *x509.CertPool
	revoked     map[string]map[string]bool // name of the issuer (DER) -> serial number -> true

	mu       sync.RWMutex
	verified map[[sha256.Size]byte]verifyResult // by a digest of what was shown
}

// verifyResult is a successful verification; it is valid as long as its chain is.
type verifyResult struct {
	subject               certSubject
	validFrom, validUntil time.Time
}

func newTrust(authorities []*x509.Certificate, lists []*crl) *trust {
	t := &trust{
		authorities: authorities, crls: lists, roots: x509.NewCertPool(),
		revoked: map[string]map[string]bool{}, verified: map[[sha256.Size]byte]verifyResult{},
	}
	for _, a := range authorities {
		t.roots.AddCert(a)
	}
	for _, l := range lists {
		serials := t.revoked[string(l.issuer)]
		if serials == nil {
			serials = map[string]bool{}
			t.revoked[string(l.issuer)] = serials
		}
		for _, s := range l.revokedSerials {
			serials[s] = true
		}
	}
	return t
}

// cachedResult returns the earlier result for the same certificate, if it is still valid.
func (t *trust) cachedResult(digest [sha256.Size]byte, now time.Time) (certSubject, bool) {
	t.mu.RLock()
	v, ok := t.verified[digest]
	t.mu.RUnlock()
	return v.subject, ok && !now.Before(v.validFrom) && !now.After(v.validUntil)
}

// cacheResult caches a success. The cache is bounded, and refusals are not cached: so no client can
// fill it with what no authority has signed.
func (t *trust) cacheResult(digest [sha256.Size]byte, v verifyResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verified) >= maxVerified {
		clear(t.verified)
	}
	t.verified[digest] = v
}

var (
	errRevoked = errors.New("the client certificate is revoked")
	errName    = errors.New(
		"the common name (CN) of the client certificate is empty, too long or has unprintable characters")
	errGroups = fmt.Errorf(
		"the client certificate has more than %d groups, or a group that is too long or has unprintable characters",
		maxGroups)
)

// verifyClient verifies a client's certificate against authorities and revocation lists.
func (t *trust) verifyClient(leaf *x509.Certificate, between []*x509.Certificate, now time.Time) (verifyResult, error) {
	pool := x509.NewCertPool()
	for _, c := range between {
		pool.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: pool, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return verifyResult{}, fmt.Errorf("invalid client certificate: %w", err)
	}
	i := slices.IndexFunc(chains,
		func(chain []*x509.Certificate) bool { return !slices.ContainsFunc(chain, t.isRevoked) })
	if i < 0 {
		return verifyResult{}, errRevoked
	}
	who, err := subjectOf(leaf)
	if err != nil {
		return verifyResult{}, err
	}
	v := verifyResult{subject: who, validFrom: leaf.NotBefore, validUntil: leaf.NotAfter}
	for _, c := range chains[i] {
		if c.NotBefore.After(v.validFrom) {
			v.validFrom = c.NotBefore
		}
		if c.NotAfter.Before(v.validUntil) {
			v.validUntil = c.NotAfter
		}
	}
	return v, nil
}

func (t *trust) isRevoked(c *x509.Certificate) bool {
	return t.revoked[string(c.RawIssuer)][string(c.SerialNumber.Bytes())]
}

// subjectOf reads the subject of a certificate: the user is the CN; the groups are the OUs, or all Os
// without an OU.
func subjectOf(c *x509.Certificate) (certSubject, error) {
	if !isPlainName(c.Subject.CommonName) {
		return certSubject{}, errName
	}
	groups := c.Subject.OrganizationalUnit
	if len(groups) == 0 {
		groups = c.Subject.Organization
	}
	groups = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == "" })
	if len(groups) > maxGroups || slices.ContainsFunc(groups, func(g string) bool { return !isPlainName(g) }) {
		return certSubject{}, errGroups
	}
	return certSubject{name: c.Subject.CommonName, groups: slices.Clip(groups)}, nil
}

// isPlainName reports whether a text can be a name: not empty, not long, and nothing in it that a
// reader of logs does not see.
func isPlainName(s string) bool {
	if s == "" || len(s) > maxNameBytes || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
