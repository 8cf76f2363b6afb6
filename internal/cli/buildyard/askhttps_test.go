package buildyard

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/client"
)

// secure is a TLS proxy in front of a service. It accepts every client, or only clients with the
// certificate mine.
func secure(t *testing.T, service string, mine *x509.Certificate) *httptest.Server {
	t.Helper()
	to, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if mine != nil {
		known := x509.NewCertPool()
		known.AddCert(mine)
		s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known, MinVersion: tls.VersionTLS12}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// certificate makes one for a client, with its key, as files.
func certificate(t *testing.T, dir string) (cert, key string, parsed *x509.Certificate) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ci"}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, form, form, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	if parsed, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return pemFile(t, dir, "CERTIFICATE", raw), pemFile(t, dir, "PRIVATE KEY", private), parsed
}

func pemFile(t *testing.T, dir, kind string, raw []byte) string {
	t.Helper()
	f, err := os.CreateTemp(dir, "*.pem")
	if err != nil {
		t.Fatal(err)
	}
	if err := pem.Encode(f, &pem.Block{Type: kind, Bytes: raw}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// ends runs the program and checks its exit code and its output.
func ends(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	got := Main(t.Context(), args, Streams{Out: &out, Err: &errs})
	if text := out.String() + errs.String(); got != code || !strings.Contains(text, want) {
		t.Errorf("%v: exit %d, said %q; want %d, %q", args, got, text, code, want)
	}
}

// TestCommandsOverTLS calls a controller behind a proxy that serves TLS, with right and wrong
// settings: the error names what to change.
func TestCommandsOverTLS(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	s, stop := startUp(t, dir)
	defer stop()
	cert, key, mine := certificate(t, dir)
	open, closed := secure(t, s.URL(), nil), secure(t, s.URL(), mine)
	ca := pemFile(t, dir, "CERTIFICATE", open.Certificate().Raw)
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		code int
		want string
		args []string
	}{
		{0, "Running", []string{"--controller", open.URL, "--ca-cert", ca}},
		{0, "Running", []string{"--controller", open.URL, "--skip-tls-verification"}},
		{0, "Running", []string{
			"--controller", closed.URL, "--ca-cert", ca, "--client-cert", cert, "--client-key",
			key,
		}},
		{5, "set its CA with --ca-cert or SVC_CLIENT_CA", []string{"--controller", open.URL}},
		{5, "--client-cert and --client-key", []string{"--controller", closed.URL, "--ca-cert", ca}},
		{5, "whether it requires https", []string{"--controller", strings.Replace(open.URL, "https", "http", 1)}},
		{5, "want an address with http://", []string{"--controller", strings.Replace(s.URL(), "http", "https", 1)}},
		{2, "has no certificate", []string{"--controller", open.URL, "--ca-cert", empty}},
		{2, "read CA file", []string{"--controller", open.URL, "--ca-cert", empty + "x"}},
		{2, "certificate and key are both required", []string{"--controller", open.URL, "--client-cert", cert}},
		{2, "client certificate", []string{"--controller", open.URL, "--client-cert", key, "--client-key", cert}},
	} {
		ends(t, tc.code, tc.want, append([]string{"status"}, tc.args...)...)
	}
	for name, tc := range map[string]struct {
		tls client.TLS
		ok  bool
	}{
		"the expected name": {client.TLS{CAFile: ca, ServerName: "example.com"}, true},
		"another name":      {client.TLS{CAFile: ca, ServerName: "moon.example"}, false},
		"unknown":           {client.TLS{}, false},
	} {
		c, err := client.NewController(open.URL, client.Options{TLS: tc.tls, Retries: client.NoRetries})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Live(t.Context()); (err == nil) != tc.ok ||
			(err != nil && client.CodeOf(err) != client.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
		c.CloseIdle()
	}
}

// TestCommandsOfOtherAnswers calls servers that answer in other ways than a controller of this
// version: each has its exit code and an error that names what to do.
func TestCommandsOfOtherAnswers(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, tc := range []struct {
		status int
		answer string
		code   int
		want   string
	}{
		{
			401, `{"status":"FAIL","message":"Authentication Required"}`, 6,
			"set the root token (SVC_CLIENT_ROOT_TOKEN, or --token-file), an API key",
		},
		{403, `{"status":"FAIL","message":"list_nodes is missing"}`, 6, "list_nodes is missing"},
		{503, `{"status":"FAIL","message":"not ready"}`, 5, "not ready"},
		{502, `<html>bad gateway</html>`, 5, "answers, but not as a controller does"},
		{500, `{"status":"FAIL","message":"Internal error"}`, 1, "Internal error"},
		{200, `<html>log in</html>`, 5, "check the address"},
		{302, ``, 5, "check the address"},
		{200, `{"status":"FAIL","message":"\u001b[2Jno"}`, 1, "?[2Jno"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.answer)
		}))
		ends(t, tc.code, tc.want, "node", "list", "--controller", s.URL)
		s.Close()
	}
}
