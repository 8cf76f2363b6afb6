package clienttls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
)

// writePair writes a certificate and its key into a directory of that name.
func writePair(t *testing.T, dir, name string, pair certstest.Pair) (cert, key string) {
	t.Helper()
	sub := filepath.Join(dir, name)
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	return pair.Files(t, sub)
}

// TestClientTLS: what of files and endpoints makes encrypted connections, and what is refused.
func TestClientTLS(t *testing.T) {
	dir := t.TempDir()
	authority := certstest.New(t, "etcd")
	ca := filepath.Join(dir, "ca.pem")
	certstest.Write(t, ca, authority.CertPEM())
	cert, key := writePair(t, dir, "client", authority.Client(t, "buildyard"))
	_, otherKey := writePair(t, dir, "other", authority.Client(t, "other"))
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	secure, plain := []string{"https://a:2379", "https://b:2379"}, []string{"http://a:2379"}
	for name, tc := range map[string]struct {
		files     Files
		endpoints []string
		says      string // part of the error; empty: none
		encrypted bool
	}{
		"plain":                 {Files{}, plain, "", false},
		"system authorities":    {Files{}, secure, "", true},
		"private authority":     {Files{CA: ca}, secure, "", true},
		"client certificate":    {Files{ca, cert, key}, secure, "", true},
		"certificate only":      {Files{CA: ca, Cert: cert}, secure, "needed together", false},
		"plain with files":      {Files{CA: ca}, plain, "want https://", false},
		"mixed":                 {Files{}, append(plain, secure...), "want https:// for all", false},
		"key of another":        {Files{ca, cert, otherKey}, secure, "does not match", false},
		"no certificate inside": {Files{CA: empty}, secure, "no certificate", false},
		"missing file":          {Files{CA: filepath.Join(dir, "none")}, secure, "no such file", false},
		"a directory":           {Files{CA: dir}, secure, "is not a file", false},
	} {
		cfg, err := tc.files.TLS(tc.endpoints)
		switch {
		case tc.says == "" && err != nil, tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: got %v, want %q", name, err, tc.says)
		case (cfg != nil) != tc.encrypted:
			t.Errorf("%s: encrypted %t, want %t", name, cfg != nil, tc.encrypted)
		}
	}
}

// TestRenewedClientCertificate: a connection uses the files as they are then.
func TestRenewedClientCertificate(t *testing.T) {
	dir, authority := t.TempDir(), certstest.New(t, "etcd")
	cert, key := writePair(t, dir, "client", authority.Client(t, "before"))
	cfg, err := Files{Cert: cert, Key: key}.TLS([]string{"https://a:2379"})
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, "client", authority.Client(t, "after"))
	pair, err := cfg.GetClientCertificate(nil)
	if err != nil || pair.Leaf.Subject.CommonName != "after" {
		t.Errorf("certificate %v, %v", pair, err)
	}
}
