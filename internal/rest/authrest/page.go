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

// Page is the content of the login page.
type Page struct {
	Return   string // where the browser continues: a path of this service
	Sentence string // the error message
	Token    bool   // the root token is accepted
	Provider string // name of the identity provider; "": none
	Done     bool   // the login succeeded, and the browser continues to Return
}

// policy restricts a browser to the page's own style and form.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}()

// Show sends the login page.
type Show func(w http.ResponseWriter, status int, p Page)

// page shows the login page.
func (s *server) page(w http.ResponseWriter, status int, p Page) {
	p.Token = s.o.Root != nil
	if s.o.Provider != nil {
		p.Provider = s.o.Provider.DisplayName()
	}
	s.o.Show(w, status, p)
}

// show sends a page without external resources.
func show(w http.ResponseWriter, status int, p Page) {
	var out bytes.Buffer
	_ = loginPage.Execute(&out, struct { // in memory, of existing fields
		Page
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
func (s Show) Fail(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	rest.AuditFailure(r, farm.Errorf(farm.CodeUnauthenticated, "Login at the identity provider failed: %s", sentence))
	if s == nil {
		s = show
	}
	s(w, status, Page{Sentence: sentence, Return: "/"})
}
