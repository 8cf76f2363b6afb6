package authrest_test

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/certs"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/auth/oidc/oidctest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
)

const (
	rootToken    = "t0ken:of/root+with space"
	clientID     = "buildyard"
	clientSecret = "s3cret-of-the-client"
)

// site is a service with every feature enabled: TLS, certificates, an identity provider, keys, grants. It
// records its log, which must contain none of its secrets when its test ends.
type site struct {
	options  authrest.Options
	keys     *auth.APIKeys
	table    *auth.KeyTable // of keys
	sessions *auth.Sessions
	grants   *auth.GrantTable
	idp      *oidctest.Provider
	ca       *certstest.Authority
	url      string

	mu      sync.Mutex // guards the fields below
	log     bytes.Buffer
	secrets []string
}

func (s *site) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

// hush notes a secret.
func (s *site) hush(secret string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(secret) >= 8 {
		s.secrets = append(s.secrets, secret)
	}
	return secret
}

func (s *site) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSite(t *testing.T, service farm.Service, change ...func(*authrest.Options)) *site {
	t.Helper()
	s := &site{idp: oidctest.New(t), ca: certstest.New(t, "CA")}
	log := slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.url = "https://" + listener.Addr().String()

	dir := t.TempDir()
	authorities := filepath.Join(dir, "ca.pem")
	certstest.Write(t, authorities, s.ca.CertPEM())
	clients, err := certs.OpenClients(certs.ClientOptions{CA: authorities, Logger: log})
	must(t, err)
	cert, key := s.ca.Server(t, "127.0.0.1").Files(t, dir)
	pair, err := certs.Open(certs.Options{Cert: cert, Key: key, Clients: clients, Logger: log})
	must(t, err)

	signer := auth.NewSigner(auth.NewKeyRing(time.Now()))
	provider, err := oidc.New(oidc.Options{
		ClientID: clientID, ClientSecret: auth.NewSecret(s.hush(clientSecret)), ProviderURL: s.idp.URL,
		DisplayName: "The <Firm>",
		Signer:      signer, Logger: log, ShowFailure: authrest.ShowLoginPage(nil).Fail,
	})
	must(t, err)
	s.idp.Client(t, clientID, clientSecret, s.url+oidc.CallbackPath)

	root, err := auth.NewRootToken(s.hush(rootToken))
	must(t, err)
	s.table = auth.NewKeyTable(nil, nil)
	s.keys, s.grants = auth.NewAPIKeys(s.table), auth.NewGrantTable(auth.Grants{}, nil)
	s.sessions = auth.NewSessions(s.keys, signer, 0)
	logins, guesses := auth.NewLoginCookies(signer, root, s.idp.URL, s.keys), &auth.GuessLimiter{}
	s.options = authrest.Options{
		Service: service, Keys: s.keys, Handshake: auth.NewTAP(s.sessions, &auth.MemoryNonces{}),
		Sessions: s.sessions, Grants: s.grants,
		ResourcesManaged: true,
		LoginCookies:     logins, RootToken: root, Provider: provider, GuessLimiter: guesses,
	}
	for _, c := range change {
		c(&s.options)
	}
	guard, err := rest.NewGuard(rest.GuardOptions{
		Identifier: &auth.Authenticator{
			Root: root, Sessions: s.sessions, Logins: logins, Certificate: clients.Identity,
			JWT: provider.Verify,
		},
		Authorizer: auth.NewAuthorizer(auth.Policy{
			Service: service, Tier: farm.TierEnterprisePlus, Authorization: true, Resources: true,
		}, s.grants),
		GuessLimiter: guesses, Logger: log,
	})
	must(t, err)
	routes := append(authrest.Routes(s.options),
		rest.Route{Pattern: "GET /vm", Permission: "list_vms", Handle: func(r *rest.Request) (any, error) {
			return rest.CallerOf(r.Context()).Name, nil
		}}, rest.Route{Pattern: "GET /{$}", Permission: rest.AnyCredential, Handle: func(*rest.Request) (any, error) {
			return "front",
				nil
		}})
	server := &http.Server{
		Handler: guard.Handler(routes, log), TLSConfig: pair.Config(), ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		must(t, server.Close())
		for _, secret := range s.secrets {
			if i := strings.Index(s.logged(), secret); i >= 0 {
				t.Errorf("the secret %.20s... is in the log: %.300s", secret, s.logged()[max(0, i-100):])
			}
		}
	})
	return s
}

