package buildyard

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Files of the certificates that init creates.
const (
	authorityFile    = "ca.pem"
	authorityKeyFile = "ca.key"
	serverCertFile   = "server.pem"
	serverKeyFile    = "server.key"
)

// Their validity. Some clients reject server certificates that are valid for more than 825 days.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	serverLife    = 825 * 24 * time.Hour
)

// certificatePair is the files of a server's certificate.
type certificatePair struct {
	certPath, keyPath string
	created           bool // by this call
}

// createCertificates creates an authority and a server certificate for this machine and additional names
// in a directory. Existing files stay.
func createCertificates(dir string, names []string) (certificatePair, error) {
	pair := certificatePair{certPath: filepath.Join(dir, serverCertFile), keyPath: filepath.Join(dir, serverKeyFile)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pair, err
	}
	if there, err := bothExist(pair.certPath, pair.keyPath); there || err != nil {
		return pair, err
	}
	authority, key, err := openAuthority(dir)
	if err != nil {
		return pair, err
	}
	host, _ := os.Hostname() // an empty name is left out
	template := certificateTemplate(host, serverLife)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature,
		[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range append([]string{"localhost", "127.0.0.1", "::1", host, externalIP()}, names...) {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if name != "" {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	pair.created = true
	_, _, err = issueCertificate(template, authority, key, pair.certPath, pair.keyPath)
	return pair, err
}

// bothExist reports whether a certificate and its key exist; it is an error if only one exists or
// they do not match.
func bothExist(cert, key string) (bool, error) {
	_, certErr := os.Stat(cert)
	_, keyErr := os.Stat(key)
	switch {
	case certErr == nil && keyErr == nil:
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return false,
				fmt.Errorf(
					"%s and %s are not a certificate and its key; restore them, or remove both to create new ones: %w",
					cert, key, err)
		}
		return true, nil
	case errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist):
		return false, nil
	case certErr == nil || keyErr == nil:
		return false, fmt.Errorf("only one of %s and %s exists; restore the other or remove both", cert, key)
	}
	return false, errors.Join(certErr, keyErr)
}

// openAuthority reads the authority of the directory, or creates one.
func openAuthority(dir string) (*x509.Certificate, crypto.Signer, error) {
	certPath, keyPath := filepath.Join(dir, authorityFile), filepath.Join(dir, authorityKeyFile)
	there, err := bothExist(certPath, keyPath)
	if err != nil {
		return nil, nil, err
	}
	if there {
		return readAuthority(certPath, keyPath)
	}
	template := certificateTemplate("Buildyard CA", authorityLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	return issueCertificate(template, nil, nil, certPath, keyPath)
}

func readAuthority(certPath, keyPath string) (*x509.Certificate, crypto.Signer, error) {
	der, err := readPEM(certPath)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", certPath, err)
	}
	if der, err = readPEM(keyPath); err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, nil, fmt.Errorf("%s has no private key", keyPath)
	}
	return cert, key, nil
}

func readPEM(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file", path)
	}
	return block.Bytes, nil
}

// certificateTemplate returns the common fields of all certificates.
func certificateTemplate(name string, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life), // tolerates slow clocks of clients
	}
}

// issueCertificate creates a key pair and its certificate, signed by an authority or, without one,
// self-signed. Each file is written completely or not at all, the key first: a certificate exists
// only with its key.
func issueCertificate(
	template, authority *x509.Certificate, by crypto.Signer, certPath, keyPath string,
) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if authority == nil {
		authority, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	if err := replaceFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})); err != nil {
		return nil, nil, err
	}
	if err := replaceFile(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return nil, nil, errors.Join(err, os.Remove(keyPath))
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}
