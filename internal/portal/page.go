package portal

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

//go:embed templates/*.html
var pageFiles embed.FS

// page is one line of the table of contents.
type page struct {
	path  string // as http.ServeMux takes it
	name  string // of its template
	title string
	topic Topics // whose changes refresh it
	load  func(v *visit) (any, error)
}

// visit is one request of a page.
type visit struct {
	context.Context
	*client.Controller
	r     *http.Request
	q     url.Values
	now   time.Time
	title string // instead of the page's own; for pages of one record

	registry *client.Registry // nil where it is another process
	guarded  bool             // callers have to log in
	denied   error            // the API does not accept these credentials; nil: it does

	about client.RightsQuery // what the page is about; set before can is called
	mine  *capabilities      // what the visitor may do, once that was asked
}

// view is the data of a template.
type view struct {
	Title    string
	Nav      []navItem
	Here     string // path of the area that the page belongs to
	URL      string // of this very look, for what refreshes it
	Live     string // address of the change notifications; "": the page does not change
	Assets   string // prefix of the paths of files
	Version  string
	Registry string // how it is, in a word
	Trouble  []string
	Guarded  bool
	Now      time.Time
	Page     any // what the page shows
	Fail     *failure
	Can      *capabilities // what the visitor may do
}

// serve makes the handler of a page.
func (p *portal) serve(g page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isRefresh(r) {
			began := time.Now()
			defer func() { p.live.refreshed(time.Since(began)) }()
		}
		v, err := p.visit(r)
		var body any
		if err == nil {
			body, err = g.load(v)
		}
		if err != nil {
			p.fail(w, r, g, err)
			return
		}
		title := g.title
		if v.title != "" {
			title = v.title
		}
		shown := p.view(v, g, title, body)
		if v.denied != nil { // parts of a page leave out what they may not see, and none may be seen
			p.fail(w, r, g, v.denied)
			return
		}
		p.show(w, r, http.StatusOK, g.name, shown)
	})
}

// isRefresh reports whether a page requests the part of it that changes.
func isRefresh(r *http.Request) bool { return r.Header.Get("Hx-Request") == "true" }

func (p *portal) visit(r *http.Request) (*visit, error) {
	cloud, err := p.cloud(r)
	if err != nil {
		return nil, err
	}
	v := &visit{Context: r.Context(), Controller: cloud, r: r, q: r.URL.Query(), now: time.Now(), guarded: p.o.Guarded}
	if p.o.Registry != nil {
		v.registry, err = client.NewRegistry("http://"+inside,
			client.Options{Transport: apiTransport{p.o.Registry, r}, Retries: client.NoRetries, MaxAnswer: maxAnswer})
	}
	return v, err
}

func (p *portal) view(v *visit, g page, title string, body any) view {
	shown := view{
		Title: title, Here: area(v.r.URL.Path), URL: v.r.URL.RequestURI(), Assets: p.assets.prefix,
		Version: p.o.Version, Guarded: p.o.Guarded, Now: v.now, Page: body, Can: v.can(),
	}
	shown.Live = p.liveAt(g.topic)
	p.surround(v, &shown)
	return shown
}

// liveAt returns the address of the change notifications of a page; "" where it does not change.
func (p *portal) liveAt(t Topics) string {
	if t == 0 || p.o.Changes == nil {
		return ""
	}
	return "/live?topics=" + t.String()
}

// area returns the first part of a path.
func area(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return "/" + first
}

// navItem is a line of the navigation.
type navItem struct {
	Path, Name, Key string
	Count           *int
}

// surround fills in what every page has around it. What the visitor may not see is left out.
func (p *portal) surround(v *visit, shown *view) {
	counts := map[string]*int{}
	if stats, err := v.Stats(v); err == nil {
		nodes, instances := sum(stats.Nodes), 0
		for state, n := range stats.Instances {
			if state != "Terminated" {
				instances += n
			}
		}
		counts["/nodes"], counts["/instances"] = &nodes, &instances
	}
	for _, item := range areas {
		item.Count = counts[item.Path]
		shown.Nav = append(shown.Nav, item)
	}
	if status, err := v.Status(v); err == nil {
		shown.Registry, shown.Trouble = registryText(status), status.Alarms
	} else if errors.Is(err, client.ErrUnauthenticated) {
		v.denied = err
	}
}

func registryText(s api.ControllerStatus) string {
	if s.RegistryStatus == "Running" {
		return "registry reachable"
	}
	return "registry not reachable"
}

