package portal

import (
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzhttp"
)

// Options configure the portal.
type Options struct {
	API http.Handler // the controller's API, which authorizes callers; also gets all requests that are not for pages
	// RegistryAPI is the registry's API, where that is in this process; nil: elsewhere.
	RegistryAPI   http.Handler
	LoginRequired bool     // callers have to log in
	LoginCookies  []string // names of the cookies of a log-in, the one that counts first
	// AllowedOrigins are addresses, as https://host, whose pages may change things in addition to the
	// portal's own: those under which a reverse proxy serves it.
	AllowedOrigins []string
	Version        string // of the program
	// SubscribeChanges returns the topics that have changed in the cloud since the channel was last read,
	// until stop is called; nil: pages do not refresh automatically.
	SubscribeChanges func() (changed <-chan struct{}, take func() Topics, stop func())
	Logger           *slog.Logger
}

// portal serves the pages.
type portal struct {
	opts      Options
	assets    *assets
	templates map[string]func() *template.Template // by the name of a page
	live      *hub
	logLinks  logLinks
}

// Handler serves pages, and everything else by the API.
func Handler(o Options) http.Handler {
	p := &portal{opts: o, assets: loadAssets(), templates: pageTemplates()}
	p.live = newHub(o.SubscribeChanges)
	pages := http.NewServeMux()
	for _, page := range p.pages() {
		pages.Handle("GET "+page.pattern, p.pageHandler(page))
	}
	for _, a := range p.actions() {
		pages.Handle("GET "+a.pattern, p.formHandler(a))
		pages.Handle("POST "+a.pattern, p.actionHandler(a))
	}
	pages.Handle("GET /assets/{path...}", p.assets)
	pages.HandleFunc("GET /export/{list}", p.serveExport)
	pages.HandleFunc("POST /results/{kind}", p.serveResults)
	pages.HandleFunc("GET /live", p.serveChanges)
	pages.HandleFunc("GET /favicon.ico", p.favicon)
	shown := p.isolatePages(compressPages(pages))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") { // nodes call it often
			o.API.ServeHTTP(w, r)
			return
		}
		if _, pattern := pages.Handler(r); pattern != "" {
			shown.ServeHTTP(w, r)
			return
		}
		p.passToAPI(w, r, pages)
	})
}

// compressPages compresses pages and exports for browsers that accept it. Their length varies at random, so that it
// reveals nothing about their content. Notifications of changes are not compressed: one of 38 bytes would have 48,
// since each has to be flushed, and each open page would need a compressor of 800 KiB.
func compressPages(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.ContentTypes([]string{"text/html", "text/csv", "application/json"}),
		gzhttp.EnableZstd(true), gzhttp.RandomJitter(32, 0, false))
	if err != nil {
		panic(err) // the options are constant
	}
	return wrap(next)
}

// pages is the table of contents.
func (p *portal) pages() []page {
	return slices.Concat(p.dashboardPages(), p.healthPages(), p.instancePages(), p.consolePages(), p.templatePages(),
		p.accessPages(), p.nodePages(), p.eventPages(), p.groupPages(), p.logPages(), p.searchPages(),
		p.usagePages(), p.accountPages(), p.affectedPages(), p.poolPages())
}

// actions is the table of what can be changed.
func (p *portal) actions() []action {
	return slices.Concat(p.instanceActions(), p.templateActions(), p.accessActions(), p.nodeActions(), p.startActions(),
		p.groupActions(), p.poolActions())
}

func (p *portal) favicon(w http.ResponseWriter, r *http.Request) {
	r.URL.Path = p.assets.pathPrefix + "icon.svg"
	p.assets.ServeHTTP(w, r)
}

// pageTemplates are the templates of all pages, each with the layout. Each is parsed when it is first called for:
// together they take several megabytes.
var pageTemplates = sync.OnceValue(func() map[string]func() *template.Template {
	all := map[string]func() *template.Template{}
	names, err := pageFiles.ReadDir("templates")
	if err != nil {
		panic(err) // they are in the program
	}
	shared := sync.OnceValue(func() *template.Template {
		return template.Must(template.New("").Funcs(templateFuncs).ParseFS(pageFiles, "templates/_*.html"))
	})
	for _, f := range names {
		if name, ok := strings.CutSuffix(f.Name(), ".html"); ok && !strings.HasPrefix(name, "_") {
			all[name] = sync.OnceValue(func() *template.Template {
				return template.Must(template.Must(shared().Clone()).ParseFS(pageFiles, "templates/"+f.Name()))
			})
		}
	}
	return all
})
