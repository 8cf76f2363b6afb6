package authrest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

//go:embed login.css
var style string

//go:embed login.html
var text string

var loginPage = template.Must(template.New("login").Parse(text))

// LoginPage is the content of the login page.
type LoginPage struct {
	ReturnPath    string // where the browser continues: a path of this service
	ErrorText     string // the error message
	TokenAccepted bool   // the root token is accepted
	KeysAccepted  bool   // a session of an API key is accepted, which a script of the page makes
	ProviderName  string // name of the identity provider; "": none
	LoggedIn      bool   // the login succeeded, and the browser continues to Return
}

// policy restricts a browser to the page's own style and form.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}()

// ShowLoginPage sends the login page.
type ShowLoginPage func(w http.ResponseWriter, status int, p LoginPage)

// showPage shows the login page.
func (s *server) showPage(w http.ResponseWriter, status int, p LoginPage) {
	p.TokenAccepted, p.KeysAccepted = s.opts.RootToken != nil, s.opts.Sessions != nil
	if s.opts.Provider != nil {
		p.ProviderName = s.opts.Provider.DisplayName()
	}
	s.opts.ShowLogin(w, status, p)
}

// showDefaultPage sends a page without external resources.
func showDefaultPage(w http.ResponseWriter, status int, p LoginPage) {
	var out bytes.Buffer
	_ = loginPage.Execute(&out, struct { // in memory, of existing fields
		LoginPage
		Style template.CSS
	}{p, template.CSS(style)}) //nolint:gosec // our own file
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // else browsers send forms with a null origin over http
	h.Set("Content-Security-Policy", policy)
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// Fail shows a failed login at the identity provider, in the style of s; nil is the default style.
// It is for oidc.Options.Fail.
func (s ShowLoginPage) Fail(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	rest.AuditFailure(r, farm.Errorf(farm.CodeUnauthenticated, "Login at the identity provider failed: %s", sentence))
	if s == nil {
		s = showDefaultPage
	}
	s(w, status, LoginPage{ErrorText: sentence, ReturnPath: "/"})
}
