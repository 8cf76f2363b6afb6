// Package certstest makes authorities, certificates and revocation lists for tests.
//
// It is not for products: its keys are made again in each test and never leave it.
//
// Invariant: every certificate that it issues is valid from an hour ago for a day, unless a template
// sets other dates.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Authority issues certificates.
type Authority struct {
	Pair
	lists int64
}

// New makes an authority that vouches for itself.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	return &Authority{Pair: issue(t, authority(name), nil)}
}

// Below makes an authority that this one vouches for.
func (a *Authority) Below(t testing.TB, name string) *Authority {
	t.Helper()
	return &Authority{Pair: issue(t, authority(name), &a.Pair)}
}

func authority(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// Server issues a certificate for hosts: names or addresses.
func (a *Authority) Server(t testing.TB, hosts ...string) Pair {
	t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return a.Issue(t, c)
}

// Client issues a certificate of a user with units (OU).
func (a *Authority) Client(t testing.TB, user string, units ...string) Pair {
	t.Helper()
	return a.Issue(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, OrganizationalUnit: units},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Issue issues a certificate from a template; number and dates are filled in.
func (a *Authority) Issue(t testing.TB, template *x509.Certificate) Pair {
	t.Helper()
	return issue(t, template, &a.Pair)
}

func issue(t testing.TB, c *x509.Certificate, by *Pair) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if c.SerialNumber == nil {
		c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
		must(t, err)
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.Cert, by.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return Pair{Cert: cert, Key: key}
}

// CRL makes a revocation list in PEM form, to be replaced within an hour.
func (a *Authority) CRL(t testing.TB, revoked ...Pair) []byte {
	t.Helper()
	list := &x509.RevocationList{ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, p := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: p.Cert.SerialNumber, RevocationTime: time.Now().Add(-time.Minute)})
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: a.List(t, list)})
}

// List signs a revocation list from a template, in DER form; the number is filled in.
func (a *Authority) List(t testing.TB, list *x509.RevocationList) []byte {
	t.Helper()
	a.lists++
	list.Number = big.NewInt(a.lists)
	der, err := x509.CreateRevocationList(rand.Reader, list, a.Cert, a.Key)
	must(t, err)
	return der
}

// CertPEM is the certificate as a file has it.
func (p Pair) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyPEM is the key as a file has it.
func (p Pair) KeyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TLS returns the pair for package crypto/tls, with the certificates between it and its authority.
func (p Pair) TLS(between ...*Authority) tls.Certificate {
	c := tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
	for _, a := range between {
		c.Certificate = append(c.Certificate, a.Cert.Raw)
	}
	return c
}

// Files writes the pair into a directory, replacing what is there.
func (p Pair) Files(t testing.TB, dir string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	Write(t, cert, p.CertPEM())
	Write(t, key, p.KeyPEM(t))
	return cert, key
}

// Pool trusts authorities.
func Pool(authorities ...*Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AddCert(a.Cert)
	}
	return pool
}

// Write replaces a file whole, as a careful program does.
func Write(t testing.TB, path string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(path+".new", text, 0o600))
	must(t, os.Rename(path+".new", path))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
