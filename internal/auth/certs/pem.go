package certs

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// Types of the blocks in PEM files.
const (
	blockCertificate = "CERTIFICATE"
	blockList        = "X509 CRL"
	blockKeySuffix   = "PRIVATE KEY"
)

// maxBlocks is how many certificates or lists a file may have.
const maxBlocks = 1000

// pemBlocks returns the contents of a PEM file's blocks of one type. What else is in the file is
// for others.
func pemBlocks(text []byte, kind string) (out [][]byte, err error) {
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			return out, nil
		}
		if b.Type != kind {
			continue
		}
		if len(out) == maxBlocks {
			return nil, fmt.Errorf("the file has more than %d PEM blocks of the type %s", maxBlocks, kind)
		}
		out = append(out, b.Bytes)
	}
}

// certificatesIn reads the certificates of a PEM file: one at least.
func certificatesIn(path string, text []byte) ([]*x509.Certificate, error) {
	ders, err := pemBlocks(text, blockCertificate)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(ders) == 0 {
		return nil, fmt.Errorf("%s has no certificate in PEM form%s", path, describeContent(text))
	}
	var out []*x509.Certificate
	for i, der := range ders {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d in %s is damaged: %w", i+1, path, err)
		}
		out = append(out, cert)
	}
	return out, nil
}

// describeContent guesses what a file without certificates is.
func describeContent(text []byte) string {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return ": it is empty"
	case bytes.Contains(text, []byte(blockKeySuffix+"-----")):
		return ": it holds a key; are the two files swapped?"
	case bytes.Contains(text, []byte("-----BEGIN "+blockList)):
		return ": it holds a revocation list"
	}
	if _, err := x509.ParseCertificate(text); err == nil {
		return ": it is in DER form; write it as PEM"
	}
	return ""
}

// keyIn returns the one private key of a PEM file.
func keyIn(path string, text []byte) (*pem.Block, error) {
	var found *pem.Block
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		switch {
		case !strings.HasSuffix(b.Type, blockKeySuffix):
			continue
		case b.Type == "ENCRYPTED "+blockKeySuffix || strings.Contains(b.Headers["Proc-Type"], "ENCRYPTED"):
			return nil,
				fmt.Errorf(
					"the private key in %s is encrypted with a passphrase, which is not supported; remove the "+
						"passphrase", path)
		case found != nil:
			return nil, fmt.Errorf("%s has more than one private key", path)
		}
		found = b
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no private key in PEM form", path)
	}
	return found, nil
}

// publicKeyOf returns the public half of a private key; nil when the key's form is not known.
func publicKeyOf(key *pem.Block) crypto.PublicKey {
	if key, err := x509.ParsePKCS8PrivateKey(key.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer.Public()
		}
	}
	if key, err := x509.ParsePKCS1PrivateKey(key.Bytes); err == nil {
		return key.Public()
	}
	if key, err := x509.ParseECPrivateKey(key.Bytes); err == nil {
		return key.Public()
	}
	return nil
}

// describeCertificate returns which certificate is meant, in sentences.
func describeCertificate(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return fmt.Sprintf("%.200q", s)
	}
	if len(c.DNSNames) > 0 {
		return fmt.Sprintf("%.200q", c.DNSNames[0])
	}
	return "number " + c.SerialNumber.Text(16)
}

// dateWarnings warns of a certificate that is not valid yet, or not much longer.
func dateWarnings(c *x509.Certificate, path string, now time.Time) []string {
	switch {
	case now.Before(c.NotBefore):
		return []string{fmt.Sprintf("The certificate %s in %s counts only from %s: look at the clock",
			describeCertificate(c), path,
			formatTime(c.NotBefore))}
	case now.After(c.NotAfter):
		return []string{fmt.Sprintf("The certificate %s in %s expired on %s; replace the file", describeCertificate(c),
			path,
			formatTime(c.NotAfter))}
	case c.NotAfter.Sub(now) < expiryWarningTime:
		return []string{fmt.Sprintf("The certificate %s in %s expires on %s; replace the file", describeCertificate(c),
			path,
			formatTime(c.NotAfter))}
	}
	return nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
