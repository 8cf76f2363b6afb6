package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
)

// wants fails unless an error contains all parts.
func wants(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; wanted one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q: %v", p, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines: %q", err)
	}
}

func put(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	certstest.Write(t, path, text)
	return path
}

func TestWrongPairs(t *testing.T) {
	dir := t.TempDir()
	ca := certstest.New(t, "CA")
	good, other := ca.Server(t, "127.0.0.1"), ca.Server(t, "127.0.0.1")
	cert, key := good.Files(t, dir)
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	legacy := pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: []byte("x"),
	})
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: good.Cert.Raw[:100]})
	for _, c := range []struct {
		name, cert, key string
		says            []string
	}{
		{"nothing", "", "", []string{"HTTPS requires a certificate file"}},
		{"no such file", filepath.Join(dir,
			"none"), key, []string{"certificate of the API: ", "none: no such file"}},
		{"a directory", dir, key, []string{"is not a regular file"}},
		{"empty", put(t, dir, "empty", nil), key, []string{"has no certificate in PEM form", "it is empty"}},
		{"swapped", key, cert, []string{"has no certificate in PEM form", "swapped?"}},
		{"DER", put(t, dir, "der", good.Cert.Raw), key, []string{"it is in DER form"}},
		{"a list", put(t, dir, "list", ca.CRL(t)), key, []string{"it holds a revocation list"}},
		{"damaged", put(t, dir, "damaged", damaged), key, []string{"certificate 1 in ", "is damaged"}},
		{"too large", put(t, dir, "large", make([]byte, maxFileBytes+1)), key, []string{"is larger than 32 MiB"}},
		{"no key", cert, put(t, dir, "nokey", []byte("hello")), []string{"has no private key in PEM form"}},
		{"passphrase", cert, put(t, dir, "enc", encrypted), []string{"encrypted with a passphrase"}},
		{"old passphrase", cert, put(t, dir, "leg", legacy), []string{"encrypted with a passphrase"}},
		{"two keys", cert, put(t, dir, "two",
			append(good.KeyPEM(t), other.KeyPEM(t)...)), []string{"more than one private key"}},
		{"key of another", cert, put(t, dir, "other",
			other.KeyPEM(t)), []string{"does not belong to the certificate in"}},
		{
			"chain first", put(t, dir, "order", append(ca.CertPEM(), good.CertPEM()...)), key,
			[]string{"belongs to certificate 2 in", "must be the first"},
		},
		{"damaged key", cert, put(t, dir, "badkey",
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})), []string{"cannot be used"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(Options{What: "the API", Cert: c.cert, Key: c.key})
			wants(t, err, c.says...)
		})
	}
	_, err := Open(Options{Cert: cert, Key: key, MinVersion: "1.1"})
	wants(t, err, "TLS 1.1 is insecure")
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]uint16{
		"": tls.VersionTLS12, "1.2": tls.VersionTLS12,
		" TLS1.3": tls.VersionTLS13, "TLSv1.2": tls.VersionTLS12, "v1.3": tls.VersionTLS13,
	} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%q: %x, %v", text, got, err)
		}
	}
	_, err := ParseVersion("SSLv3")
	wants(t, err, "unsupported TLS version")
}

