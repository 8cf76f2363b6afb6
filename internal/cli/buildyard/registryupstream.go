package buildyard

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/auth/certs"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// upstream is the registry as the controller calls it: its address and the credentials. Requests on
// behalf of a user carry that user's name.
type upstream struct {
	address     string
	clientTrust certs.ClientTrust
	credentials *client.Registry // nil: no credentials
	pipe        *pipe            // to the registry in this process; nil: over the network
	log         *slog.Logger
}

// localUpstream returns the registry in this process, which requires no credentials.
func localUpstream(to *pipe, log *slog.Logger) *upstream {
	return &upstream{address: pipeURL, pipe: to, log: log}
}

// openUpstream returns the registry at an address. local reports that it is the port for programs
// of this machine of the registry in this process, which requires no credentials.
func openUpstream(address string, local bool, v *config.Values, log *slog.Logger) (*upstream, error) {
	u := &upstream{address: address, log: log, clientTrust: certs.ClientTrust{
		CA: v.String(config.RegistryCA), Skip: v.Bool(config.SkipTLSVerification),
	}}
	if local {
		return u, nil
	}
	creds, err := registryCredentials(v)
	if creds == nil || err != nil {
		return u, err
	}
	u.credentials, err = client.NewRegistry(address, client.Options{
		Credentials: creds, UserAgent: "buildyard controller",
		TLS: client.TLS{CAFile: u.clientTrust.CA, SkipVerify: u.clientTrust.Skip},
	})
	return u, err
}

// registryCredentials returns the credentials of the controller at the registry: an API key, else
// the root token that both share; nil for none.
func registryCredentials(v *config.Values) (client.Credentials, error) {
	id, private := v.String(config.APIKeyID), v.String(config.APIKeyString)
	switch {
	case (id == "") != (private == ""):
		return nil, fmt.Errorf("%s and %s must be set together", config.APIKeyID, config.APIKeyString)
	case id != "":
		key, err := client.ParseAPIKey(id, private)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", config.APIKeyString, err)
		}
		return key, nil
	}
	if token := v.String(config.AuthRootToken); token != "" {
		return client.RootToken(token), nil
	}
	return nil, nil // no credentials
}

// authorize adds the credentials to a request, and the user on whose behalf it is made.
func (u *upstream) authorize(r *http.Request) error {
	rest.SetForwardedUser(r)
	if u.credentials == nil {
		return nil
	}
	err := u.credentials.Authorize(r)
	switch client.CodeOf(err) {
	case client.ErrUnreachable, client.ErrUnavailable:
		return farm.Unavailable(err, "The registry at %s cannot be reached; try again", u.address)
	case client.ErrUnauthenticated:
		return credentialsRejected(u.address, err)
	}
	return err
}

// credentialsRejected is the error of a registry that rejects the controller's credentials.
func credentialsRejected(address string, err error) error {
	return farm.Unavailable(err,
		"The registry at %s rejected the controller's credentials: set the same %s at both, or %s and %s of a key "+
			"of the registry at the controller", address, config.AuthRootToken, config.APIKeyID, config.APIKeyString)
}

func (u *upstream) renew(r *http.Request) bool { return u.credentials != nil && u.credentials.Renew(r) }

// client returns a client that makes each call once, without retries.
func (u *upstream) client() (*transfer.Client, error) {
	config, err := u.clientTrust.Config()
	if err != nil {
		return nil, err
	}
	return transfer.New(transfer.Options{
		BaseURL: u.address, TLS: config, Logger: u.log, MaxAttempts: 1, Authorize: u.authorize,
		RenewCredentials: u.renew,
	})
}

// passOnTimeout is the timeout of the registry's response headers for passed-on requests: clients time out
// after 5 s.
const passOnTimeout = 4 * time.Second

// transport returns the transport for requests that the controller passes on to the registry.
func (u *upstream) transport() (http.RoundTripper, error) {
	config, err := u.clientTrust.Config()
	if err != nil {
		return nil, err
	}
	dial := (&net.Dialer{Timeout: passOnTimeout, KeepAlive: 15 * time.Second}).DialContext
	if u.pipe != nil {
		dial = u.pipe.Dial
	}
	return &credentialTransport{u, &http.Transport{
		DialContext:           dial,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   passOnTimeout,
		ResponseHeaderTimeout: passOnTimeout,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   8,
		DisableCompression:    true, // responses are passed on unchanged
	}}, nil
}

// credentialTransport adds the controller's credentials to requests without a body.
type credentialTransport struct {
	upstream *upstream
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (p *credentialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	for last := false; ; last = true {
		try := r.Clone(r.Context())
		if err := p.upstream.authorize(try); err != nil {
			return nil, err
		}
		resp, err := p.next.RoundTrip(try)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		_ = resp.Body.Close()
		if last || !p.upstream.renew(try) {
			return nil, credentialsRejected(p.upstream.address, errors.New("response status 401"))
		}
	}
}
