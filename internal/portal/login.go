package portal

import (
	"bytes"
	"html/template"
	"net/http"
	"sync"
)

// LoginPage is the content of the login page.
type LoginPage struct {
	ReturnPath    string // where the browser goes then: a path of the portal
	ErrorText     string // why it did not work
	TokenAccepted bool   // the root token can be given
	KeysAccepted  bool   // an API key can be given
	ProviderName  string // name of the identity provider; "" for none
	LoggedIn      bool   // nothing is to be given: the browser continues to Return
}

var loginTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("login.html").Funcs(templateFuncs).ParseFS(pageFiles, "templates/login.html"))
})

// ShowLogin sends the login page. It is standalone: its viewer may see nothing else.
func ShowLogin(w http.ResponseWriter, status int, p LoginPage) {
	var out bytes.Buffer
	err := loginTemplate().ExecuteTemplate(&out, "login.html", struct {
		LoginPage
		Assets string
	}{p, loadAssets().pathPrefix})
	if err != nil {
		http.Error(w, "This page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	securityHeaders(h)
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// isCrossOrigin reports whether a link on a page of another site has led here: then the
// browser does not send its login cookie, and only a page of the portal can repeat the request with
// it.
func isCrossOrigin(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate"
}