func TestAlarms(t *testing.T) {
	ca := certstest.New(t, "CA")
	now := time.Now()
	host := []string{"build.test"}
	for says, template := range map[string]*x509.Certificate{
		"":                 {DNSNames: host, NotAfter: now.Add(2 * expiryWarningTime)},
		"counts only from": {DNSNames: host, NotBefore: now.Add(time.Hour), NotAfter: now.Add(2 * expiryWarningTime)},
		"expired on":       {DNSNames: host, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)},
		"expires on":       {DNSNames: host, NotAfter: now.Add(time.Hour)},
		"names no host":    {NotAfter: now.Add(2 * expiryWarningTime), Subject: pkix.Name{CommonName: "build.test"}},
		"meant for servers": {
			DNSNames: host, NotAfter: now.Add(2 * expiryWarningTime),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
	} {
		cert, key := ca.Issue(t, template).Files(t, t.TempDir())
		s, err := Open(Options{Cert: cert, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Alarm(); (says == "") != (got == "") || !strings.Contains(got, says) {
			t.Errorf("wanted an alarm that says %q: %q", says, got)
		}
		if got := s.Expired(); got != (says == "expired on") {
			t.Errorf("of the certificate whose alarm says %q: expired is %v", says, got)
		}
	}
}

// serve answers requests over TLS on loopback, by a handler.
func serve(t *testing.T, config *tls.Config, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, TLSConfig: config, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "https://" + l.Addr().String()
}

// client makes requests; each client has separate connections.
func client(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func get(c *http.Client, url string) (string, *tls.ConnectionState, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), resp.TLS, err
}

func TestHandshakes(t *testing.T) {
	ca := certstest.New(t, "CA")
	cert, key := ca.Server(t, "127.0.0.1").Files(t, t.TempDir())
	for _, c := range []struct {
		min   string
		offer uint16
		want  uint16 // 0: refused
	}{
		{"", tls.VersionTLS11, 0},
		{"", tls.VersionTLS12, tls.VersionTLS12},
		{"", tls.VersionTLS13, tls.VersionTLS13},
		{"1.3", tls.VersionTLS12, 0},
		{"1.3", tls.VersionTLS13, tls.VersionTLS13},
	} {
		s, err := Open(Options{Cert: cert, Key: key, MinVersion: c.min})
		if err != nil {
			t.Fatal(err)
		}
		url := serve(t, s.Config(), func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
		proto, state, err := get(client(t,
			&tls.Config{RootCAs: certstest.Pool(ca), MinVersion: tls.VersionTLS10, MaxVersion: c.offer}), url)
		if c.want == 0 {
			if err == nil {
				t.Errorf("least %q: %x was accepted", c.min, c.offer)
			}
			continue
		}
		if err != nil || state.Version != c.want || proto != "HTTP/2.0" {
			t.Errorf("least %q, offered %x: %v %v %s", c.min, c.offer, err, state, proto)
		}
	}
	weak := &tls.Config{
		RootCAs: certstest.Pool(ca), MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA},
	}
	s, _ := Open(Options{Cert: cert, Key: key})
	if _, _, err := get(client(t, weak), serve(t, s.Config(), nil)); err == nil {
		t.Error("a weak suite was accepted")
	}
}

// TestReloadUnderTraffic replaces the pair, one file after the other and by halves, while
// clients make connections: none may fail, and the newest pair is shown in the end.
func TestReloadUnderTraffic(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t, "CA")
	cert, key := ca.Server(t, "127.0.0.1").Files(t, dir)
	authority := put(t, dir, "ca.pem", ca.CertPEM())
	clients, err := OpenClients(ClientOptions{CA: authority})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Cert: cert, Key: key, Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, s.Config(), func(http.ResponseWriter, *http.Request) {})
	var made atomic.Int64
	stop, wg := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := &http.Client{Transport: &http.Transport{
					DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: certstest.Pool(ca)},
				}}
				if _, _, err := get(c, url); err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				made.Add(1)
			}
		})
	}
	var last certstest.Pair
	for made.Load() < 100 && !t.Failed() {
		last = ca.Server(t, "127.0.0.1")
		for _, step := range []func(){
			func() { os.WriteFile(cert, last.CertPEM()[:200], 0o600) },
			func() { os.WriteFile(cert, last.CertPEM(), 0o600) },
			func() { os.WriteFile(key, nil, 0o600) },
			func() { os.WriteFile(key, last.KeyPEM(t), 0o600) },
			func() { certstest.Write(t, authority, ca.CertPEM()) },
		} {
			step()
			s.files.reloadChanged(t.Context(), 0)
			clients.files.reloadChanged(t.Context(), 0)
		}
	}
	close(stop)
	wg.Wait()
	_, state, err := get(client(t, &tls.Config{RootCAs: certstest.Pool(ca)}), url)
	if err != nil || !state.PeerCertificates[0].Equal(last.Cert) {
		t.Errorf("the newest pair is not shown: %v", err)
	}
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// shownBy is the certificate that a server would show now.
func shownBy(s *Server) *x509.Certificate { return s.keyPair.Load().Leaf }

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &journal{}
		dir, ca := t.TempDir(), certstest.New(t, "CA")
		pair := func() certstest.Pair {
			return ca.Issue(t,
				&x509.Certificate{DNSNames: []string{"build.test"}, NotAfter: time.Now().Add(99 * expiryWarningTime)})
		}
		first, second := pair(), pair()
		cert, key := first.Files(t, dir)
		s, err := Open(Options{
			What: "the API", Cert: cert, Key: key, Logger: slog.New(slog.NewTextHandler(logged, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); s.files.watchLoop(t.Context(), nil) }()
		look := func() { time.Sleep(checkInterval); synctest.Wait() }
		state := func(want certstest.Pair, alarm string) {
			t.Helper()
			if !shownBy(s).Equal(want.Cert) {
				t.Error("another certificate is shown")
			}
			if got := s.Alarm(); (alarm == "") != (got == "") || !strings.Contains(got, alarm) {
				t.Errorf("wanted an alarm that says %q: %q", alarm, got)
			}
		}
		look()
		state(first, "")
		certstest.Write(t, cert, second.CertPEM()) // its key is to come
		look()
		state(first, "")
		certstest.Write(t, key, second.KeyPEM(t))
		look()
		state(second, "")
		if !strings.Contains(logged.String(), "certificates reloaded") {
			t.Errorf("not said: %s", logged)
		}
		certstest.Write(t, cert, []byte("half"))
		look()
		state(second, "")
		look()
		state(second, "The changed files of the certificate of the API are not valid, and the former ones count: ")
		if n := strings.Count(logged.String(), "alarm="); n != 1 {
			look()
			t.Errorf("%d alarms in the log: %s", n, logged)
		}
		_ = os.Remove(cert)
		look()
		state(second, ": no such file")
		certstest.Write(t, cert, second.CertPEM())
		look()
		state(second, "")
		if strings.Contains(logged.String(), "PRIVATE") {
			t.Error("a key is in the log")
		}
	})
}

