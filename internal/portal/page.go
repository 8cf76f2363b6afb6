package portal

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/eventtext"
	"github.com/buildyard/buildyard/internal/portal/format"
)

//go:embed templates/*.html
var pageFiles embed.FS

// page is one line of the table of contents.
type page struct {
	pattern      string // as http.ServeMux takes it
	templateName string // of its template
	title        string
	topics       Topics // whose changes refresh it
	buildView    func(v *visit) (any, error)
}

// visit is one request of a page.
type visit struct {
	context.Context
	*client.Controller
	request *http.Request
	query   url.Values
	now     time.Time
	title   string // instead of the page's own; for pages of one record

	registry      *client.Registry // nil where it is another process
	loginRequired bool             // callers have to log in
	authErr       error            // the API does not accept these credentials; nil: it does

	rightsQuery  client.RightsQuery // what the page is about; set before can is called
	capabilities *capabilities      // what the visitor may do, once that was asked
	ownRights    *api.Rights        // of the visitor, without those on nodes and templates; nil: not asked

	setCookies []*http.Cookie // of the response
	rowsOnly   bool           // for a script that reads only the rows

	hasNodeLogs func(filter string) bool // whether the logs of the nodes have rows that match

	status func() (api.ControllerStatus, error) // of the cloud; asked once
	stats  func() (api.ControllerStats, error)
}

// view is the data of a template.
type view struct {
	Title       string
	Nav         []navItem
	Here        string // path of the area that the page belongs to
	URL         string // of this very look, for what refreshes it
	ChangesPath string // address of the change notifications; "": the page does not change
	// PartsRefresh is true for pages that cannot be requested again: parts of them refresh.
	PartsRefresh bool
	Assets       string // prefix of the paths of files
	Version      string
	Host         string // of the address of the page
	Guarded      bool
	User         *user     // who is logged in; nil: not known
	Limited      bool      // the visitor sees only those nodes and templates that they were granted rights on
	Trouble      []problem // what needs an operator, the most urgent first
	// TroubleShown is true for pages that show Trouble in their content.
	TroubleShown bool
	Now          time.Time
	Page         any // what the page shows
	Failure      *failure
	Can          *capabilities // what the visitor may do
}

// pageHandler makes the handler of a page.
func (p *portal) pageHandler(g page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isRefresh(r) {
			began := time.Now()
			defer func() { p.live.recordRefresh(time.Since(began)) }()
		}
		v, err := p.newVisit(r)
		var body any
		if err == nil {
			body, err = g.buildView(v)
		}
		if err != nil {
			p.showError(w, r, g, err)
			return
		}
		for _, c := range v.setCookies {
			http.SetCookie(w, c)
		}
		title := g.title
		if v.title != "" {
			title = v.title
		}
		if v.rowsOnly {
			p.showView(w, r, http.StatusOK, g.templateName,
				view{Title: title, Assets: p.assets.pathPrefix, Now: v.now, Page: body})
			return
		}
		shown := p.newView(v, g, title, body)
		if v.authErr != nil { // parts of a page leave out what they may not see, and none may be seen
			p.showError(w, r, g, v.authErr)
			return
		}
		p.showView(w, r, http.StatusOK, g.templateName, shown)
	})
}

// isRefresh reports whether a page requests the part of it that changes.
func isRefresh(r *http.Request) bool { return r.Header.Get("Hx-Request") == "true" }

func (p *portal) newVisit(r *http.Request) (*visit, error) {
	cloud, err := p.controllerClient(r)
	if err != nil {
		return nil, err
	}
	v := &visit{
		Context: r.Context(), Controller: cloud, request: r, query: r.URL.Query(), now: time.Now(),
		loginRequired: p.opts.LoginRequired,
	}
	v.hasNodeLogs = func(filter string) bool { return p.logLinks.hasRows(v, p.loginOf(r), filter) }
	v.status = sync.OnceValues(func() (api.ControllerStatus, error) { return v.Status(v) })
	v.stats = sync.OnceValues(func() (api.ControllerStats, error) { return v.Stats(v) })
	if p.opts.RegistryAPI != nil {
		v.registry, err = client.NewRegistry("http://"+inside,
			client.Options{
				Transport: apiTransport{p.opts.RegistryAPI, r}, Retries: client.NoRetries,
				MaxAnswer: maxAnswer,
			})
	}
	return v, err
}

func (p *portal) newView(v *visit, g page, title string, body any) view {
	shown := view{
		Title: title, Here: firstPathPart(v.request.URL.Path), URL: v.request.URL.RequestURI(), Host: v.request.Host,
		Assets:  p.assets.pathPrefix,
		Version: p.opts.Version, Guarded: p.opts.LoginRequired, Now: v.now, Page: body, Can: v.canDo(),
	}
	shown.ChangesPath = p.changesPath(g.topics)
	p.fillLayout(v, &shown)
	if d, ok := body.(*dashboard); ok && d.Outage != nil {
		shown.TroubleShown = true
	}
	return shown
}

