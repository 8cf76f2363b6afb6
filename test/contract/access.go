package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// access has the credentials of the calls of a run with authentication. A nil one has none, and the
// services require none.
type access struct {
	kind    string // one of the credentials below
	dir     string
	secrets *rig.Secrets
	stand   *rig.TestEnv
	ca      *certstest.Authority
	// Connections that trust the services: alone, and with a client certificate.
	trusting, showing *http.Transport

	mu    sync.Mutex
	opens map[string]client.Credentials // by the address of a service: what opens sessions there
}

// The credentials of the runs.
const (
	byRoot        = "root token"
	byKey         = "key with handshake"
	byCertificate = "client certificate"
)

// user is the name of the user of the calls: ID of the key, name in the certificate.
const user = "suite"

// everyone is the permission group of that user, which has every permission.
const everyone = "everyone"

// rootToken is the token that clients put on each call, whether they are asked for it or not.
const rootToken = "t0ken/with+special=&characters"

// newAccess makes what a kind of credentials needs.
func newAccess(ctx context.Context, kind, dir string, secrets *rig.Secrets) (*access, error) {
	a := &access{kind: kind, dir: filepath.Join(dir,
		"access"), secrets: secrets, stand: rig.NewStand(ctx), opens: map[string]client.Credentials{}}
	secrets.Note("root token", rootToken)
	if err := rig.MakeDir(a.dir); err != nil {
		return nil, err
	}
	err := a.stand.Do(func() {
		a.ca = certstest.New(a.stand, "Contract")
		certstest.Write(a.stand, a.file("ca.pem"), a.ca.CertPEM())
		server, caller := a.ca.Server(a.stand, "127.0.0.1"), a.ca.Client(a.stand, user, everyone)
		for name, text := range map[string][]byte{
			"server.pem": server.CertPEM(), "server.key": server.KeyPEM(a.stand), "caller.pem": caller.CertPEM(),
			"caller.key": caller.KeyPEM(a.stand),
			"root.token": []byte(rootToken),
		} {
			if err := os.WriteFile(a.file(name), text, 0o600); err != nil {
				a.stand.Fatal(err)
			}
		}
		a.trusting, a.showing = a.transport(), a.transport(caller.TLS())
	})
	return a, err
}

func (a *access) file(name string) string { return filepath.Join(a.dir, name) }

func (a *access) transport(shown ...tls.Certificate) *http.Transport {
	return &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 32,
		TLSClientConfig: &tls.Config{RootCAs: certstest.Pool(a.ca), Certificates: shown, MinVersion: tls.VersionTLS12},
	}
}

// scheme is that of the services' addresses.
func (a *access) scheme() string {
	if a != nil && a.kind == byCertificate {
		return "https://"
	}
	return "http://"
}

// features are what is on, by the words of x-when.
func (a *access) features() []string {
	if a == nil {
		return nil
	}
	return []string{"authentication", "API keys"}
}

// settings are those of every service. But for the root token, permissions count.
func (a *access) settings() map[string]string {
	if a == nil {
		return nil
	}
	on := map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN_FILE": a.file("root.token"), "SVC_ENABLE_API_KEYS": "true",
		"SVC_LOCAL_LISTEN_ADDR": "127.0.0.1:0", "SVC_LOG_LEVEL": "debug",
	}
	if a.kind != byRoot {
		maps.Copy(on, map[string]string{"SVC_ENABLE_AUTHORIZATION": "true"})
	}
	if a.kind == byCertificate {
		maps.Copy(on, map[string]string{
			"SVC_USE_HTTPS": "true", "SVC_SERVER_CERT": a.file("server.pem"), "SVC_SERVER_KEY": a.file("server.key"),
			"SVC_CA_CERT": a.file("ca.pem"),
		})
	}
	return on
}

// logLevel is that of the services.
func (a *access) logLevel() string {
	if a == nil {
		return "warn"
	}
	return "debug" // secrets are looked for in it
}

