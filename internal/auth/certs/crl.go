package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// crl is a revocation list of one of the authorities, verified.
type crl struct {
	path                   string
	issuer                 []byte // name in DER
	issuerName             string // for people
	thisUpdate, nextUpdate time.Time
	revokedSerials         []string // bytes of the revoked numbers
}

// Extensions of revocation lists (RFC 5280, sections 5.2 and 5.3).
var (
	deltaExtension  = asn1.ObjectIdentifier{2, 5, 29, 27}
	scopeExtension  = asn1.ObjectIdentifier{2, 5, 29, 28} // which revocations a list is about: fewer than all is fine
	issuerExtension = asn1.ObjectIdentifier{2, 5, 29, 29}
)

var (
	errDelta    = errors.New("delta revocation lists are not supported; use a complete list")
	errIndirect = errors.New(
		"indirect revocation lists (of certificates by other issuers) are not supported; use one list per CA")
	errNoCRL = errors.New("the file has no revocation list in PEM or DER form")
)

// crlsIn reads the revocation lists of a file: any number in PEM form, or one in DER form.
// Every one must be signed by one of the authorities.
func crlsIn(path string, text []byte, authorities []*x509.Certificate) ([]*crl, error) {
	ders, err := pemBlocks(text, blockList)
	if err == nil && len(ders) == 0 {
		ders = [][]byte{text}
		if bytes.Contains(text, []byte("-----BEGIN ")) || len(bytes.TrimSpace(text)) == 0 {
			err = errNoCRL
		}
	}
	var out []*crl
	for _, der := range ders {
		var l *crl
		if err == nil {
			l, err = parseCRL(der, authorities)
		}
		if err != nil {
			return nil, fmt.Errorf("revocation list %d in %s: %w", len(out)+1, path, err)
		}
		l.path = path
		out = append(out, l)
	}
	return out, nil
}

func parseCRL(der []byte, authorities []*x509.Certificate) (*crl, error) {
	parsed, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCRL, err)
	}
	l := &crl{
		issuer: parsed.RawIssuer, issuerName: parsed.Issuer.String(), thisUpdate: parsed.ThisUpdate,
		nextUpdate: parsed.NextUpdate,
	}
	if err := signedBy(parsed, authorities); err != nil {
		return nil, fmt.Errorf("of %.200q: %w", l.issuerName, err)
	}
	for _, e := range parsed.Extensions {
		switch {
		case e.Id.Equal(deltaExtension):
			return nil, errDelta
		case e.Critical && !e.Id.Equal(scopeExtension):
			return nil, fmt.Errorf("unsupported critical extension %v", e.Id)
		}
	}
	for _, entry := range parsed.RevokedCertificateEntries {
		for _, e := range entry.Extensions {
			switch {
			case e.Id.Equal(issuerExtension):
				return nil, errIndirect
			case e.Critical:
				return nil, fmt.Errorf("unsupported critical extension %v in an entry",
					e.Id)
			}
		}
		l.revokedSerials = append(l.revokedSerials, string(entry.SerialNumber.Bytes()))
	}
	return l, nil
}

// signedBy looks for the authority that has signed a list.
func signedBy(l *x509.RevocationList, authorities []*x509.Certificate) error {
	var failed error
	for _, a := range authorities {
		if !bytes.Equal(a.RawSubject, l.RawIssuer) {
			continue
		}
		err := l.CheckSignatureFrom(a)
		if err == nil {
			return nil
		}
		failed = err
	}
	if failed != nil {
		return fmt.Errorf("the signature does not match the CA: %w", failed)
	}
	names := make([]string, 0, len(authorities))
	for _, a := range authorities {
		names = append(names, describeCertificate(a))
	}
	return fmt.Errorf("the list was not issued by a trusted CA: %.500s",
		strings.Join(slices.Compact(names), ", "))
}

// dateWarnings warns of a list that should have been replaced. What it revokes stays revoked.
func (l *crl) dateWarnings(now time.Time) []string {
	switch {
	case now.Before(l.thisUpdate):
		return []string{fmt.Sprintf("The revocation list of %.200q in %s is made on %s: look at the clock",
			l.issuerName,
			l.path, formatTime(l.thisUpdate))}
	case !l.nextUpdate.IsZero() && now.After(l.nextUpdate):
		return []string{
			fmt.Sprintf("The revocation list of %.200q in %s should have been replaced by %s; it stays active",
				l.issuerName,
				l.path, formatTime(l.nextUpdate)),
		}
	}
	return nil
}
