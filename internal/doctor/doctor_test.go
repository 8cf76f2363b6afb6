package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun: results are in the order of the checks, a remedy is only that of a problem, and a check that does not end is
// a warning.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		results := Run(t.Context(), []Check{
			{"slow", func(context.Context) Finding {
				time.Sleep(time.Second)
				return Finding{OK, "fine", "nothing"}
			}},
			{"stuck", func(context.Context) Finding {
				<-release
				return Finding{}
			}},
			{"broken", func(context.Context) Finding { return Finding{Failed, "it broke", "mend it"} }},
		})
		close(release)
		want := []Result{
			{"slow", OK, "fine", ""},
			{"stuck", Warning, "the check did not end within 20s", "repeat it"},
			{"broken", Failed, "it broke", "mend it"},
		}
		for i, r := range results {
			if r != want[i] {
				t.Errorf("got %+v, want %+v", r, want[i])
			}
		}
		if Worst(results) != Failed || Worst(results[:2]) != Warning || Worst(nil) != OK || Count(results, OK) != 1 {
			t.Errorf("worst %s, %d ok", Worst(results), Count(results, OK))
		}
	})
}

// find returns the outcome and the texts of a check.
func find(t *testing.T, c Check) (Outcome, string) {
	t.Helper()
	r := Run(t.Context(), []Check{c})[0]
	return r.Outcome, r.Detail + "; " + r.Remedy
}

func TestServices(t *testing.T) {
	serve := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    Outcome
		says    string
	}{
		"ready":     {serve(200, ""), OK, "answered in"},
		"not ready": {serve(503, "no leader\nyet"), Failed, "is not ready: no leader yet; see its log"},
		"foreign":   {serve(404, ""), Failed, "answered HTTP 404 Not Found; check the address: --controller"},
	} {
		server := httptest.NewServer(tc.handler)
		s := Service{Name: "controller", URL: server.URL, Setting: "--controller"}
		if got, says := find(t, Reachable(s)); got != tc.want || !strings.Contains(says, tc.says) {
			t.Errorf("%s: %s, %q; want %s, %q", name, got, says, tc.want, tc.says)
		}
		server.Close()
		if got, says := find(t, Reachable(s)); got != Failed || !strings.Contains(says, "start it, or correct") {
			t.Errorf("closed: %s, %q", got, says)
		}
		if got, says := find(t, Ports(s)); got != Failed || !strings.Contains(says, "no connection to 127.0.0.1:") {
			t.Errorf("closed port: %s, %q", got, says)
		}
		if got, _ := find(t, Clock(s)); got != Warning {
			t.Errorf("clock of a closed service: %s", got)
		}
	}
}