// TestUnseenChange changes a file without changing how it looks.
func TestUnseenChange(t *testing.T) {
	dir := t.TempDir()
	var now time.Time
	text := ""
	path := put(t, dir, "a", []byte("one"))
	f := newFiles("it", nil, func() time.Time { return now }, path)
	f.activate = func(texts [][]byte) error { text = string(texts[0]); return nil }
	f.dateWarnings = func(time.Time) []string { return nil }
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	rewrite := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	now = st.ModTime().Add(fileTimeResolution / 2)
	if err := f.loadFirst(); err != nil || text != "one" {
		t.Fatal(err, text)
	}
	rewrite("two")
	f.reloadChanged(t.Context(), 0)
	if text != "two" {
		t.Error("a change of a young file is not seen")
	}
	now = now.Add(fileTimeResolution)
	f.reloadChanged(t.Context(), 0)
	rewrite("sly") // an old file that looks the same is not read again
	f.reloadChanged(t.Context(), 0)
	if text != "two" {
		t.Error("an old file is read each time")
	}
	f.reloadChanged(t.Context(), 1)
	if text != "sly" {
		t.Error("a file is not read although someone asked")
	}
	broken := f.activate
	f.activate = func([][]byte) error { return os.ErrInvalid }
	if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.reloadChanged(t.Context(), 1)
	if f.alarm() == "" {
		t.Error("no alarm")
	}
	f.activate = broken
	rewrite("sly") // it looks as it did when it was fine
	if f.reloadChanged(t.Context(), 0); f.alarm() != "" {
		t.Errorf("the alarm stays: %s", f.alarm())
	}
}

func TestHangup(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t, "CA")
	cert, key := ca.Server(t, "127.0.0.1").Files(t, dir)
	reading := make(chan struct{}, 10)
	s, err := Open(Options{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	take := s.files.activate
	s.files.activate = func(texts [][]byte) error { err := take(texts); reading <- struct{}{}; return err }
	guard := make(chan os.Signal, 1) // so that the signal never ends the test
	signal.Notify(guard, syscall.SIGHUP)
	defer signal.Stop(guard)
	done := make(chan struct{})
	go func() { defer close(done); s.Run(t.Context()) }()
	second := ca.Server(t, "127.0.0.1")
	second.Files(t, dir)
	for asked := 0; ; asked++ {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reading:
		case <-time.After(100 * time.Millisecond): // Run did not listen yet
			if asked > 100 {
				t.Fatal("the signal is not heeded")
			}
			continue
		}
		break
	}
	if !shownBy(s).Equal(second.Cert) {
		t.Error("the new pair is not shown")
	}
}
