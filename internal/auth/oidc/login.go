package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/buildyard/buildyard/internal/farm"
)

const (
	maxLogins          = 16               // that call the provider at a time; their begin is not limited
	loginTimeout       = 12 * time.Second // for all calls of one login
	maxProviderMessage = 200              // characters of the provider's message about a failure
	returnName         = "return"         // parameter of Login
)

// Login is a user authenticated by the provider.
type Login struct {
	Name       string
	Groups     []string
	ReturnPath string // where the browser wanted to go: a path of this service
}

// Begin redirects a browser to the provider. The query's "return" is the path to which the browser
// returns in the end.
func (p *Provider) Begin(w http.ResponseWriter, r *http.Request) {
	setNoStore(w)
	m, err := p.metadata.get(r.Context(), acceptAny)
	if err != nil {
		p.showFailure(w, r, err)
		return
	}
	f := newFlow(p.callbackAddress(r), r.URL.Query().Get(returnName), p.opts.Now())
	http.SetCookie(w, flowCookie(p.signFlow(f), f.CallbackURL))
	address := p.oauthConfig(m, f).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier))
	http.Redirect(w, r, address, http.StatusFound) //nolint:gosec // the address is the provider's own; what the browser has given is in its query
}

// Callback ends a login: it passes the authenticated user to done, which answers the request.
func (p *Provider) Callback(done func(http.ResponseWriter, *http.Request, Login)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		setNoStore(w)
		http.SetCookie(w, flowCookie("", p.callbackAddress(r))) // a login ends once
		login, err := p.finishLogin(r)
		if err != nil {
			p.showFailure(w, r, err)
			return
		}
		done(w, r, login)
	}
}

// setNoStore keeps codes out of caches and out of the Referer header.
func setNoStore(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
}

// oauthConfig returns the OAuth configuration of this service at the provider.
func (p *Provider) oauthConfig(m metadata, f loginFlow) *oauth2.Config {
	e := m.oauthEndpoint()
	if p.opts.ClientSecret.Reveal() == "" {
		e.AuthStyle = oauth2.AuthStyleInParams // a public client sends only its ID
	}
	return &oauth2.Config{
		ClientID: p.opts.ClientID, ClientSecret: p.opts.ClientSecret.Reveal(), Endpoint: e,
		RedirectURL: f.CallbackURL, Scopes: p.opts.Scopes,
	}
}

// finishLogin checks that the callback belongs to a login of this browser, and requests the user from the
// provider.
func (p *Provider) finishLogin(r *http.Request) (Login, error) {
	kept, err := r.Cookie(cookieName)
	if err != nil {
		return Login{}, retryError(errFlow)
	}
	f, err := p.verifyFlow(kept.Value)
	q := r.URL.Query()
	if err != nil || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(f.State)) != 1 {
		return Login{}, retryError(errFlow)
	}
	if code := q.Get("error"); code != "" {
		return Login{}, deniedError(code, q.Get("error_description"))
	}
	select {
	case p.loginSlots <- struct{}{}:
		defer func() { <-p.loginSlots }()
	default:
		return Login{}, farm.Errorf(farm.CodeBusy, "Too many logins in progress; try again in a few seconds")
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginTimeout)
	defer cancel()
	m, err := p.metadata.get(ctx, acceptAny)
	if err != nil {
		return Login{}, err
	}
	if iss := q.Get("iss"); iss != "" && iss != m.Issuer { // RFC 9207
		return Login{}, retryError(errors.New("the response is from another identity provider"))
	}
	who, err := p.redeemCode(ctx, m, f, q.Get("code"))
	return Login{Name: who.name, Groups: who.groups, ReturnPath: f.ReturnPath}, err
}

// retryError is the error of a login that may succeed when it is begun again.
func retryError(cause error) error {
	return &farm.Error{Code: farm.CodeInvalid, Message: "The login failed (" + cause.Error() +
		"); log in again", Err: cause}
}

// deniedError returns the error with which the provider has refused a login.
func deniedError(code, description string) error {
	said := printableText(code)
	if description = printableText(description); description != "" {
		said += ": " + description
	}
	return farm.Errorf(farm.CodeForbidden, "The identity provider refused the login (%s)", said)
}

// printableText makes text of another program safe for a sentence.
func printableText(text string) string {
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)), " ")
	if letters := []rune(text); len(letters) > maxProviderMessage {
		text = string(letters[:maxProviderMessage]) + "…"
	}
	return text
}

