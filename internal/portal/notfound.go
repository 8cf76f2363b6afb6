package portal

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/buildyard/buildyard/client"
)

// passToAPI passes requests for anything but pages to the API. If the API has no such route either,
// a browser gets an error page instead of the API's response.
func (p *portal) passToAPI(w http.ResponseWriter, r *http.Request, pages *http.ServeMux) {
	if !isPageRequest(r) {
		p.opts.API.ServeHTTP(w, r)
		return
	}
	l := &notFoundWriter{ResponseWriter: w}
	p.opts.API.ServeHTTP(l, r)
	if l.heldStatus == 0 {
		return
	}
	w.Header().Del("Content-Length")
	p.isolatePages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clean := &url.URL{Path: path.Clean(r.URL.Path), RawQuery: r.URL.RawQuery} // never of another host
		if _, pattern := pages.Handler(&http.Request{
			Method: http.MethodGet, URL: clean, Host: r.Host,
		}); pattern != "" && clean.Path != r.URL.Path {
			http.Redirect(w, r, clean.String(), http.StatusPermanentRedirect)
			return
		}
		if l.heldStatus == http.StatusUnauthorized {
			p.showError(w, r, page{}, &client.Error{Code: client.ErrUnauthenticated})
			return
		}
		p.showFailure(w, r, http.StatusNotFound,
			&failure{What: "Page not found", Reason: "There is no page at " + r.URL.Path +
				".", Next: "Use the navigation to go to a page that exists."})
	})).ServeHTTP(w, r)
}

// isPageRequest reports whether a browser requests a page, outside the paths of the API.
func isPageRequest(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		strings.Contains(r.Header.Get("Accept"), "application/xhtml+xml") &&
		!strings.HasPrefix(r.URL.Path, "/api/") && !strings.HasPrefix(r.URL.Path, "/admin/")
}

// notFoundWriter suppresses responses with status 404 or 401.
type notFoundWriter struct {
	http.ResponseWriter
	heldStatus    int // of what is kept back; 0: nothing is
	headerWritten bool
}

func (l *notFoundWriter) WriteHeader(code int) {
	if l.headerWritten {
		return
	}
	l.headerWritten = code >= http.StatusOK
	if code == http.StatusNotFound || code == http.StatusUnauthorized {
		l.heldStatus = code
		return
	}
	l.ResponseWriter.WriteHeader(code)
}

func (l *notFoundWriter) Write(text []byte) (int, error) {
	if l.heldStatus != 0 {
		return len(text), nil
	}
	l.headerWritten = true
	return l.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (l *notFoundWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }
