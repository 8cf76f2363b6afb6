package transfer

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, bad := range []string{"", "registry:8089", "ftp://x", "http://", "::"} {
		if _, err := New(Options{BaseURL: bad}); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	c, err := New(Options{BaseURL: " https://host:1/below/ "})
	if err != nil || c.buildURL("/registry/vm", nil) != "https://host:1/below/registry/vm" {
		t.Fatalf("%v", err)
	}
}

func TestAnswersBecomeErrors(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
		code   farm.Code
		text   string
	}{
		{200, `{"status":"FAIL","message":"Not found"}`, farm.CodeNotFound, "Not found"},
		{
			200, `{"status":"FAIL","message":"Template x has the tag y already"}`, farm.CodeRefused,
			"Template x has the tag y already",
		},
		{
			400, `{"status":"FAIL","message":"Did not find any versions with tag x"}`, farm.CodeNoVersion,
			"Did not find any versions with tag x",
		},
		{400, `{"status":"FAIL","message":"id: is required"}`, farm.CodeInvalid, "id: is required"},
		{
			401, `{"status":"FAIL","message":"Authentication Required"}`, farm.CodeUnauthenticated,
			"Authentication Required",
		},
		{403, `{"status":"FAIL","message":"no"}`, farm.CodeForbidden, "no"},
		{409, `{"status":"FAIL","message":"moved"}`, farm.CodeConflict, "moved"},
		{500, `{"status":"FAIL","message":"Internal error"}`, farm.CodeInternal, "Internal error"},
		{502, `<html>`, farm.CodeUnavailable, ""},
		{200, `<html>`, farm.CodeRefused, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
		}))
		c, _ := New(Options{BaseURL: s.URL, MaxAttempts: 1})
		_, err := c.ListTemplates(t.Context())
		if farm.CodeOf(err) != test.code || test.text != "" && err.Error() != test.text {
			t.Errorf("%d %s: %v", test.status, test.body, err)
		}
		c.Close()
		s.Close()
	}
}

// TestCredentials: the hook is called before every attempt and never for another host.
func TestCredentials(t *testing.T) {
	var asked, served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if user, token, _ := r.BasicAuth(); user != "root" || token != "secret" {
			t.Errorf("credentials %q", user)
		}
		_, _ = w.Write([]byte(`{"status":"OK","message":"","body":[]}`))
	}))
	defer s.Close()
	c, err := New(Options{BaseURL: s.URL, Authorize: func(r *http.Request) error {
		asked.Add(1)
		r.SetBasicAuth("root", "secret")
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ListTemplates(t.Context()); err != nil || asked.Load() != 3 {
		t.Fatalf("asked %d times, %v", asked.Load(), err)
	}
	req, err := c.newRequest(t.Context(), http.MethodGet, "http://mirror.invalid/layer", nil)
	if err != nil || req.Header.Get("Authorization") != "" || asked.Load() != 3 {
		t.Fatalf("credentials went to another host: %v, %v", req.Header, err)
	}
	c.authorize = func(*http.Request) error { return errors.New("key is unreadable") }
	if _, err := c.ListTemplates(t.Context()); err == nil || served.Load() != 3 {
		t.Fatalf("sent without credentials: %v", err)
	}
}

// TestDamagedConfiguration: an invalid stored configuration is a refusal that names the template, and not a
// transport failure.
func TestDamagedConfiguration(t *testing.T) {
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = w.Write([]byte(`{"status":"OK","message":"","body":{"cpu":"x","ram":5}}`))
	}))
	defer s.Close()
	c, err := New(Options{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.VersionConfig(t.Context(), VersionRef{ID: "abc"})
	e, ok := errors.AsType[*farm.Error](err)
	if !ok || e.Code != farm.CodeRefused || e.Message != "Template abc has a damaged configuration" ||
		served.Load() != 1 {
		t.Fatalf("%v after %d requests", err, served.Load())
	}
}

// TestContentTypes: a request with a body has the JSON content type, and one without has none.
func TestContentTypes(t *testing.T) {
	for method, want := range map[string]string{http.MethodPost: "application/json", http.MethodGet: ""} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Content-Type"); got != want {
				t.Errorf("%s has the content type %q, want %q", r.Method, got, want)
			}
			_, _ = w.Write([]byte(`{"status":"OK","message":"","body":{}}`))
		}))
		c, err := New(Options{BaseURL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		k := apiCall{method: method, path: "/"}
		if want != "" {
			k.request = struct{}{}
		}
		if err := c.doCall(t.Context(), k); err != nil {
			t.Error(err)
		}
		c.Close()
		s.Close()
	}
}

