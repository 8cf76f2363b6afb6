package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/auth/oidc/oidctest"
	"github.com/buildyard/buildyard/test/rig"
)

// serviceAuth is what one service asks of its callers.
type serviceAuth struct {
	auth        bool
	keys        bool
	permissions bool // they count, after settings and license
	managed     bool // rights on single resources too
	vouched     bool // an identity provider
}

func (d serviceAuth) has(f feature) bool {
	return map[feature]bool{always: true, guarded: d.auth, keyed: d.auth && d.keys, managed: d.auth &&
		d.managed, vouched: d.auth && d.vouched}[f]
}

// deployment is the programs of one arrangement while they run.
type deployment struct {
	name      string
	dir       string
	split     bool
	sides     map[string]serviceAuth // by service
	settings  map[string]string      // of both, besides those that follow from the sides
	tls       bool                   // https, and client certificates
	secrets   *rig.Secrets
	programs  rig.Programs
	stand     *rig.TestEnv
	processes []*rig.Process
	addresses map[string]string // by service
	local     string            // the registry's port for programs of its machine
	queue     string            // the interface for nodes
	counts    string            // host and port of the metrics, of services in one process
	root      string
	token     string // with which nodes join

	ca           *certstest.Authority
	idp, foreign *oidctest.Provider
	plain        *http.Client
	guesser      *http.Client            // comes from a separate address, which the services limit
	clients      map[string]*http.Client // by the name in the certificate that they show

	private  *rsa.PrivateKey   // of all API keys
	public   string            // its other half
	sessions map[string]string // service and group -> Bearer value
	groups   map[string]bool   // service and group that there are
	keys     map[string]bool   // likewise
	node     member            // of this cloud
	ordered  member            // a node that was ordered to cache a template
	held     template          // that one
	other    template          // another one
	tokens   map[string]string // node id and purpose -> registry token
	cookie   map[string]string // by service: of a browser of the root user
}

// member is a node.
type member struct{ id, credential string }

// clientID and clientSecret are those of the services at the identity provider.
const clientID = "buildyard-matrix"

// secretText makes a secret of a kind and records it.
func secretText(s *rig.Secrets, kind string) string {
	return s.Note(kind, rand.Text())
}

// open starts the programs and learns what the columns need.
func (s *deployment) open(ctx context.Context) error {
	s.clients, s.sessions, s.groups, s.keys = map[string]*http.Client{}, map[string]string{}, map[string]bool{},
		map[string]bool{}
	s.addresses, s.cookie, s.tokens = map[string]string{}, map[string]string{}, map[string]string{}
	if s.root == "" {
		s.root = secretText(s.secrets, "root token") + "/+=%:"
		s.secrets.Note("root token", s.root)
	}
	if err := rig.MakeDir(s.dir); err != nil {
		return err
	}
	if err := s.stand.Do(func() { s.ca = certstest.New(s.stand, "Matrix") }); err != nil {
		return err
	}
	if err := s.makeKey(); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	return s.boot(ctx)
}

// makeKey makes the pair that all API keys share.
func (s *deployment) makeKey() (err error) {
	if s.private, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&s.private.PublicKey)
	s.public = base64.StdEncoding.EncodeToString(der)
	s.secrets.Note("private key", base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PrivateKey(s.private)))
	return err
}

// prepare chooses addresses and writes what the settings name.
func (s *deployment) prepare(ctx context.Context) error {
	var hosts [5]string
	for i := range hosts {
		var err error
		if hosts[i], err = rig.FreeAddr(ctx); err != nil {
			return err
		}
	}
	scheme := "http://"
	if s.tls {
		scheme = "https://"
	}
	s.addresses[controller], s.addresses[registry] = scheme+hosts[0], scheme+hosts[1]
	s.local, s.queue, s.counts = "http://"+hosts[2], "http://"+hosts[3], hosts[4]
	s.plain, s.guesser = s.newClient(nil), s.newClient(nil)
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	s.guesser.Transport.(*http.Transport).DialContext = other.DialContext
	tokenFile := filepath.Join(s.dir, "root.token")
	if err := os.WriteFile(tokenFile, []byte(s.root+"\n"), 0o600); err != nil {
		return err
	}
	program := s.programs.Path("buildyard")
	common, err := s.common() //nolint:contextcheck // the stand has it
	if err != nil {
		return err
	}
	data, base := filepath.Join(s.dir, "controller"), filepath.Join(s.dir, "registry")
	forController := s.of(controller, common, tokenFile, map[string]string{
		"SVC_LISTEN_ADDR": hosts[0], "SVC_DATA_DIR": data, "SVC_REGISTRY": s.addresses[registry],
		"SVC_LOCAL_LISTEN_ADDR": hosts[2], "SVC_QUEUE_ADDR": hosts[3],
		"SVC_INSTANCE_TIME_OUT": "1s",
	})
	forRegistry := s.of(registry, common, tokenFile,
		map[string]string{"SVC_LISTEN_ADDR": hosts[1], "SVC_BASE_PATH": base, "SVC_LOCAL_LISTEN_ADDR": hosts[2]})
	if s.split {
		delete(forController, "SVC_LOCAL_LISTEN_ADDR")
		r, c := rig.NewProcess(s.dir, "registry-service", program, "registry"),
			rig.NewProcess(s.dir, "controller-service", program, "controller")
		r.Set(forRegistry)
		c.Set(forController)
		s.processes = []*rig.Process{r, c}
		return nil
	}
	maps.Copy(forController, map[string]string{
		"SVC_REGISTRY_LISTEN_ADDRESS": hosts[1], "SVC_REGISTRY_BASE_PATH": base, "SVC_ENABLE_METRICS": "true",
		"SVC_METRICS_PORT":         hosts[4][strings.LastIndex(hosts[4], ":")+1:],
		"SVC_ENABLE_EVENT_LOGGING": "true", "SVC_ENABLE_CENTRAL_LOGGING": "true",
	})
	if s.sides[registry].permissions {
		forController["SVC_ENABLE_REGISTRY_AUTHORIZATION"] = "true"
	}
	up := rig.NewProcess(s.dir, "up", program, "up")
	up.Set(forController)
	s.processes = []*rig.Process{up}
	return nil
}

