package oidctest

import (
	"encoding/json"
	"maps"
	"net/http"

	jose3 "github.com/go-jose/go-jose/v3"
	"github.com/ory/fosite"
)

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (p *Provider) describe(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{
		"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/auth",
		"token_endpoint": p.URL + "/token", "userinfo_endpoint": p.URL + "/userinfo",
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "none"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported":      []string{"S256"},
	})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	answer(w, jose3.JSONWebKeySet{Keys: []jose3.JSONWebKey{p.signer().Public()}})
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := p.oauth.NewAuthorizeRequest(ctx, r)
	if err != nil {
		p.oauth.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	p.mu.Lock()
	subject := p.subject
	p.mu.Unlock()
	if subject == "" {
		p.oauth.WriteAuthorizeError(ctx, w, request, fosite.ErrAccessDenied.WithHint("The user <b>refuses</b>."))
		return
	}
	for _, scope := range request.GetRequestedScopes() {
		request.GrantScope(scope)
	}
	response, err := p.oauth.NewAuthorizeResponse(ctx, request, p.session(subject))
	if err != nil {
		p.oauth.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	p.oauth.WriteAuthorizeResponse(ctx, w, request, response)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := p.oauth.NewAccessRequest(ctx, r, p.session(""))
	if err != nil {
		p.oauth.WriteAccessError(ctx, w, request, err)
		return
	}
	if request.GetGrantTypes().ExactOne("client_credentials") {
		id := request.GetClient().GetID()
		s := request.GetSession().(*session)
		s.Access.Subject, s.Access.Extra = id, map[string]any{"azp": id}
		maps.Copy(s.Access.Extra, s.Claims.Extra)
		for _, a := range request.GetRequestedAudience() {
			request.GrantAudience(a)
		}
	}
	response, err := p.oauth.NewAccessResponse(ctx, request)
	if err != nil {
		p.oauth.WriteAccessError(ctx, w, request, err)
		return
	}
	p.oauth.WriteAccessResponse(ctx, w, request, response)
}

func (p *Provider) userinfo(w http.ResponseWriter, r *http.Request) {
	_, _, err := p.oauth.IntrospectToken(r.Context(), fosite.AccessTokenFromRequest(r), fosite.AccessToken,
		p.session(""))
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answer(w, p.profile)
}
