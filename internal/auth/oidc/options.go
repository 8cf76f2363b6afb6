package oidc

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
)

// CallbackPath is where the provider sends browsers back to.
const CallbackPath = "/oidc/v1/callback"

// Options are the trusted provider and how its claims are used.
type Options struct {
	ClientID      string
	ClientSecret  auth.Secret // zero: a public client
	ProviderURL   string      // the issuer; https, or http on this machine
	DisplayName   string      // the provider's name on the login page; "": the host of its address
	UsernameClaim string      // "": preferred_username
	GroupsClaim   string      // "": groups
	Scopes        []string    // nil: openid, profile and email; openid is always asked for

	PublicURL string       // address under which browsers reach this service; "": as they ask
	Proxied   bool         // a reverse proxy is in front, and its X-Forwarded-Proto is trusted
	Signer    *auth.Signer // shared by all replicas; signs logins in progress

	// ShowFailure shows a login that failed, as one sentence; nil: as plain text.
	ShowFailure func(w http.ResponseWriter, r *http.Request, status int, sentence string)
	Transport   http.RoundTripper // to the provider; nil: its own, which verifies certificates
	Logger      *slog.Logger
	Now         func() time.Time // nil: time.Now
}

// Public is the public description of the provider: the member oidc of the response of GET
// /config/v1/auth, with which clients discover the login.
type Public struct {
	UserNameField string `json:"user_name_field"`
	GroupsField   string `json:"groups_field"`
	ProviderURL   string `json:"provider_url"`
}

// Provider is an identity provider. Its methods may be called from everywhere.
type Provider struct {
	opts       Options
	issuer     string
	http       *http.Client
	metadata   *cachedFetch[metadata]
	keys       *cachedFetch[keySet]
	loginSlots chan struct{} // holds a token for each login that calls the provider
}

// New checks the options. It does not call the provider: see Warm.
func New(o Options) (*Provider, error) {
	o.ProviderURL = strings.TrimSuffix(o.ProviderURL, discoveryPath)
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("configure identity provider: %w", err)
	}
	o = o.withDefaults()
	p := &Provider{opts: o, issuer: o.ProviderURL, http: newHTTP(o.Transport), loginSlots: make(chan struct{},
		maxLogins)}
	p.metadata = newCachedFetch("description", p.fetchMetadata, o)
	p.keys = newCachedFetch("keys", p.fetchKeys, o)
	return p, nil
}

func (o Options) check() error {
	if o.ClientID == "" {
		return errors.New("the OIDC client ID is missing")
	}
	if o.Signer == nil {
		return errors.New("the signer of login states is missing")
	}
	if _, err := checkAddress(o.ProviderURL); err != nil {
		return fmt.Errorf("the URL of the identity provider is %w", err)
	}
	if o.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(o.PublicURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil || u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "" {
		return errors.New("the public URL of this service is not of the form https://host")
	}
	return nil
}

// withDefaults sets the defaults of options that have been checked.
func (o Options) withDefaults() Options {
	if u, err := url.Parse(o.ProviderURL); err == nil {
		o.DisplayName = cmp.Or(o.DisplayName, u.Hostname())
	}
	o.UsernameClaim, o.GroupsClaim = cmp.Or(o.UsernameClaim, "preferred_username"), cmp.Or(o.GroupsClaim, "groups")
	o.Scopes = splitScopes(o.Scopes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ShowFailure == nil {
		o.ShowFailure = failPlainly
	}
	return o
}

// splitScopes splits lists that are separated by commas or spaces.
func splitScopes(given []string) []string {
	var out []string
	for _, g := range given {
		out = append(out, strings.FieldsFunc(g, func(r rune) bool { return r == ' ' || r == ',' })...)
	}
	if len(out) == 0 {
		out = []string{"profile", "email"}
	}
	if !slices.Contains(out, "openid") {
		out = append([]string{"openid"}, out...)
	}
	return out
}

// Public returns the public description of the provider.
func (p *Provider) Public() Public {
	return Public{UserNameField: p.opts.UsernameClaim, GroupsField: p.opts.GroupsClaim, ProviderURL: p.opts.ProviderURL}
}

// DisplayName returns the provider's name on the login page.
func (p *Provider) DisplayName() string { return p.opts.DisplayName }

var errAddress = errors.New(
	"not of the form https://host (http is allowed only for this machine)")

// checkAddress accepts only addresses whose connections cannot be forged.
func checkAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errAddress
	}
	if u.Scheme == "https" || (u.Scheme == "http" && isLocal(u.Hostname())) {
		return u, nil
	}
	return nil, errAddress
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
