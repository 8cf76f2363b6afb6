package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority issues certificates into a directory.
type authority struct {
	dir  string
	root *x509.Certificate
	priv *ecdsa.PrivateKey
	next int64
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, priv: key, next: 1}
	a.root = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, a.root, a.root, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.ca(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func (a *authority) ca() string              { return filepath.Join(a.dir, "ca.pem") }
func (a *authority) cert(name string) string { return filepath.Join(a.dir, name+".pem") }
func (a *authority) key(name string) string  { return filepath.Join(a.dir, name+"-key.pem") }

// issueServer issues the certificate "server" for an address.
func (a *authority) issueServer(address string) error {
	return a.issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.ParseIP(address)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// issueClient issues the certificate of a user.
func (a *authority) issueClient(user string) error {
	return a.issue(user, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (a *authority) issue(name string, c *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	a.next++
	c.SerialNumber, c.Subject = big.NewInt(a.next), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, a.root, key.Public(), a.priv)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(a.cert(name), certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(a.key(name), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600)
}
