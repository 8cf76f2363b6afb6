package authrest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Paths of the browser login.
const (
	LoginPath    = "/login"
	ProviderPath = "/login/oidc" // redirects to the identity provider
	LogoutPath   = "/logout"
)

// Parameters of a login.
const (
	tokenName   = "token"
	sessionName = "session" // of an API key, as in a Bearer credential
	returnName  = "return"  // where the browser continues: a path of this service
	maxForm     = 8 << 10   // bytes
)

func (s *server) loginRoutes() []rest.Route {
	routes := []rest.Route{
		{Pattern: "GET " + LoginPath, Permission: rest.NoCredential, HandleRaw: s.showLogin},
		{Pattern: "POST " + LogoutPath, Permission: rest.AnyCredential, HandleRaw: s.logout},
	}
	if s.opts.RootToken != nil || s.opts.Sessions != nil {
		routes = append(routes,
			rest.Route{Pattern: "POST " + LoginPath, Permission: rest.NoCredential, HandleRaw: s.login})
	}
	if p := s.opts.Provider; p != nil {
		routes = append(routes,
			rest.Route{Pattern: "GET " + ProviderPath, Permission: rest.NoCredential, HandleRaw: rawHandler(p.Begin)},
			rest.Route{Pattern: "GET " +
				oidc.CallbackPath, Permission: rest.NoCredential, HandleRaw: rawHandler(p.Callback(s.logInAtProvider))},
		)
	}
	return routes
}

// rawHandler adapts handlers that write their own error responses.
func rawHandler(do http.HandlerFunc) rest.RawHandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		do(w, r)
		return nil
	}
}

// authConfig returns what clients need to discover the login. The envelope has it in its body, and also at its top
// level for clients that take the whole response for the configuration.
func (s *server) authConfig(*rest.Request) (any, error) {
	var c api.AuthConfig
	if s.opts.Provider != nil {
		public := api.LoginProvider(s.opts.Provider.Public())
		c.OIDC = &public
	}
	text, err := json.Marshal(struct {
		Status  string         `json:"status"`
		Message string         `json:"message"`
		Body    api.AuthConfig `json:"body"`
		api.AuthConfig
	}{api.StatusOK, "", c, c})
	if err != nil {
		return nil, err
	}
	return rest.NoEnvelope{Type: "application/json", Text: append(text, '\n')}, nil
}

// wantsPage reports whether the client wants an HTML page.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func (s *server) showLogin(w http.ResponseWriter, r *http.Request) error {
	s.showPage(w, http.StatusOK, LoginPage{ReturnPath: oidc.LocalPath(r.URL.Query().Get(returnName))})
	return nil
}

// login accepts the root token, or a session of an API key, whose private key stays in the browser: as a form of the
// page, or as JSON.
func (s *server) login(w http.ResponseWriter, r *http.Request) error {
	body, err := rest.ReadBody(w, r, maxForm)
	if err != nil {
		return err
	}
	in, err := parseLogin(body)
	if err != nil {
		return err
	}
	addr := rest.CallerOf(r.Context()).Address
	if err := s.opts.GuessLimiter.Allow(addr); err != nil {
		return s.showLoginError(w, r, in.Return, err)
	}
	who, err := s.verifyLogin(r.Context(), in)
	s.opts.GuessLimiter.RecordResult(addr, err)
	if err != nil {
		return s.showLoginError(w, r, in.Return, err)
	}
	if err := s.openLogin(w, r, who); err != nil {
		return err
	}
	if wantsPage(r) {
		http.Redirect(w, r, in.Return, http.StatusSeeOther)
		return nil
	}
	return rest.WriteResponse(w, r, nil)
}

// loginRequest is the body of a login.
type loginRequest struct {
	Token   string `json:"token"`
	Session string `json:"session"`
	Return  string `json:"return"` // a path of this service
}

