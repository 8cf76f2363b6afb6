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
	maxLogins  = 16               // that call the provider at a time; their begin is not limited
	loginFor   = 12 * time.Second // for all calls of one login
	maxSaid    = 200              // characters of the provider's message about a failure
	returnName = "return"         // parameter of Login
)

// Login is a user authenticated by the provider.
type Login struct {
	Name   string
	Groups []string
	Return string // where the browser wanted to go: a path of this service
}

// Begin redirects a browser to the provider. The query's "return" is the path to which the browser
// returns in the end.
func (p *Provider) Begin(w http.ResponseWriter, r *http.Request) {
	setNoStore(w)
	m, err := p.metadata.get(r.Context(), acceptAny)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	f := newFlow(p.callbackAddress(r), r.URL.Query().Get(returnName), p.o.Now())
	http.SetCookie(w, cookie(p.seal(f), f.Redirect))
	address := p.client(m, f).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier))
	http.Redirect(w, r, address, http.StatusFound) //nolint:gosec // the address is the provider's own; what the browser has given is in its query
}

// Callback ends a login: it passes the authenticated user to done, which answers the request.
func (p *Provider) Callback(done func(http.ResponseWriter, *http.Request, Login)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		setNoStore(w)
		http.SetCookie(w, cookie("", p.callbackAddress(r))) // a login ends once
		login, err := p.end(r)
		if err != nil {
			p.fail(w, r, err)
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

// client returns the OAuth configuration of this service at the provider.
func (p *Provider) client(m metadata, f loginFlow) *oauth2.Config {
	e := m.endpoint()
	if p.o.ClientSecret.Reveal() == "" {
		e.AuthStyle = oauth2.AuthStyleInParams // a public client sends only its ID
	}
	return &oauth2.Config{
		ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret.Reveal(), Endpoint: e,
		RedirectURL: f.Redirect, Scopes: p.o.Scopes,
	}
}

// end checks that the callback belongs to a login of this browser, and requests the user from the
// provider.
func (p *Provider) end(r *http.Request) (Login, error) {
	kept, err := r.Cookie(cookieName)
	if err != nil {
		return Login{}, again(errFlow)
	}
	f, err := p.unseal(kept.Value)
	q := r.URL.Query()
	if err != nil || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(f.State)) != 1 {
		return Login{}, again(errFlow)
	}
	if code := q.Get("error"); code != "" {
		return Login{}, denied(code, q.Get("error_description"))
	}
	select {
	case p.logins <- struct{}{}:
		defer func() { <-p.logins }()
	default:
		return Login{}, farm.Errorf(farm.CodeBusy, "Too many logins in progress; try again in a few seconds")
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginFor)
	defer cancel()
	m, err := p.metadata.get(ctx, acceptAny)
	if err != nil {
		return Login{}, err
	}
	if iss := q.Get("iss"); iss != "" && iss != m.Issuer { // RFC 9207
		return Login{}, again(errors.New("the response is from another identity provider"))
	}
	who, err := p.redeem(ctx, m, f, q.Get("code"))
	return Login{Name: who.name, Groups: who.groups, Return: f.Return}, err
}

// again is the error of a login that may succeed when it is begun again.
func again(cause error) error {
	return &farm.Error{Code: farm.CodeInvalid, Message: "The login failed (" + cause.Error() +
		"); log in again", Err: cause}
}

// denied returns the error with which the provider has refused a login.
func denied(code, description string) error {
	said := clean(code)
	if description = clean(description); description != "" {
		said += ": " + description
	}
	return farm.Errorf(farm.CodeForbidden, "The identity provider refused the login (%s)", said)
}

// clean makes text of another program safe for a sentence.
func clean(text string) string {
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)), " ")
	if letters := []rune(text); len(letters) > maxSaid {
		text = string(letters[:maxSaid]) + "…"
	}
	return text
}

// redeem exchanges the code for an ID token, and reads the user from it.
func (p *Provider) redeem(ctx context.Context, m metadata, f loginFlow, code string) (user, error) {
	t, err := p.client(m, f).Exchange(context.WithValue(ctx, oauth2.HTTPClient, p.http), code,
		oauth2.VerifierOption(f.Verifier))
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.ErrorCode != "" {
		return user{}, denied(e.ErrorCode, e.ErrorDescription)
	} else if ok {
		return user{}, unusable(fmt.Errorf("the token endpoint responded with status %d", e.Response.StatusCode))
	} else if _, ok := errors.AsType[*url.Error](err); ok {
		return user{}, &farm.Error{Code: farm.CodeUnavailable, Message: away, Err: err}
	} else if err != nil {
		return user{}, unusable(err)
	}
	raw, _ := t.Extra("id_token").(string)
	id, err := p.verify(ctx, raw, p.o.ClientID)
	if err != nil {
		return user{}, unusable(err)
	}
	c, err := claimsOf(id)
	if err != nil {
		return user{}, unusable(err)
	}
	if err := p.belongs(id, c, f, t.AccessToken); err != nil {
		return user{}, unusable(err)
	}
	if err := p.complete(ctx, m, c, t.AccessToken); err != nil {
		return user{}, unusable(err)
	}
	who, err := p.identify(c)
	if err != nil {
		return user{}, unusable(err)
	}
	return who, nil
}

// unusable is the error of a response of the provider that does not identify the user.
func unusable(cause error) error {
	if farm.CodeOf(cause) == farm.CodeUnavailable {
		return cause
	}
	return &farm.Error{
		Code:    farm.CodeForbidden,
		Message: "The answer of the identity provider cannot be used; the log says why", Err: cause,
	}
}

// belongs checks that an ID token is of this login and for this client.
func (p *Provider) belongs(id *oidc.IDToken, c claims, f loginFlow, access string) error {
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		return errors.New("the token belongs to another login (nonce)")
	}
	azp, ok := c.text("azp")
	if (ok && azp != p.o.ClientID) || (!ok && len(id.Audience) > 1) {
		return errors.New("the token was issued to another client (azp)")
	}
	if id.AccessTokenHash != "" && id.VerifyAccessToken(access) != nil {
		return errors.New("the access token does not match the ID token (at_hash)")
	}
	return nil
}

// complete requests the user's profile when the ID token lacks a needed claim: not every provider
// writes names and groups into it.
func (p *Provider) complete(ctx context.Context, m metadata, c claims, access string) error {
	_, named := c[p.o.UsernameClaim]
	_, groups := c[p.o.GroupsClaim]
	if (named && groups) || m.UserInfo == "" {
		return nil
	}
	var more claims
	if err := p.getJSON(ctx, m.UserInfo, access, &more); err != nil {
		return fmt.Errorf("read user profile: %w", err)
	}
	whose, _ := more.text("sub")
	if own, _ := c.text("sub"); whose == "" || whose != own {
		return errors.New("the user profile is of another user (sub)")
	}
	for name, value := range more {
		if _, ok := c[name]; !ok {
			c[name] = value
		}
	}
	return nil
}

// fail logs why a login failed and shows the browser a sentence.
func (p *Provider) fail(w http.ResponseWriter, r *http.Request, err error) {
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
	p.o.Logger.WarnContext(r.Context(), "login failed", "error", err)
	p.o.Fail(w, r, status, sentence+".")
}

func failPlainly(w http.ResponseWriter, _ *http.Request, status int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, sentence+"\n")
}