// redeemCode exchanges the code for an ID token, and reads the user from it.
func (p *Provider) redeemCode(ctx context.Context, m metadata, f loginFlow, code string) (user, error) {
	t, err := p.oauthConfig(m, f).Exchange(context.WithValue(ctx, oauth2.HTTPClient, p.http), code,
		oauth2.VerifierOption(f.Verifier))
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.ErrorCode != "" {
		return user{}, deniedError(e.ErrorCode, e.ErrorDescription)
	} else if ok {
		return user{},
			unusableResponse(fmt.Errorf("the token endpoint responded with status %d", e.Response.StatusCode))
	} else if _, ok := errors.AsType[*url.Error](err); ok {
		return user{}, &farm.Error{Code: farm.CodeUnavailable, Message: providerUnavailable, Err: err}
	} else if err != nil {
		return user{}, unusableResponse(err)
	}
	raw, _ := t.Extra("id_token").(string)
	id, err := p.verifyToken(ctx, raw, p.opts.ClientID)
	if err != nil {
		return user{}, unusableResponse(err)
	}
	c, err := claimsOf(id)
	if err != nil {
		return user{}, unusableResponse(err)
	}
	if err := p.checkIDToken(id, c, f, t.AccessToken); err != nil {
		return user{}, unusableResponse(err)
	}
	if err := p.completeClaims(ctx, m, c, t.AccessToken); err != nil {
		return user{}, unusableResponse(err)
	}
	who, err := p.userOf(c)
	if err != nil {
		return user{}, unusableResponse(err)
	}
	return who, nil
}

// unusableResponse is the error of a response of the provider that does not identify the user.
func unusableResponse(cause error) error {
	if farm.CodeOf(cause) == farm.CodeUnavailable {
		return cause
	}
	return &farm.Error{
		Code:    farm.CodeForbidden,
		Message: "The answer of the identity provider cannot be used; the log says why", Err: cause,
	}
}

// checkIDToken checks that an ID token is of this login and for this client.
func (p *Provider) checkIDToken(id *oidc.IDToken, c claims, f loginFlow, access string) error {
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return errors.New("the token belongs to another login (nonce)")
	}
	azp, ok := c.stringClaim("azp")
	if (ok && azp != p.opts.ClientID) || (!ok && len(id.Audience) > 1) {
		return errors.New("the token was issued to another client (azp)")
	}
	if id.AccessTokenHash != "" && id.VerifyAccessToken(access) != nil {
		return errors.New("the access token does not match the ID token (at_hash)")
	}
	return nil
}

// completeClaims requests the user's profile when the ID token lacks a needed claim: not every provider
// writes names and groups into it.
func (p *Provider) completeClaims(ctx context.Context, m metadata, c claims, access string) error {
	_, named := c[p.opts.UsernameClaim]
	_, groups := c[p.opts.GroupsClaim]
	if (named && groups) || m.UserInfoURL == "" {
		return nil
	}
	var more claims
	if err := p.getJSON(ctx, m.UserInfoURL, access, &more); err != nil {
		return fmt.Errorf("read user profile: %w", err)
	}
	whose, _ := more.stringClaim("sub")
	if own, _ := c.stringClaim("sub"); whose == "" || whose != own {
		return errors.New("the user profile is of another user (sub)")
	}
	for name, value := range more {
		if _, ok := c[name]; !ok {
			c[name] = value
		}
	}
	return nil
}

// showFailure logs why a login failed and shows the browser a sentence.
func (p *Provider) showFailure(w http.ResponseWriter, r *http.Request, err error) {
	status := map[farm.Code]int{
		farm.CodeInvalid: http.StatusBadRequest, farm.CodeForbidden: http.StatusForbidden,
		farm.CodeBusy: http.StatusServiceUnavailable, farm.CodeUnavailable: http.StatusServiceUnavailable,
	}[farm.CodeOf(err)]
	sentence := "Internal error"
	if e, ok := errors.AsType[*farm.Error](err); ok && status != 0 {
		sentence = e.Message
	} else {
		status = http.StatusInternalServerError
	}
	p.opts.Logger.WarnContext(r.Context(), "login failed", "error", err)
	p.opts.ShowFailure(w, r, status, sentence+".")
}

func failPlainly(w http.ResponseWriter, _ *http.Request, status int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, sentence+"\n")
}