// changesPath returns the address of the change notifications of a page; "" where it does not change.
func (p *portal) changesPath(t Topics) string {
	if t == 0 || p.opts.SubscribeChanges == nil {
		return ""
	}
	return "/live?topics=" + t.String()
}

// firstPathPart returns the first part of a path.
func firstPathPart(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return "/" + first
}

// user is who is logged in.
type user struct {
	Name   string
	Detail string // with which credential
}

// credentialNames are the kinds of credentials, as users call them.
var credentialNames = map[string]string{
	"root": "root token", "key": "API key", "certificate": "client certificate", "oidc": "identity provider",
}

// navItem is a line of the navigation.
type navItem struct {
	Section         string // heading above it; "": none
	Path, Name, Key string // Key is pressed after g
	Icon            string
	Tab             bool // it has a place in the bar of narrow screens
	Count           *int
	Badge           *badge
}

// badge is the number of problems next to a line of the navigation.
type badge struct {
	Count int
	Tone  string // warn: none is urgent
}

// fillLayout fills in what every page has around it. What the visitor may not see is left out.
func (p *portal) fillLayout(v *visit, shown *view) {
	counts := map[string]*int{}
	stats, statsErr := v.stats()
	if statsErr == nil {
		nodes, instances := sumCounts(stats.Nodes), liveInstances(stats)
		counts["/nodes"], counts["/instances"] = &nodes, &instances
	}
	status, statusErr := v.status()
	if errors.Is(statusErr, client.ErrUnauthenticated) {
		v.authErr = statusErr
	}
	shown.Trouble = troubleOf(orNil(status, statusErr), orNil(stats, statsErr))
	shown.TroubleShown = shown.Here == "/health"
	for _, item := range navItems {
		item.Count = counts[item.Path]
		if n := len(shown.Trouble); item.Path == "/health" && n > 0 {
			item.Badge = &badge{Count: n}
			if !shown.Trouble[0].Urgent {
				item.Badge.Tone = "warn"
			}
		}
		shown.Nav = append(shown.Nav, item)
	}
	rights := v.canDo().rights
	shown.Limited = v.canDo().seesSomeOnly()
	if rights != nil && rights.User != "" {
		shown.User = &user{rights.User, "Logged in with " + cmp.Or(credentialNames[rights.Credential], "a credential")}
	}
}

// orNil returns a value, nil where it could not be read.
func orNil[T any](value T, err error) *T {
	if err != nil {
		return nil
	}
	return &value
}

// liveInstances returns the number of instances that are not terminated.
func liveInstances(s api.ControllerStats) int {
	return sumCounts(s.Instances) - s.Instances[string(farm.Terminated)]
}

