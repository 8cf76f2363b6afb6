package sdk_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/certs"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest/servicetest"
)

// direct makes calls of a handler without a network.
type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// keyed creates a service with the key ci, and the credentials of that key.
func keyed(t *testing.T, o servicetest.Options) (*servicetest.Service, *client.APIKey) {
	t.Helper()
	s := servicetest.New(o)
	private, err := s.Add("ci", "builders")
	if err != nil {
		t.Fatal(err)
	}
	key, err := client.ParseAPIKey("ci", private)
	if err != nil {
		t.Fatal(err)
	}
	return s, key
}

// through returns a client of a controller that is called without a network.
func through(t *testing.T, h http.Handler, creds client.Credentials) *client.Controller {
	t.Helper()
	c, err := client.NewController("http://cloud.example/base/", client.Options{
		Credentials: creds, Retries: client.NoRetries, Transport: direct{http.StripPrefix("/base", h)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func groups(t *testing.T, c *client.Controller) error {
	t.Helper()
	_, err := c.Groups(t.Context(), client.ListOptions{})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneHandshakeForAll: a hundred concurrent calls of several clients, and those after them, share one
// session; another service has a separate one.
func TestOneHandshakeForAll(t *testing.T) {
	s, key := keyed(t, servicetest.Options{})
	server := httptest.NewServer(s)
	defer server.Close()
	var clients []*client.Controller
	for range 2 {
		c, err := client.NewController(server.URL, client.Options{Credentials: key, Retries: client.NoRetries})
		must(t, err)
		clients = append(clients, c)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if err := groups(t, clients[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	must(t, groups(t, clients[0]))
	if s.Hands.Load() != 1 || s.Shakes.Load() != 1 || s.Served.Load() != 101 || s.Refused.Load() != 0 {
		t.Errorf("%d hands, %d shakes, %d served, %d refused", s.Hands.Load(), s.Shakes.Load(), s.Served.Load(),
			s.Refused.Load())
	}

	other := servicetest.New(servicetest.Options{Service: farm.ServiceRegistry})
	second := httptest.NewServer(other)
	defer second.Close()
	r, err := client.NewRegistry(second.URL, client.Options{Credentials: key, Retries: client.NoRetries})
	must(t, err)
	if _, err := r.Templates(t.Context()); !errors.Is(err, client.ErrUnauthenticated) || other.Hands.Load() != 1 ||
		other.Shakes.Load() != 0 || s.Hands.Load() != 1 {
		t.Errorf("a key of another service: %v", err)
	}
}

// TestSessionsAreRenewed: before their time when it is the default, and where sessions live
// for a shorter time a refused call is made once more, and fewer are refused from then on.
func TestSessionsAreRenewed(t *testing.T) {
	for name, tc := range map[string]struct {
		ttl          time.Duration
		hands        [2]int64 // at least and at most, in half an hour
		mostRefusals int64
	}{
		"default": {0, [2]int64{7, 8}, 0},
		"short":   {time.Minute, [2]int64{30, 60}, 10},
		"long":    {time.Hour, [2]int64{7, 8}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, key := keyed(t, servicetest.Options{TTL: tc.ttl})
				c := through(t, s, key)
				for range 30 * 60 / 5 {
					must(t, groups(t, c))
					time.Sleep(5 * time.Second)
				}
				if n := s.Hands.Load(); n < tc.hands[0] || n > tc.hands[1] || s.Refused.Load() > tc.mostRefusals {
					t.Errorf("%d hands, %d refusals", n, s.Refused.Load())
				}
				if s.Served.Load() != 360 {
					t.Errorf("%d of 360 calls served", s.Served.Load())
				}
			})
		})
	}
}

// TestARefusedSessionIsRenewedOnce: a refused call had no effect, so that any call is made once more; with a
// deleted key it is not retried endlessly.
func TestARefusedSessionIsRenewedOnce(t *testing.T) {
	var starts atomic.Int64
	s, key := keyed(t, servicetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			starts.Add(1)
		}
		_, _ = io.WriteString(w, `{"status":"OK","body":[]}`)
	})})
	c := through(t, s, key)
	must(t, groups(t, c))
	s.Signer.ReplaceRing(auth.NewKeyRing(time.Now()))
	if _, err := c.Start(t.Context(), client.StartRequest{TemplateID: "x"}); err != nil || starts.Load() != 1 ||
		s.Hands.Load() != 2 || s.Refused.Load() != 1 {
		t.Errorf("%v: %d starts, %d hands, %d refused", err, starts.Load(), s.Hands.Load(), s.Refused.Load())
	}

	must(t, s.Keys.Delete(t.Context(), "ci"))
	err := groups(t, c)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != client.ErrUnauthenticated || !e.OfHandshake() ||
		!strings.Contains(e.Message,
			`does not accept the API key "ci": it does not exist there, has expired or was deleted`) {
		t.Errorf("a deleted key: %v", err)
	}
	if s.Hands.Load() != 3 || s.Shakes.Load() != 2 || s.Refused.Load() != 2 {
		t.Errorf("a deleted key is asked for: %d hands, %d refused", s.Hands.Load(), s.Refused.Load())
	}

	// A service that opens sessions and accepts none.
	none, key := keyed(t, servicetest.Options{
		May: func(auth.Identity, *http.Request) error { return farm.Errorf(farm.CodeUnauthenticated, "no") },
	})
	if err := groups(t, through(t, none, key)); !errors.Is(err, client.ErrUnauthenticated) || none.Hands.Load() != 2 ||
		none.Refused.Load() != 2 {
		t.Errorf("%v: %d hands, %d refused", err, none.Hands.Load(), none.Refused.Load())
	}
}

// TestAStreamSurvivesAStaleSession: a file is offered before it is sent, so that it can be
// sent with a new session.
func TestAStreamSurvivesAStaleSession(t *testing.T) {
	var got atomic.Value
	s, key := keyed(t, servicetest.Options{
		Service: farm.ServiceRegistry,
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			got.Store(string(raw))
			_, _ = io.WriteString(w, `{"status":"OK","body":{}}`)
		}),
	})
	server := httptest.NewServer(s)
	defer server.Close()
	r, err := client.NewRegistry(server.URL, client.Options{Credentials: key})
	must(t, err)
	content := strings.Repeat("0123456789", 100_000)
	for n := range 3 {
		if n > 0 {
			s.Signer.ReplaceRing(auth.NewKeyRing(time.Now()))
		}
		if _, err := r.Upload(t.Context(), "x", io.MultiReader(strings.NewReader(content)), ""); err != nil ||
			got.Load() != content {
			t.Fatalf("upload %d: %v", n, err)
		}
	}
	if s.Hands.Load() != 3 {
		t.Errorf("%d hands", s.Hands.Load())
	}
}