func TestRevertIsSentOnce(t *testing.T) {
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer s.Close()
	c, _ := New(Options{BaseURL: s.URL})
	defer c.Close()
	if err := c.Revert(t.Context(), VersionRef{ID: "x"}); farm.CodeOf(err) != farm.CodeUnavailable ||
		served.Load() != 1 {
		t.Fatalf("%d requests, %v", served.Load(), err)
	}
}

func TestTLSConfig(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"OK","message":"","body":[]}`))
	}))
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		o  clienttls.Options
		ok bool
	}{
		{clienttls.Options{}, false},
		{clienttls.Options{SkipVerify: true}, true},
		{clienttls.Options{CAFile: ca}, true},
	} {
		config, err := clienttls.Config(test.o)
		if err != nil {
			t.Fatal(err)
		}
		c, _ := New(Options{BaseURL: s.URL, TLS: config, MaxAttempts: 1})
		if _, err := c.ListTemplates(t.Context()); (err == nil) != test.ok {
			t.Errorf("%+v: %v", test.o, err)
		}
		c.Close()
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("nothing"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range []clienttls.Options{
		{CertFile: ca}, {KeyFile: ca}, {CertFile: ca, KeyFile: ca}, {CAFile: empty}, {CAFile: empty + "x"},
	} {
		if _, err := clienttls.Config(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// TestClientCertificatesAreFollowed: a pair that is replaced counts for the next connection, and one
// that does not fit changes nothing.
func TestClientCertificatesAreFollowed(t *testing.T) {
	ca, dir := certstest.New(t, "clients"), t.TempDir()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			name = certs[0].Subject.CommonName
		}
		_, _ = w.Write([]byte(`{"status":"OK","message":"","body":[{"name":"` + name + `"}]}`))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: certstest.Pool(ca)}
	s.StartTLS()
	defer s.Close()
	cert, key := ca.Client(t, "ann").Files(t, dir)
	config, err := clienttls.Config(clienttls.Options{SkipVerify: true, CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	want := func(name string) {
		t.Helper()
		c, _ := New(Options{BaseURL: s.URL, TLS: config, MaxAttempts: 1}) // with its own connections
		defer c.Close()
		if list, err := c.ListTemplates(t.Context()); err != nil || len(list) != 1 || list[0].Name != name {
			t.Errorf("%+v, %v; want %s", list, err, name)
		}
	}
	want("ann")
	ca.Client(t, "ben").Files(t, dir)
	want("ben")
	certstest.Write(t, key, []byte("half of it"))
	want("ben")
	certstest.New(t, "others").Client(t, "eve").Files(t, dir)
	want("nobody")
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := New(Options{BaseURL: "http://x", MaxAttempts: 4})
		run := func(errs ...error) (int, error) {
			n := 0
			return n, c.retry(t.Context(), "test", func() error {
				n++
				return errs[min(n, len(errs))-1]
			})
		}
		for _, test := range []struct {
			errs []error
			ok   bool
			took time.Duration // at most; at least half of it
		}{
			{[]error{nil}, true, 0},
			{[]error{errTransient, nil}, true, 100 * time.Millisecond},
			{[]error{farm.Refused("no"), nil}, false, 0},
			{[]error{errTransient}, false, (100 + 200 + 400) * time.Millisecond},
			{
				[]error{farm.Unavailable(nil, "down"), farm.Errorf(farm.CodeBusy, "busy"), nil},
				true,
				300 * time.Millisecond,
			},
		} {
			start := time.Now()
			_, err := run(test.errs...)
			took := time.Since(start)
			if (err == nil) != test.ok || took < test.took/2 || took > test.took {
				t.Errorf("%v: %v after %v", test.errs, err, took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer cancel()
		if err := c.retry(ctx, "test", func() error { return errTransient }); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestMeter(t *testing.T) {
	now := time.Unix(100, 0)
	var got []Progress
	m := newProgressMeter(func(p Progress) { got = append(got, p) }, 1000)
	m.now = func() time.Time { return now }
	m.samples = []sample{{at: now}}
	m.addSkipped(100)
	for range 8 {
		now = now.Add(100 * time.Millisecond)
		m.addTransferred(50)
	}
	m.finish()
	if len(got) != 3 {
		t.Fatalf("%d calls in 0.8 s: %+v", len(got), got)
	}
	last := got[len(got)-1]
	if last.Done != 500 || last.Fraction() != 0.5 || last.Rate != 500 {
		t.Fatalf("%+v", last)
	}
}
