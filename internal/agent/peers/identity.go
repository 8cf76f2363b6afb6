package peers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// certLife is the life of the certificate. Its key counts, which the controller passes on; no peer checks dates.
const certLife = 100 * 365 * 24 * time.Hour

// Identity is the certificate by which other nodes recognize this one.
type Identity struct {
	cert tls.Certificate
	key  string
}

// Key is the hex SHA-256 of the certificate.
func (i *Identity) Key() string { return i.key }

// LoadIdentity reads the certificate and its private key from a file, or creates them.
func LoadIdentity(path string) (*Identity, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if raw, err = newIdentity(); err == nil {
			err = datadir.WriteFile(path, raw) // with mode 0600
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate for other nodes: %w", err)
	}
	cert, err := tls.X509KeyPair(raw, raw)
	if err != nil {
		return nil, fmt.Errorf("certificate for other nodes: %s: %w; remove the file to have it made again", path, err)
	}
	return &Identity{cert, keyOf(cert.Certificate[0])}, nil
}

func newIdentity() ([]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "buildnode"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	return slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})), nil
}

// keyOf returns the hex SHA-256 of a certificate.
func keyOf(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// serverTLS is for the server: every reader shows a certificate, whose key its token names.
func (i *Identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.cert}, ClientAuth: tls.RequireAnyClientCert,
		NextProtos: []string{"http/1.1"},
	}
}

// clientTLS is for connections to the peer with a key.
func (i *Identity) clientTLS(key string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.cert},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the certificate with the expected one
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 ||
				subtle.ConstantTimeCompare([]byte(keyOf(s.PeerCertificates[0].Raw)), []byte(key)) != 1 {
				return errors.New("the certificate is not that of the node which the controller named")
			}
			return nil
		},
	}
}