// TestAWaiterMayLeave: a caller that stops waiting does not cancel the handshake for the others.
func TestAWaiterMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, key := keyed(t, servicetest.Options{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == api.PathHand {
				time.Sleep(10 * time.Second)
			}
			s.ServeHTTP(w, r)
		})
		c := through(t, slow, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var first, second error
		var wg sync.WaitGroup
		wg.Go(func() { _, first = c.Groups(ctx, client.ListOptions{}) })
		wg.Go(func() { second = groups(t, c) })
		wg.Wait()
		if !errors.Is(first, context.DeadlineExceeded) || second != nil || s.Hands.Load() != 1 {
			t.Errorf("%v, %v, %d hands", first, second, s.Hands.Load())
		}
	})
}

// TestHandshakesThatFail report the problem, and the actual call is not sent.
func TestHandshakesThatFail(t *testing.T) {
	s, key := keyed(t, servicetest.Options{})
	another, err := s.Add("another")
	must(t, err)
	swapped, err := client.ParseAPIKey("ci", another)
	must(t, err)
	says := func(status int, text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
	for name, tc := range map[string]struct {
		h    http.Handler
		key  *client.APIKey
		code client.Code
		says string
	}{
		"another's private key": {s, swapped, client.ErrUnauthenticated, "is not that of the API key \"ci\""},
		"an older service": {says(404,
			`{"status":"FAIL","message":"No such route"}`), key, client.ErrUnsupported, "does not support API keys"},
		"a page":       {says(200, "<html>"), key, client.ErrForeign, "check that it is the address of a controller"},
		"another page": {says(500, "<html>"), key, client.ErrForeign, "not as a controller does"},
		"too many": {
			says(429, `{"status":"FAIL","message":"Too many failed attempts"}`), key,
			client.ErrUnavailable, "Too many failed attempts",
		},
		"a redirect": {http.RedirectHandler("http://moon.example/",
			http.StatusTemporaryRedirect), key, client.ErrForeign, "307"},
	} {
		_, err := through(t, tc.h, tc.key).Start(t.Context(), client.StartRequest{TemplateID: "x"})
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Code != tc.code || !strings.Contains(e.Message, tc.says) || !e.OfHandshake() {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A start may not be made twice; the handshake before it may.
	var calls atomic.Int64
	flaky := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.ServeHTTP(w, r)
	})
	c, err := client.NewController("http://cloud.example", client.Options{Credentials: key, Transport: direct{flaky}})
	must(t, err)
	if _, err := c.Start(t.Context(), client.StartRequest{TemplateID: "x"}); err != nil || calls.Load() != 4 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}

// TestCredentialsStayAtTheirAddress: they follow no redirect and are put on no request to another host.
func TestCredentialsStayAtTheirAddress(t *testing.T) {
	var strayed atomic.Int64
	moon := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	defer moon.Close()
	s, key := keyed(t, servicetest.Options{Next: http.RedirectHandler(moon.URL, http.StatusFound)})
	server := httptest.NewServer(s)
	defer server.Close()
	for _, creds := range []client.Credentials{client.RootToken(servicetest.Root), key} {
		c, err := client.NewController(server.URL, client.Options{Credentials: creds, Retries: client.NoRetries})
		must(t, err)
		if err := groups(t, c); !errors.Is(err, client.ErrForeign) || strayed.Load() != 0 {
			t.Errorf("%v: %v, %d calls elsewhere", creds, err, strayed.Load())
		}
		for address, good := range map[string]bool{server.URL + "/x": true, moon.URL +
			"/x": false, strings.Replace(server.URL, "http:", "https:", 1): false} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			must(t, err)
			if err := c.Authorize(req); (err == nil) != good || (req.Header.Get("Authorization") != "") != good {
				t.Errorf("%v at %s: %v, %q", creds, address, err, req.Header)
			}
		}
	}
	below, err := client.NewController(server.URL+"/cloud", client.Options{Credentials: client.RootToken("x")})
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/clouds", nil)
	must(t, err)
	if err := below.Authorize(req); err == nil || req.Header.Get("Authorization") != "" {
		t.Error("credentials for a path go to another one")
	}
}