// client returns a client that trusts the site and uses a certificate when one is given.
func (s *site) client(t *testing.T, pairs ...tls.Certificate) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: certstest.Pool(s.ca), Certificates: pairs},
		MaxIdleConnsPerHost: 8,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Jar: jar, Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// answer is a response.
type answer struct {
	code   int
	text   string
	header http.Header
}

// message decodes the envelope.
func (a answer) message(t testing.TB) (status, message string, body json.RawMessage) {
	t.Helper()
	var e struct {
		Status, Message string
		Body            json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.text), &e); err != nil {
		t.Fatalf("%d %.200q: %v", a.code, a.text, err)
	}
	return e.Status, e.Message, e.Body
}

// do sends a request; header is names and values in turn.
func (s *site) do(t testing.TB, c *http.Client, what, body string, header ...string) answer {
	t.Helper()
	method, path, _ := strings.Cut(what, " ")
	if strings.HasPrefix(path, "/") {
		path = s.url + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, string(text), resp.Header}
}

// asRoot sends a request of the root user and requires status 200.
func (s *site) asRoot(t testing.TB, c *http.Client, what, body string) answer {
	t.Helper()
	a := s.do(t, c, what, body, "Authorization", rootBasic(rootToken))
	if a.code != 200 {
		t.Errorf("%s %s: %d %s", what, body, a.code, a.text)
	}
	return a
}

func rootBasic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+token))
}

// makeKey creates a key with the API and returns its private half.
func (s *site) makeKey(t testing.TB, c *http.Client, id string, groups ...string) *rsa.PrivateKey {
	t.Helper()
	body, err := json.Marshal(map[string]any{"id": id, "ttl": 3600, "groups": append([]string{}, groups...)})
	must(t, err)
	path := map[farm.Service]string{
		farm.ServiceController: "/api/v1/apikey", farm.ServiceRegistry: "/v1/apikey",
	}[s.options.Service]
	_, _, text := s.asRoot(t, c, "POST "+path, string(body)).message(t)
	var private string
	must(t, json.Unmarshal(text, &private))
	s.hush(private)
	der, err := base64.StdEncoding.DecodeString(private)
	must(t, err)
	key, err := x509.ParsePKCS1PrivateKey(der)
	must(t, err)
	return key
}

// hand returns the secret of a handshake, decrypted as clients do.
func (s *site) hand(t testing.TB, c *http.Client, id string, key *rsa.PrivateKey) string {
	t.Helper()
	a := s.do(t, c, "POST /tap/v1/hand", `{"id":"`+id+`"}`)
	raw, err := base64.StdEncoding.DecodeString(a.text) // nothing around it, not even a line end
	if err != nil || a.code != 200 || strings.ContainsAny(a.text, "\r\n") {
		t.Fatalf("%d %q %v", a.code, a.text, err)
	}
	plain, err := rsa.DecryptOAEP(sha256.New(), nil, key, raw, nil)
	must(t, err)
	return s.hush(string(plain))
}

// session performs all steps from a key to a Bearer value.
func (s *site) session(t testing.TB, c *http.Client, id string, key *rsa.PrivateKey) string {
	t.Helper()
	a := s.do(t, c, "POST /tap/v1/shake", `{"id":"`+id+`","secret":"`+s.hand(t, c, id, key)+`"}`)
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.text), &got); err != nil || a.code != 200 || len(got) != 2 ||
		string(got["id"]) != `"`+id+`"` {
		t.Fatalf("%d %s %v", a.code, a.text, err)
	}
	return s.bearer(t, got["data"])
}

// bearer makes the value of a header of a session as JSON.
func (s *site) bearer(t testing.TB, data []byte) string {
	t.Helper()
	var session api.Session
	must(t, json.Unmarshal(data, &session))
	s.hush(session.Token)
	return "Bearer " + s.hush(base64.StdEncoding.EncodeToString(data))
}

// grant returns a permission group permissions.
func (s *site) grant(t testing.TB, group string, list ...farm.Permission) {
	t.Helper()
	must(t, s.grants.Change(t.Context(),
		func(g auth.Grants) (auth.Grants, error) { return g.SetGroup(s.options.Service, group, list) }))
}