// verifyLogin returns who logs in.
func (s *server) verifyLogin(ctx context.Context, in loginRequest) (auth.Identity, error) {
	switch {
	case in.Session != "" && s.opts.Sessions != nil:
		return s.opts.Handshake.LogIn(ctx, in.Session)
	case s.opts.RootToken != nil:
		return s.opts.RootToken.VerifyToken(in.Token)
	}
	return auth.Identity{}, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
}

// parseLogin reads the body of a login. Its errors contain nothing of the body.
func parseLogin(body []byte) (in loginRequest, err error) {
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '{' {
		if json.Unmarshal(body, &in) != nil {
			return loginRequest{}, farm.Invalid("body", "must be a JSON object whose values are strings")
		}
		in.Return = oidc.LocalPath(in.Return)
		return in, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return in, farm.Errorf(farm.CodeInvalid, "body: must be a URL-encoded form")
	}
	return loginRequest{form.Get(tokenName), form.Get(sessionName), oidc.LocalPath(form.Get(returnName))}, nil
}

// sentences are the messages of a page for a failed login.
var sentences = map[farm.Code]string{
	farm.CodeUnauthenticated: "The credential is wrong.",
	farm.CodeTooMany:         "Too many failed attempts; try again later.",
}

// showLoginError writes the response to a failed login.
func (s *server) showLoginError(w http.ResponseWriter, r *http.Request, back string, err error) error {
	if !wantsPage(r) {
		return err
	}
	rest.AuditFailure(r, err)
	status := http.StatusForbidden // 401 would require a header that names an authentication scheme
	if farm.CodeOf(err) == farm.CodeTooMany {
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", rest.RetryAfter(err))
	}
	s.showPage(w, status, LoginPage{ReturnPath: back, ErrorText: sentences[farm.CodeOf(err)]})
	return nil
}

// logInAtProvider completes the login of a user that the identity provider has authenticated.
func (s *server) logInAtProvider(w http.ResponseWriter, r *http.Request, l oidc.Login) {
	who := auth.Identity{Name: l.Name, Groups: l.Groups, Method: auth.ByOIDC}
	if err := s.openLogin(w, r, who); err != nil {
		sentence := "Internal error."
		if code := farm.CodeOf(err); code != farm.CodeInternal {
			sentence = err.Error() + "."
		}
		rest.AuditFailure(r, err)
		s.showPage(w, http.StatusForbidden, LoginPage{ReturnPath: l.ReturnPath, ErrorText: sentence})
		return
	}
	// The browser comes from the provider: after a redirect it would not send the new login cookie. After a
	// page of this service it does.
	s.showPage(w, http.StatusOK, LoginPage{ReturnPath: l.ReturnPath, LoggedIn: true})
}

// openLogin sets the login cookie of a browser.
func (s *server) openLogin(w http.ResponseWriter, r *http.Request, who auth.Identity) error {
	text, err := s.opts.LoginCookies.Issue(who)
	if err != nil {
		return err
	}
	http.SetCookie(w, s.newLoginCookie(r, text, int(auth.LoginTTL.Seconds())))
	w.Header().Set("Cache-Control", "no-store")
	rest.AuditIdentity(r, who)
	return nil
}

// logout removes the cookies of a browser. A copy of them stays valid until it expires: no login is stored.
func (s *server) logout(w http.ResponseWriter, r *http.Request) error {
	http.SetCookie(w, s.newLoginCookie(r, "", -1))
	w.Header().Set("Cache-Control", "no-store")
	if wantsPage(r) {
		http.Redirect(w, r, LoginPath, http.StatusSeeOther)
		return nil
	}
	return rest.WriteResponse(w, r, nil)
}

// newLoginCookie makes the cookie of a login. No script can read it, and browsers do not send it with requests from
// pages of other sites.
func (s *server) newLoginCookie(r *http.Request, value string, seconds int) *http.Cookie {
	c := &http.Cookie{
		Name: auth.LoginCookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	}
	if r.TLS != nil || s.opts.Proxied && r.Header.Get("X-Forwarded-Proto") == "https" {
		c.Name, c.Secure = auth.SecureLoginCookie, true
	}
	return c
}