func TestClock(t *testing.T) {
	for name, tc := range map[string]struct {
		offset, uncertainty time.Duration
		want                Outcome
		says                string
	}{
		"equal": {0, 500 * time.Millisecond, OK, "within 1s"},
		"behind": {
			-10 * time.Second, 500 * time.Millisecond, Warning, "this machine is 10s behind c; synchronize",
		},
		"ahead":          {time.Hour, 500 * time.Millisecond, Failed, "1h0m0s ahead of c"},
		"a slow network": {3 * time.Second, 4 * time.Second, OK, "within 4s"},
	} {
		f := evaluateClock(tc.offset, tc.uncertainty, "c")
		if says := f.Detail + "; " + f.Remedy; f.Outcome != tc.want || !strings.Contains(says, tc.says) {
			t.Errorf("%s: %s, %q; want %s, %q", name, f.Outcome, says, tc.want, tc.says)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if got, says := find(t, Clock(Service{Name: "controller", URL: server.URL})); got != OK {
		t.Errorf("of this machine: %s, %q", got, says)
	}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer behind.Close()
	if got, says := find(t, Clock(Service{Name: "controller", URL: behind.URL})); got != Failed {
		t.Errorf("an hour behind: %s, %q", got, says)
	}
}

// newCertificate returns a self-signed certificate of localhost that ends at a time.
func newCertificate(t *testing.T, until time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: until.Add(-365 * 24 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func TestCertificates(t *testing.T) {
	day := 24 * time.Hour
	for name, tc := range map[string]struct {
		left time.Duration
		want Outcome
		says string
	}{
		"valid":    {90 * day, OK, `"localhost" is valid until `},
		"soon":     {20 * day, Warning, `"localhost" expires on `},
		"in a day": {day, Failed, `"localhost" expires on `},
		"over":     {-day, Failed, `"localhost" expired on `},
		"future":   {400 * day, Failed, `"localhost" is valid only from `},
	} {
		certificate, text := newCertificate(t, time.Now().Add(tc.left))
		file := filepath.Join(t.TempDir(), "cert.pem")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, says := find(t, CertificateFile("x", file, "--client-cert")); got != tc.want ||
			!strings.Contains(says, tc.says) {
			t.Errorf("file, %s: %s, %q; want %s, %q", name, got, says, tc.want, tc.says)
		}
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		server.StartTLS()
		s := Service{Name: "controller", URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)}
		s.TLS = &tls.Config{InsecureSkipVerify: true} // the certificate is evaluated here
		want := tc.want
		if want == OK {
			want = Warning // verification is off
		}
		if got, says := find(t, Certificate(s)); got != want {
			t.Errorf("server, %s: %s, %q; want %s", name, got, says, want)
		}
		s.TLS = nil
		if got, says := find(t, Certificate(s)); got != Failed || !strings.Contains(says, "trust the CA") {
			t.Errorf("untrusted, %s: %s, %q", name, got, says)
		}
		server.Close()
	}
	if got, _ := find(t, CertificateFile("x", "nowhere.pem", "--client-cert")); got != Failed {
		t.Errorf("no file: %s", got)
	}
	if got, _ := find(t, Certificate(Service{URL: "http://localhost"})); got != OK {
		t.Errorf("without TLS: %s", got)
	}
}

func TestStorage(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		free, total, reserve int64
		err                  error
		want                 Outcome
	}{
		"empty":         {90 * gib, 100 * gib, 0, nil, OK},
		"large":         {20 * gib, 1000 * gib, 0, nil, OK},
		"filling up":    {5 * gib, 100 * gib, 0, nil, Warning},
		"below reserve": {5 * gib, 100 * gib, 6 * gib, nil, Failed},
		"full":          {1 << 20, 100 * gib, 0, nil, Failed},
		"unknown":       {0, 0, 0, errors.New("no such directory"), Warning},
	} {
		space := func(string) (int64, int64, error) { return tc.free, tc.total, tc.err }
		if got, says := find(t, DiskFree("disk", "/srv", tc.reserve, space)); got != tc.want {
			t.Errorf("%s: %s, %q; want %s", name, got, says, tc.want)
		}
	}
	dir := t.TempDir()
	if got, says := find(t, WriteLatency("store latency", dir)); !strings.Contains(says, "a synced write takes") {
		t.Errorf("latency: %s, %q", got, says)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if got, _ := find(t, WriteLatency("store latency", filepath.Join(dir, "none"))); got != Warning {
		t.Errorf("no directory: %s", got)
	}
	for median, want := range map[time.Duration]Outcome{
		time.Millisecond: OK, 100 * time.Millisecond: Warning, time.Second: Failed,
	} {
		if f := evaluateLatency([]time.Duration{5 * time.Second, median, 0, median, 0, median}); f.Outcome != want {
			t.Errorf("%s: %s, want %s", median, f.Outcome, want)
		}
	}
}

func TestHypervisors(t *testing.T) {
	for name, tc := range map[string]struct {
		f    Finding
		want Outcome
	}{
		"kvm":             {evaluateKVM(nil), OK},
		"no kvm":          {evaluateKVM(&os.PathError{Op: "open", Err: os.ErrNotExist}), Warning},
		"another user":    {evaluateKVM(&os.PathError{Op: "open", Err: os.ErrPermission}), Failed},
		"a broken kvm":    {evaluateKVM(errors.New("input/output error")), Warning},
		"a Mac":           {evaluateHypervisorFramework("1", nil), OK},
		"a VM on a Mac":   {evaluateHypervisorFramework("0", nil), Failed},
		"no sysctl":       {evaluateHypervisorFramework("", errors.New("not found")), Warning},
		"this shell":      {Hypervisor("no-such-program", "sh").Find(t.Context()), OK},
		"none of the two": {Hypervisor("no-such-program", "nor-this").Find(t.Context()), Failed},
	} {
		if tc.f.Outcome != tc.want || tc.want != OK && tc.f.Remedy == "" {
			t.Errorf("%s: %+v, want %s", name, tc.f, tc.want)
		}
	}
}