// common are the settings of both services.
func (s *deployment) common() (map[string]string, error) {
	settings := map[string]string{"SVC_LOG_LEVEL": "debug"}
	maps.Copy(settings, s.settings)
	if s.tls {
		var cert, key string
		if err := s.stand.Do(func() {
			cert, key = s.ca.Server(s.stand, "127.0.0.1").Files(s.stand, s.dir)
			certstest.Write(s.stand, filepath.Join(s.dir, "ca.pem"), s.ca.CertPEM())
		}); err != nil {
			return nil, err
		}
		maps.Copy(settings, map[string]string{
			"SVC_USE_HTTPS": "true", "SVC_SERVER_CERT": cert, "SVC_SERVER_KEY": key,
			"SVC_CA_CERT": filepath.Join(s.dir, "ca.pem"),
		})
	}
	if !s.sides[controller].vouched {
		return settings, nil
	}
	secret, file := secretText(s.secrets, "secret at the identity provider"), filepath.Join(s.dir, "client.secret")
	err := s.stand.Do(func() {
		s.idp, s.foreign = oidctest.New(s.stand), oidctest.New(s.stand)
		s.idp.Client(s.stand, clientID, secret, s.addresses[controller]+oidc.CallbackPath)
	})
	maps.Copy(settings, map[string]string{
		"SVC_OIDC_PROVIDER_URL": s.idp.URL, "SVC_OIDC_CLIENT_ID": clientID, "SVC_OIDC_CLIENT_SECRET_FILE": file,
	})
	return settings, errors.Join(err, os.WriteFile(file, []byte(secret), 0o600))
}

// of are the settings of one service.
func (s *deployment) of(
	service string, common map[string]string, tokenFile string, own map[string]string,
) map[string]string {
	d, settings := s.sides[service], maps.Clone(common)
	maps.Copy(settings, own)
	if !d.auth {
		return settings
	}
	settings["SVC_ENABLE_AUTH"], settings["SVC_ROOT_TOKEN_FILE"] = "true", tokenFile
	for key, on := range map[string]bool{
		"SVC_ENABLE_API_KEYS": d.keys, "SVC_ENABLE_RESOURCE_MANAGEMENT": d.managed,
		"SVC_ENABLE_CONTROLLER_AUTHORIZATION": d.permissions && service == controller,
		"SVC_ENABLE_AUTHORIZATION":            d.permissions && service == registry,
	} {
		if on {
			settings[key] = "true"
		}
	}
	return settings
}

// boot starts the programs, and joins a node.
func (s *deployment) boot(ctx context.Context) error {
	for _, p := range s.processes {
		if err := p.Start(); err != nil {
			return err
		}
	}
	for i, service := range []string{registry, controller} {
		if err := rig.ReadyBy(ctx, s.processes[min(i, len(s.processes)-1)], s.addresses[service],
			s.plain.Transport); err != nil {
			return err
		}
	}
	if s.node.id != "" {
		return nil
	}
	var err error
	if s.token, err = rig.Output(ctx, "", s.programs.Path("buildyard"), "node", "token", "--data-dir",
		filepath.Join(s.dir, "controller")); err != nil {
		return err
	}
	s.secrets.Note("join token", s.token)
	if s.node, err = s.join(ctx, s.token, "own"); err != nil {
		return err
	}
	return nil
}

// restart ends the programs and starts them again, with changed settings.
func (s *deployment) restart(ctx context.Context, settings map[string]string) error {
	for _, p := range s.processes {
		if err := p.End(); err != nil {
			return err
		}
		p.Set(settings)
	}
	return s.boot(ctx)
}

// close ends the programs.
func (s *deployment) close() (err error) {
	for _, p := range s.processes {
		err = errors.Join(err, p.End())
	}
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
	return err
}

// tails returns the last output of the programs.
func (s *deployment) tails() string {
	var out strings.Builder
	for _, p := range s.processes {
		fmt.Fprintf(&out, "--- %s of %s\n%s\n", p.Name, s.name, p.Tail())
	}
	return out.String()
}

// newClient makes a client that trusts the services, and shows a certificate when one is given.
func (s *deployment) newClient(pair *certstest.Pair) *http.Client {
	config := &tls.Config{RootCAs: certstest.Pool(s.ca), MinVersion: tls.VersionTLS12}
	if pair != nil {
		config.Certificates = []tls.Certificate{pair.TLS()}
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 16, DisableCompression: true},
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// shows returns a client with a certificate of a user whose only group is given.
func (s *deployment) shows(group string) (c *http.Client, err error) {
	if c = s.clients[group]; c != nil {
		return c, nil
	}
	err = s.stand.Do(func() {
		pair := s.ca.Client(s.stand, "certified "+group, group)
		c = s.newClient(&pair)
	})
	s.clients[group] = c
	return c, err
}