func sum(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// areas are the lines of the navigation, with the key that follows g.
var areas = []navItem{
	{Path: "/", Name: "Dashboard", Key: "d"},
	{Path: "/nodes", Name: "Nodes", Key: "n"},
	{Path: "/instances", Name: "Instances", Key: "i"},
	{Path: "/templates", Name: "Templates", Key: "t"},
	{Path: "/groups", Name: "Groups", Key: "g"},
	{Path: "/events", Name: "Events", Key: "e"},
	{Path: "/logs", Name: "Logs", Key: "l"},
	{Path: "/keys", Name: "API keys", Key: "k"},
	{Path: "/permission-groups", Name: "Permissions", Key: "p"},
	{Path: "/health", Name: "Health", Key: "h"},
}

// show sends a page, or the part of it that refreshes.
func (p *portal) show(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	part := "page"
	if isRefresh(r) {
		part = "part"
	}
	var out bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&out, part, v); err != nil {
		p.o.Logger.ErrorContext(r.Context(), "rendering a page failed", "page", name, "error", err)
		http.Error(w, "This page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "HX-Request, Cookie")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}

// failure is the content of a page about an error.
type failure struct {
	What    string // was tried
	Why     string
	Request string // its id, for the log
	Next    string // what to do

	topic Topics // of the page, where it may be refreshed automatically
}

// fail sends the page about an error, or redirects to the login.
func (p *portal) fail(w http.ResponseWriter, r *http.Request, g page, err error) {
	code, f := explain(err)
	if code == http.StatusUnauthorized {
		back := r.URL.RequestURI()
		if r.Method == http.MethodPost { // its form is lost, and without that there is nothing to ask for there
			back = area(r.URL.Path)
		}
		to := "/login?" + url.Values{"return": {back}}.Encode()
		if isRefresh(r) {
			w.Header().Set("HX-Redirect", to)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if isCrossOrigin(r) {
			LogIn(w, http.StatusOK, LogInPage{Return: r.URL.RequestURI(), Done: true})
			return
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	f.What = g.title
	if code >= http.StatusInternalServerError {
		f.topic = g.topic
	}
	p.tell(w, r, code, f)
}

// tell sends the page about an error. If a service is temporarily unavailable, the page refreshes
// like the one that it replaces. Refusals before the call of the API have a separate line in the
// log.
func (p *portal) tell(w http.ResponseWriter, r *http.Request, code int, f *failure) {
	if f.Request == "" {
		f.Request = client.NewKey()
		p.o.Logger.InfoContext(r.Context(), "page request refused", "request_id", f.Request, "method", r.Method, "path",
			r.URL.Path, "why", f.Why)
	}
	shown := view{
		Title: f.What, Here: area(r.URL.Path), URL: r.URL.RequestURI(), Live: p.liveAt(f.topic),
		Assets: p.assets.prefix, Version: p.o.Version, Guarded: p.o.Guarded, Now: time.Now(), Fail: f,
	}
	if v, err := p.visit(r); err == nil {
		p.surround(v, &shown)
	}
	p.show(w, r, code, "fail", shown)
}

// steps are what to do about failures.
var steps = map[client.Code]string{
	client.ErrForbidden:   "Ask the administrator of this cloud for the permission, or log in as another user.",
	client.ErrNotFound:    "It may have been removed. Go back to the list.",
	client.ErrUnavailable: "Wait a moment and reload the page. See Health for the cause.",
	client.ErrInvalid:     "Correct the value and try again.",
	client.ErrRefused:     "Try again after the cause is resolved.",
	client.ErrConflict:    "Reload the page and review what has changed.",
	client.ErrUnsupported: "This controller does not support it: it is disabled, or of another version.",
}

func explain(err error) (code int, f *failure) {
	f = &failure{
		Why: err.Error(), Next: "Try again. If it fails again, search for the request ID in the log of the controller.",
	}
	code = http.StatusInternalServerError
	if told, ok := errors.AsType[*client.Error](err); ok {
		f.Why, f.Request = told.Message, told.RequestID
		if status, ok := statuses[told.Code]; ok {
			code = status
		}
		if next, ok := steps[told.Code]; ok {
			f.Next = next
		}
	}
	return code, f
}

// refusal returns why a part of a page is not shown; "" where it is.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	_, f := explain(err)
	return f.Why
}

// invalid is the error of a form that lacks something.
func invalid(sentence string) error {
	return &client.Error{Code: client.ErrInvalid, Message: sentence}
}

// statuses are the HTTP status codes of pages about errors.
var statuses = map[client.Code]int{
	client.ErrUnauthenticated: http.StatusUnauthorized, client.ErrForbidden: http.StatusForbidden,
	client.ErrNotFound: http.StatusNotFound, client.ErrNoVersion: http.StatusNotFound,
	client.ErrUnsupported: http.StatusNotFound,
	client.ErrInvalid:     http.StatusBadRequest, client.ErrTooLarge: http.StatusRequestEntityTooLarge,
	client.ErrRefused: http.StatusConflict, client.ErrConflict: http.StatusConflict,
	client.ErrUnavailable: http.StatusServiceUnavailable, client.ErrUnreachable: http.StatusBadGateway,
}