// arguments are those of a command that asks a registry.
func (a *access) arguments(c *cloud) []string {
	switch {
	case a == nil:
		return nil
	case a.kind == byKey:
		return []string{"--api-key-id", user, "--api-key-file", a.file(c.name + ".key")}
	case a.kind == byCertificate:
		return []string{
			"--ca-cert", a.file("ca.pem"), "--client-cert", a.file("caller.pem"), "--client-key",
			a.file("caller.key"),
		}
	}
	return []string{"--token-file", a.file("root.token")}
}

// remote is where such a command asks: a proxy shows no certificate.
func (a *access) remote(c *cloud) string {
	if a != nil && a.kind == byCertificate {
		return c.registry
	}
	return c.proxies[1].address
}

// rootHeader is the credential of the root user.
func rootHeader() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+rootToken))
}

// vars are the variables of credentials that cases have.
func (a *access) vars() vars {
	if a == nil {
		// some clients send one whether it is asked for or not
		return vars{"basic": "Basic OnQwa2Vu", "caller_keys": ""}
	}
	callerKeys := "user address request" // what events say of their callers
	if a.kind == byKey {
		callerKeys += " key_id"
	}
	return vars{"basic": basic(""), "basic_root": rootHeader(), "root_token": rootToken, "caller_keys": callerKeys}
}

// handshakes opens a session at each service, through the proxies.
func handshakes(ctx context.Context, p *caseRunner) error {
	for _, c := range p.stage.clouds {
		for _, front := range c.proxies {
			if _, err := p.stage.access.session(ctx, front); err != nil {
				return err
			}
		}
	}
	return nil
}

// enroll makes the user known at the services of a cloud: with every permission, and a key.
func (a *access) enroll(ctx context.Context, c *cloud, services ...*proxy) error {
	if a == nil {
		return nil
	}
	private := ""
	for i, p := range services {
		root, err := a.asRoot(p, i == 1)
		if err != nil {
			return err
		}
		all, err := root.Permissions(ctx)
		if err != nil {
			return fmt.Errorf("permissions of %s: %w", c.name, err)
		}
		group := api.PermissionGroup{Name: everyone}
		for _, one := range all {
			group.Permissions = append(group.Permissions, one.Name)
		}
		if err := root.SetPermissionGroup(ctx, group); err != nil {
			return fmt.Errorf("permissions of %s: %w", c.name, err)
		}
		made, err := root.CreateKey(ctx, api.NewKey{ID: user, TTL: 3600, Groups: []string{everyone}})
		if err == nil {
			private = a.secrets.Note("private key", made.Reveal())
		} else if i == 0 || private == "" {
			return fmt.Errorf("key of %s: %w", c.name, err)
		}
		if err := a.opened(p, private); err != nil {
			return err
		}
	}
	if len(services) < 2 {
		return nil
	}
	return os.WriteFile(a.file(c.name+".key"), []byte(private), 0o600)
}

// administration is what the clients of both services can do.
type administration interface {
	Permissions(ctx context.Context) ([]api.Permission, error)
	SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error
	CreateKey(ctx context.Context, k api.NewKey) (client.PrivateKey, error)
}

func (a *access) asRoot(p *proxy, registry bool) (administration, error) {
	o := client.Options{Credentials: client.RootToken(rootToken)}
	if registry {
		return client.NewRegistry(p.address, o)
	}
	return client.NewController(p.address, o)
}

// opened keeps a key for the sessions at a service.
func (a *access) opened(p *proxy, private string) error {
	key, err := client.ParseAPIKey(user, private)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opens[p.address] = key
	return err
}

// session returns the header of a session of the user at a service.
func (a *access) session(ctx context.Context, p *proxy) (string, error) {
	a.mu.Lock()
	key := a.opens[p.address]
	a.mu.Unlock()
	if key == nil { // a service of the suite's own, without authentication
		return "", nil
	}
	c, err := client.NewController(p.address, client.Options{Credentials: key})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address, nil)
	if err != nil {
		return "", err
	}
	if err := c.Authorize(r); err != nil {
		return "", err
	}
	header := r.Header.Get("Authorization")
	a.secrets.Note("session", strings.TrimPrefix(header, "Bearer "))
	return header, nil
}

