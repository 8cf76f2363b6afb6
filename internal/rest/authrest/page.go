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

// view is what the page of the log-in shows.
type view struct {
	Return   string // where the browser goes then
	Sentence string // why it did not work
	Style    template.CSS
	Token    bool   // the root token can be given
	Provider string // name of the identity provider; "" for none
}

// policy lets a browser use nothing but the page's own style and form.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}()

// page shows the log-in.
func (s *server) page(w http.ResponseWriter, status int, v view) {
	v.Token = s.o.Root != nil
	if s.o.Provider != nil {
		v.Provider = s.o.Provider.DisplayName()
	}
	show(w, status, v)
}

func show(w http.ResponseWriter, status int, v view) {
	v.Style = template.CSS(style) //nolint:gosec // our own file
	var out bytes.Buffer
	_ = loginPage.Execute(&out, v) // into memory, of fields that the page has
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with none, a browser that came by http would say that its form is from nowhere
	h.Set("Content-Security-Policy", policy)
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// FailPage shows a log-in at the identity provider that failed, as oidc.Options.Fail wants it.
func FailPage(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	rest.Failed(r, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required"))
	show(w, status, view{Sentence: sentence, Return: "/"})
}
