package apidoc

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest"
)

// Service configures the URL at which a service serves the description.
type Service struct {
	Name       string   // as the page calls it
	FileName   string   // path of the file without its ending
	PagePath   string   // path of the page
	Permission string   // permission that the caller needs
	Tags       []string // of the operations on the page
}

// Routes returns the routes that serve the description.
func (s Service) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET " + s.FileName +
			".yaml", Permission: s.Permission, HandleRaw: serveText("application/yaml", openAPIText)},
		{Pattern: "GET " + s.FileName +
			".json", Permission: s.Permission, HandleRaw: serveText("application/json", jsonText)},
		{Pattern: "GET " + s.PagePath, Permission: s.Permission, HandleRaw: serveText("text/html; charset=utf-8",
			sync.OnceValues(s.html))},
	}
}

func openAPIText() ([]byte, error) { return api.OpenAPI, nil }

// jsonText is the file as JSON, made at its first use.
var jsonText = sync.OnceValues(func() ([]byte, error) {
	t, err := parseYAML(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	value, err := t.value()
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(value, "", " ")
})

// html makes the page of a service.
func (s Service) html() ([]byte, error) {
	t, err := parseYAML(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	p := buildPage(t, s.Name, s.Tags)
	p.File = s.FileName
	var out bytes.Buffer
	if err := shown.Execute(&out, p); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// policy lets a browser use nothing but the page's own style.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// serveText answers a text that does not change while the program runs.
func serveText(kind string, text func() ([]byte, error)) rest.RawHandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := text()
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", policy)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		return nil
	}
}