// secretFields are the fields of answers that hold secrets.
var secretFields = map[string]string{ //nolint:gosec // names of fields
	"credential": "credential of a node", "pass": "pass of a node", "token": "token of a session",
}

// shortestKey is the length of a text that is a private key, where it is the body of an answer.
const shortestKey = 1000

// learn records the secrets of an answer.
func (a *access) learn(got *answer) {
	if a == nil {
		return
	}
	for _, c := range (&http.Response{Header: got.header}).Cookies() {
		a.secrets.Note("cookie", c.Value)
	}
	a.learnValue("body", got.value)
}

func (a *access) learnValue(name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for field, inner := range v {
			if _, ofRights := v["enforced"]; ofRights && field == "credential" {
				continue // how the caller logged in, such as "certificate"
			}
			a.learnValue(field, inner)
		}
	case string:
		if kind := secretFields[name]; kind != "" {
			a.secrets.Note(kind, v)
		} else if name == "body" && len(v) > shortestKey {
			a.secrets.Note("private key", v)
		}
	}
}

// by returns the connections of the suite's own calls to a service, direct ones and those through
// its proxy.
func (a *access) by(p *proxy) http.RoundTripper {
	if a == nil {
		return plain
	}
	return &signing{a, p}
}

// plain are the connections without authentication.
var plain = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32}

// signing puts the user's credential on calls that have none.
type signing struct {
	a *access
	p *proxy
}

// rootOnly are the beginnings of paths that only the root user may call.
var rootOnly = []string{"/api/v1/apikey", "/v1/apikey", "/api/v1/admin/backup"}

// unsigned are the beginnings of paths that are called by nodes, or without authentication.
var unsigned = []string{"/queue/", "/pkg/", "/tap/"}

func begins(path string, with []string) bool {
	for _, beginning := range with {
		if strings.HasPrefix(path, beginning) {
			return true
		}
	}
	return false
}

// certHeader asks a proxy to show the user's certificate; no service sees it.
const certHeader = "X-Contract-Certificate"

// RoundTrip implements http.RoundTripper.
func (s *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" || begins(r.URL.Path, unsigned) {
		return s.a.trusting.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	switch {
	case s.a.kind == byRoot, begins(r.URL.Path, rootOnly):
		r.Header.Set("Authorization", rootHeader())
	case s.a.kind == byKey:
		header, err := s.a.session(r.Context(), s.p) //nolint:contextcheck // it is the request's
		if err != nil {
			return nil, err
		}
		if header != "" {
			r.Header.Set("Authorization", header)
		}
	case r.URL.Scheme == "https":
		return s.a.showing.RoundTrip(r)
	default:
		r.Header.Set(certHeader, "yes")
	}
	return s.a.trusting.RoundTrip(r)
}

// passing are the connections of a proxy.
type passing struct{ a *access }

// RoundTrip implements http.RoundTripper.
func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.a == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	if r.Header.Get(certHeader) != "" {
		r.Header.Del(certHeader)
		return p.a.showing.RoundTrip(r)
	}
	return p.a.trusting.RoundTrip(r)
}

// ready waits until a service is ready.
func (a *access) ready(ctx context.Context, p *rig.Process, address string) error {
	if a == nil {
		return rig.Ready(ctx, p, address)
	}
	return rig.ReadyBy(ctx, p, address, a.trusting)
}

// close ends the connections.
func (a *access) close() {
	if a == nil {
		return
	}
	a.trusting.CloseIdleConnections()
	a.showing.CloseIdleConnections()
	a.stand.Close()
}

// transfers are the options of a client of a registry that is called by the root user.
func (a *access) transfers(registry string) transfer.Options {
	o := transfer.Options{BaseURL: registry}
	if a != nil {
		o.TLS = a.trusting.TLSClientConfig
		o.Authorize = func(r *http.Request) error {
			r.Header.Set("Authorization", rootHeader())
			return nil
		}
	}
	return o
}