func sumCounts(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// navItems are the lines of the navigation.
var navItems = []navItem{
	{Path: "/", Name: "Dashboard", Key: "d", Icon: "gauge", Tab: true},
	{Path: "/instances", Name: "Instances", Key: "i", Icon: "vm", Tab: true},
	{Path: "/templates", Name: "Templates", Key: "t", Icon: "layers", Tab: true},
	{Path: "/nodes", Name: "Nodes", Key: "n", Icon: "server", Tab: true},
	{Path: "/groups", Name: "Groups", Key: "g", Icon: "groups"},
	{Path: "/pools", Name: "Pools", Key: "w", Icon: "bolt"},
	{Section: "Operations", Path: "/health", Name: "Health", Key: "h", Icon: "pulse"},
	{Path: "/usage", Name: "Usage", Key: "u", Icon: "disk"},
	{Path: "/events", Name: "Events", Key: "e", Icon: "list"},
	{Path: "/logs", Name: "Logs", Key: "l", Icon: "file"},
	{Section: "Access", Path: "/keys", Name: "API keys", Key: "k", Icon: "key"},
	{Path: "/permission-groups", Name: "Permissions", Key: "p", Icon: "shield"},
}

// showView sends a page, or the part of it that refreshes.
func (p *portal) showView(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	part, known := "page", map[string]bool(nil)
	if isRefresh(r) {
		part, known = "part", knownRows(r)
	}
	var out bytes.Buffer
	if err := p.templates[name]().ExecuteTemplate(&out, part, v); err != nil {
		p.opts.Logger.ErrorContext(r.Context(), "rendering a page failed", "page", name, "error", err)
		http.Error(w, "This page could not be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "HX-Request, Cookie")
	w.WriteHeader(status)
	_, _ = w.Write(markRows(out.Bytes(), known))
}

// failure is the content of a page about an error.
type failure struct {
	What      string // was tried
	Reason    string
	RequestID string // its id, for the log
	Next      string // what to do
	Links     []link // where it may be done

	topic Topics // of the page, where it may be refreshed automatically
}

// showError sends the page about an error, or redirects to the login.
func (p *portal) showError(w http.ResponseWriter, r *http.Request, g page, err error) {
	code, f := explainError(err)
	if code == http.StatusUnauthorized {
		back := r.URL.RequestURI()
		if r.Method == http.MethodPost { // its form is lost, and without that there is nothing to ask for there
			back = firstPathPart(r.URL.Path)
		}
		to := "/login?" + url.Values{"return": {back}}.Encode()
		if isRefresh(r) {
			w.Header().Set("HX-Redirect", to)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if isCrossOrigin(r) {
			ShowLogin(w, http.StatusOK, LoginPage{ReturnPath: r.URL.RequestURI(), LoggedIn: true})
			return
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	f.What = g.title
	if code == http.StatusNotFound {
		f.Links = notFoundLinks(r.URL.Path)
	}
	if code >= http.StatusInternalServerError {
		f.topic = g.topics
	}
	p.showFailure(w, r, code, f)
}

// notFoundLinks returns the list that a record would be in, and its events.
func notFoundLinks(path string) (links []link) {
	area := firstPathPart(path)
	for _, item := range navItems {
		if item.Path == area && area != "/" {
			links = append(links, link{"All " + strings.ToLower(item.Name), area})
		}
	}
	if filter := eventtext.FilterOf(path); filter != "" {
		links = append(links, link{"Its events", format.Path("/events", "q", filter)})
	}
	return links
}

// showFailure sends the page about an error. If a service is temporarily unavailable, the page refreshes
// like the one that it replaces. Refusals before the call of the API have a separate line in the
// log.
func (p *portal) showFailure(w http.ResponseWriter, r *http.Request, code int, f *failure) {
	if f.RequestID == "" {
		f.RequestID = client.NewKey()
		p.opts.Logger.InfoContext(r.Context(), "page request refused", "request_id", f.RequestID, "method", r.Method,
			"path",
			r.URL.Path, "why", f.Reason)
	}
	shown := view{
		Title: f.What, Here: firstPathPart(r.URL.Path), URL: r.URL.RequestURI(), Host: r.Host,
		ChangesPath: p.changesPath(f.topic),
		Assets:      p.assets.pathPrefix, Version: p.opts.Version, Guarded: p.opts.LoginRequired, Now: time.Now(),
		Failure: f,
	}
	if v, err := p.newVisit(r); err == nil {
		p.fillLayout(v, &shown)
	}
	p.showView(w, r, code, "fail", shown)
}

// failureAdvice are what to do about failures.
var failureAdvice = map[client.Code]string{
	client.ErrForbidden:   "Ask the administrator of this cloud for the permission, or log in as another user.",
	client.ErrNotFound:    "It may have been removed, or its address is not complete.",
	client.ErrUnavailable: "Wait a moment and reload the page. See Health for the cause.",
	client.ErrInvalid:     "Correct the value and try again.",
	client.ErrRefused:     "Try again after the cause is resolved.",
	client.ErrConflict:    "Reload the page and review what has changed.",
	client.ErrUnsupported: "This controller does not support it: it is disabled, or of another version.",
}

func explainError(err error) (code int, f *failure) {
	f = &failure{
		Reason: err.Error(),
		Next:   "Try again. If it fails again, search for the request ID in the log of the controller.",
	}
	code = http.StatusInternalServerError
	if apiErr, ok := errors.AsType[*client.Error](err); ok {
		f.Reason, f.RequestID = apiErr.Message, apiErr.RequestID
		if status, ok := errorStatuses[apiErr.Code]; ok {
			code = status
		}
		if next, ok := failureAdvice[apiErr.Code]; ok {
			f.Next = next
		}
	}
	return code, f
}

// notShownReason returns why a part of a page is not shown; "" where it is.
func notShownReason(err error) string {
	if err == nil {
		return ""
	}
	_, f := explainError(err)
	return f.Reason
}

// formError is the error of a form that lacks something.
func formError(sentence string) error {
	return &client.Error{Code: client.ErrInvalid, Message: sentence}
}

// errorStatuses are the HTTP status codes of pages about errors.
var errorStatuses = map[client.Code]int{
	client.ErrUnauthenticated: http.StatusUnauthorized, client.ErrForbidden: http.StatusForbidden,
	client.ErrNotFound: http.StatusNotFound, client.ErrNoVersion: http.StatusNotFound,
	client.ErrUnsupported: http.StatusNotFound,
	client.ErrInvalid:     http.StatusBadRequest, client.ErrTooLarge: http.StatusRequestEntityTooLarge,
	client.ErrRefused: http.StatusConflict, client.ErrConflict: http.StatusConflict,
	client.ErrUnavailable: http.StatusServiceUnavailable, client.ErrUnreachable: http.StatusBadGateway,
}