// TestReadyTokensAndCertificates: what needs no handshake.
func TestReadyTokensAndCertificates(t *testing.T) {
	dir := t.TempDir()
	authority := certstest.New(t, "authority")
	ca := filepath.Join(dir, "ca.pem")
	certstest.Write(t, ca, authority.CertPEM())
	clients, err := certs.OpenClients(
		certs.ClientOptions{What: "the API", CA: ca, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	serverDir, userDir := filepath.Join(dir, "server"), filepath.Join(dir, "user")
	must(t, errors.Join(os.Mkdir(serverDir, 0o700), os.Mkdir(userDir, 0o700)))
	cert, secret := authority.Server(t, "127.0.0.1").Files(t, serverDir)
	tls, err := certs.Open(certs.Options{
		What: "the API", Cert: cert, Key: secret, Clients: clients, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	var last auth.Identity
	s, key := keyed(t, servicetest.Options{
		JWT: "a.b.c", Certificate: clients.Identity,
		May: func(who auth.Identity, _ *http.Request) error {
			last = who
			return nil
		},
	})
	server := httptest.NewUnstartedServer(s)
	server.TLS = tls.Config()
	server.StartTLS()
	defer server.Close()
	mine, mineKey := authority.Client(t, "anna", "mac").Files(t, userDir)
	for name, tc := range map[string]struct {
		creds  client.Credentials
		tls    client.TLS
		who    string
		method auth.Method
	}{
		"certificate": {
			nil,
			client.TLS{CAFile: ca, CertFile: mine, KeyFile: mineKey},
			"anna",
			auth.ByCertificate,
		},
		"ready token":         {client.Bearer(" a.b.c\n"), client.TLS{CAFile: ca}, "job", auth.ByOIDC},
		"root token":          {client.RootToken(servicetest.Root), client.TLS{CAFile: ca}, "root", auth.ByRoot},
		"API key":             {key, client.TLS{CAFile: ca}, "ci", auth.ByKey},
		"key and certificate": {key, client.TLS{CAFile: ca, CertFile: mine, KeyFile: mineKey}, "ci", auth.ByKey},
		"nothing":             {nil, client.TLS{CAFile: ca}, "", ""},
	} {
		last = auth.Identity{}
		c, err := client.NewController(server.URL,
			client.Options{Credentials: tc.creds, TLS: tc.tls, Retries: client.NoRetries})
		must(t, err)
		if err := groups(t, c); (err == nil) != (tc.who != "") || last.Name != tc.who || last.Method != tc.method {
			t.Errorf("%s: %v, %+v", name, err, last)
		}
		c.CloseIdle()
	}
}

// TestSecretsAreNotPrinted in whatever form.
func TestSecretsAreNotPrinted(t *testing.T) {
	s, key := keyed(t, servicetest.Options{})
	private, err := s.Add("second")
	must(t, err)
	c := through(t, s, client.RootToken(servicetest.Root))
	made, err := c.CreateKey(t.Context(), api.NewKey{ID: "third", TTL: 60, Groups: []string{}})
	must(t, err)
	if _, err := client.ParseAPIKey("third", made.Reveal()); err != nil {
		t.Error(err)
	}
	kc := through(t, s, key)
	must(t, groups(t, kc)) // a session is open
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cloud.example/base/x", nil)
	must(t, err)
	must(t, kc.Authorize(req))
	session := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")

	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	text := slog.New(slog.NewTextHandler(&out, nil))
	things := []any{
		client.RootToken(servicetest.Root), client.Bearer("hidden-jwt"), key, made, c, kc,
		client.Options{Credentials: client.RootToken(servicetest.Root)},
		client.Options{Credentials: client.Bearer("hidden-jwt")},
		struct{ inner any }{client.RootToken(servicetest.Root)},
		struct{ inner *client.APIKey }{key},
		struct{ inner client.PrivateKey }{made},
	}
	for _, thing := range things {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", thing)
		}
		raw, _ := json.Marshal(thing)
		out.Write(raw)
		log.Info("x", "thing", thing)
		text.Info("x", "thing", thing)
	}
	for _, bad := range []string{private[:200], "hidden-text", "-----BEGIN hidden-text"} {
		_, err := client.ParseAPIKey("ci", bad)
		fmt.Fprintln(&out, err)
	}
	fmt.Fprintln(&out, groups(t, through(t, s, client.RootToken("another root token"))),
		groups(t, through(t, s, client.Bearer("hidden-jwt"))))
	for name, secret := range map[string]string{
		"root token": servicetest.Root, "in hex": fmt.Sprintf("%x", servicetest.Root),
		"wrong root token": "another root token", "ready token": "hidden-jwt", "bad key": "hidden-text",
		"key": private[:30], "made key": made.Reveal()[30:60], "session": session[:40],
		"basic": base64.StdEncoding.EncodeToString([]byte("root:" + servicetest.Root)),
	} {
		if at := strings.Index(out.String(), secret); at >= 0 {
			t.Errorf("the %s is printed: %.200s", name, out.String()[max(0, at-60):])
		}
	}
}

// TestFormsOfPrivateKeys: accepted forms, and the errors for others.
func TestFormsOfPrivateKeys(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	pkcs1 := x509.MarshalPKCS1PrivateKey(key)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	elliptical, err := x509.MarshalPKCS8PrivateKey(curve)
	must(t, err)
	armour := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	line := base64.StdEncoding.EncodeToString(pkcs1)
	for name, tc := range map[string]struct{ text, says string }{
		"the API's line":       {line, ""},
		"with a newline":       {line + "\n", ""},
		"in several lines":     {line[:64] + "\r\n" + line[64:], ""},
		"URL-safe, no padding": {base64.RawURLEncoding.EncodeToString(pkcs1), ""},
		"PEM of PKCS#1":        {armour("RSA PRIVATE "+"KEY", pkcs1), ""},
		"PEM of PKCS#8":        {armour("PRIVATE "+"KEY", pkcs8), ""},
		"encrypted":            {armour("ENCRYPTED PRIVATE "+"KEY", pkcs8), "encrypted with a password"},
		"public":               {armour("PUBLIC "+"KEY", public), "this is a public key"},
		"a public line":        {base64.StdEncoding.EncodeToString(public), "this is a public key"},
		"another kind":         {armour("PRIVATE "+"KEY", elliptical), "not an RSA key"},
		"a certificate":        {armour("CERTIFICATE", public[:50]), "this is a certificate"},
		"cut":                  {line[:400], "is damaged"},
		"none":                 {"", "neither"},
		"a text":               {"what?", "neither"},
		"long":                 {strings.Repeat("A", 1<<20), "longer"},
	} {
		_, err := client.ParseAPIKey("ci", tc.text)
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.ParseAPIKey("", line); err == nil {
		t.Error("an empty id is taken")
	}
	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, []byte(line), 0o600))
	if k, err := client.LoadAPIKey("ci", file); err != nil || k.ID() != "ci" {
		t.Error(err)
	}
	must(t, os.Chmod(file, 0o640))
	if _, err := client.LoadAPIKey("ci", file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	if _, err := client.LoadAPIKey("ci", file+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestKeysAndRights manages keys and rights of both services.
func TestKeysAndRights(t *testing.T) {
	ctx := t.Context()
	type store interface {
		Keys(ctx context.Context) ([]api.Key, error)
		Key(ctx context.Context, id string) (api.Key, error)
		CreateKey(ctx context.Context, k api.NewKey) (client.PrivateKey, error)
		UpdateKey(ctx context.Context, k client.KeyChange) error
		DeleteKey(ctx context.Context, id string) error
		Permissions(ctx context.Context) ([]api.Permission, error)
		PermissionGroups(ctx context.Context) ([]api.PermissionGroup, error)
		PermissionGroup(ctx context.Context, name string) (api.PermissionGroup, error)
		SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error
		DeletePermissionGroup(ctx context.Context, name string) error
		ResourcePermissions(ctx context.Context) ([]api.ResourcePermissions, error)
		Resources(ctx context.Context, group string) ([]api.Resource, error)
		SetResources(ctx context.Context, group string, all []api.Resource) error
	}
	for kind, resource := range map[farm.Service]api.Resource{
		farm.ServiceController: {ID: "n", IDType: "id", Type: "node", Permissions: []string{"list"}},
		farm.ServiceRegistry:   {ID: "t", IDType: "id", Type: "template", Permissions: []string{"pull", "list"}},
	} {
		s := servicetest.New(servicetest.Options{Service: kind})
		o := client.Options{
			Credentials: client.RootToken(servicetest.Root), Transport: direct{s},
			Retries: client.NoRetries,
		}
		var c store
		c, err := client.NewController("http://cloud.example", o)
		if kind == farm.ServiceRegistry {
			c, err = client.NewRegistry("http://cloud.example", o)
		}
		must(t, err)
		private, err := c.CreateKey(ctx, api.NewKey{ID: "ci+1", TTL: 3600, Groups: []string{"a"}})
		must(t, err)
		if _, err := client.ParseAPIKey("ci+1", private.Reveal()); err != nil {
			t.Error(err)
		}
		must(t, c.UpdateKey(ctx, client.KeyChange{ID: "ci+1", Groups: []string{"a", "b"}, TTL: 7200}))
		one, err := c.Key(ctx, "ci+1")
		if err != nil || len(one.Groups) != 2 || time.Until(one.Expiration) < time.Hour {
			t.Errorf("%s: %+v %v", kind, one, err)
		}
		if all, err := c.Keys(ctx); err != nil || len(all) != 1 {
			t.Errorf("%s: %v %v", kind, all, err)
		}
		must(t, c.DeleteKey(ctx, "ci+1"))
		if _, err := c.Key(ctx, "ci+1"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: %v", kind, err)
		}
		some, err := c.Permissions(ctx)
		if err != nil || len(some) != len(farm.AllPermissions(kind)) {
			t.Errorf("%s: %d permissions, %v", kind, len(some), err)
		}
		must(t, c.SetPermissionGroup(ctx, api.PermissionGroup{Name: "/team a/b", Permissions: []string{some[0].Name}}))
		if g, err := c.PermissionGroup(ctx, "/team a/b"); err != nil || len(g.Permissions) != 1 {
			t.Errorf("%s: %+v %v", kind, g, err)
		}
		if all, err := c.PermissionGroups(ctx); err != nil || len(all) != 1 {
			t.Errorf("%s: %v %v", kind, all, err)
		}
		must(t, c.DeletePermissionGroup(ctx, "/team a/b"))
		if _, err := c.PermissionGroup(ctx, "/team a/b"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: %v", kind, err)
		}
		rights, err := c.ResourcePermissions(ctx)
		if err != nil || len(rights) != 1 || rights[0].ResourceType != resource.Type {
			t.Errorf("%s: %v %v", kind, rights, err)
		}
		must(t, c.SetResources(ctx, "/the builders", []api.Resource{resource}))
		if got, err := c.Resources(ctx, "/the builders"); err != nil || len(got) != 1 || got[0].ID != resource.ID {
			t.Errorf("%s: %v %v", kind, got, err)
		}
		for _, name := range []string{"", ".", ".."} {
			if _, err := c.Resources(ctx, name); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: a group %q: %v", kind, name, err)
			}
		}
	}
}
