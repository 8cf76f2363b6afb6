package controllerrest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"hash/maphash"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/apidoc"
)

// Options configures the routes.
type Options struct {
	Controller     *controller.Controller
	VMNamePrefix   string        // of every VM, as the controller puts it
	RequestTimeout time.Duration // of every call except polls
	Logger         *slog.Logger
	Meter          *rest.Meter // nil: requests are not counted
	// address of the registry as the controller reaches it; "": logs and files are not passed on
	Registry   string
	ToRegistry http.RoundTripper // its connections, with the controller's credentials; nil: plain ones
	Packages   PackageFiles      // nil: there are no agent packages
	// Backup streams the store and returns the approximate size; nil: it cannot be backed up.
	Backup     func(ctx context.Context) (stream io.ReadCloser, size int64, err error)
	Guard      *rest.Guard            // nil: every caller may do everything
	Auth       []rest.Route           // the routes of authentication
	Watches    *rest.ConcurrencyLimit // of watches and waits for events; nil: not bounded
	LogStreams *rest.ConcurrencyLimit // of the streams of logs that are passed on; nil: not bounded
	Consoles   *rest.ConcurrencyLimit // of the consoles of viewers; nil: only bounded in total
	// Passes makes a node token for the registry, restricted to a scope, and returns its lifetime. nil: nodes
	// need no token there, or none that can be made here.
	Passes func(node *farm.Node, scope auth.NodeScope) (pass string, life time.Duration)
}

type server struct {
	c      *controller.Controller
	prefix string                       // of the names of VMs
	quiet  func() (rest.Encoded, error) // the response to a poll without work
	// registry is the registry's address for logs and files.
	registry   string
	toRegistry http.RoundTripper
	era        string       // of this process: its counters start again in the next one
	seed       maphash.Seed // of sums that are valid only in this process

	scans chan struct{} // limits the concurrent requests that read or write scan results

	watches, logStreams, consoles *rest.ConcurrencyLimit

	packages PackageFiles
	// openBackup streams the store; nil: it cannot be backed up.
	openBackup func(ctx context.Context) (io.ReadCloser, int64, error)

	guesses *auth.GuessLimiter // limits guesses of the join token without a guard
	passes  func(node *farm.Node, scope auth.NodeScope) (string, time.Duration)

	vmFields filter.Table[instances.View]
}

// Handler serves the controller's API and the node API.
func Handler(o Options) http.Handler {
	s := newServer(o)
	return serve(o, s.licensed(slices.Concat(s.all(), o.Auth)))
}

// NodeHandler serves only the node API, the handshake of the API keys that nodes join with, and the health
// checks.
func NodeHandler(o Options) http.Handler {
	s := newServer(o)
	routes := slices.DeleteFunc(s.all(), func(r rest.Route) bool {
		switch r.Permission {
		case rest.Node, rest.NodeOrKnown, rest.Open:
			return false
		}
		return true
	})
	for _, r := range o.Auth {
		if slices.Contains([]string{"POST " + api.PathHand, "POST " + api.PathShake}, r.Pattern) {
			routes = append(routes, r)
		}
	}
	return serve(o, s.licensed(routes))
}

func serve(o Options, routes []rest.Route) http.Handler {
	routes = rest.WithTimeout(o.RequestTimeout, routes)
	return rest.Metered(o.Meter, routes, o.Guard.Handler(routes, o.Logger))
}

func newServer(o Options) *server {
	s := &server{
		c: o.Controller, prefix: o.VMNamePrefix, registry: strings.TrimSuffix(o.Registry, "/"),
		toRegistry: o.ToRegistry, era: rand.Text()[:12], seed: maphash.MakeSeed(),
		watches: o.Watches, logStreams: o.LogStreams, consoles: o.Consoles,
		packages: o.Packages, guesses: &auth.GuessLimiter{}, passes: o.Passes, vmFields: vmFields(o.Controller),
		openBackup: o.Backup, scans: make(chan struct{}, maxScans),
	}
	if s.toRegistry == nil {
		s.toRegistry = http.DefaultTransport
	}
	s.quiet = sync.OnceValues(func() (rest.Encoded, error) { return rest.Encode(s.c.Link.EmptyPollResponse()) })
	return s
}

// Routes returns the table of routes of the API, for comparison with its description. Its handlers must not be
// called.
func Routes() []rest.Route { return new(server).all() }

// description configures the URLs of the API's description.
var description = apidoc.Service{
	Name: "Controller", File: "/api/v1/openapi", Page: "/api", Permission: rest.Known,
	Tags: []string{"Controller", "Node link"},
}

// maxReport is the largest report of a node that is read: the output of a save's script
// has up to 2 MiB, which may be six times as much in JSON.
const maxReport = 16 << 20

// all is the table of routes of the API and its description.
func (s *server) all() []rest.Route { return slices.Concat(s.routes(), description.Routes()) }

// routes is the table of routes of the API.
func (s *server) routes() []rest.Route {
	return slices.Concat(s.coreRoutes(), s.templateRoutes(), s.eventRoutes(), s.groupRoutes(), s.configRoutes(),
		s.networkRoutes(), s.logRoutes(), s.packageRoutes(), s.scanRoutes())
}

// coreRoutes are the routes that every build cloud has.
func (s *server) coreRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /livez", Permission: rest.Open, Do: alive},
		{Pattern: "GET /readyz", Permission: rest.Open, Do: s.ready},
		{Pattern: "GET /api/v1/status", Permission: rest.Known, Do: s.status},
		{Pattern: "GET /api/v1/rights", Permission: rest.Known, Do: s.rights},
		{Pattern: "GET /api/v1/stats", Permission: "view_logs", Do: s.stats},
		{Pattern: "GET /api/v1/stats/series", Permission: "view_logs", Do: s.series},

		{Pattern: "GET /api/v1/vm", Permission: "list_vms", Do: s.listVMs},
		{Pattern: "GET /api/v1/vm/page", Permission: "list_vms", Do: s.pageVMs},
		{Pattern: "GET /api/v1/vm/history", Permission: "list_vms", Do: s.listHistory},
		{Pattern: "GET /api/v1/vm/watch", Permission: "list_vms", Follows: true, Raw: s.watchVMs},
		{Pattern: "GET /api/v1/vm/console", Permission: "update_vm", Follows: true, Raw: s.console},
		{Pattern: "POST /api/v1/vm", Permission: "start_vm", OwnEvents: true, Do: s.once(s.startVMs)},
		{Pattern: "PUT /api/v1/vm", Permission: "update_vm", Do: s.updateVM},
		{Pattern: "DELETE /api/v1/vm", Permission: "terminate_vm", OwnEvents: true, Do: s.terminateVM},

		{Pattern: "POST /api/v1/rpc/vm/restart", Permission: "update_vm", Do: s.restartVM},

		{Pattern: "GET /api/v1/image", Permission: "list_images", Do: s.listImages},
		{Pattern: "POST /api/v1/image", Permission: "save_image", Do: s.once(s.saveImage)},

		{Pattern: "GET /api/v1/node", Permission: "list_nodes", Do: s.listNodes},
		{Pattern: "GET /api/v1/node/page", Permission: "list_nodes", Do: s.pageNodes},
		{Pattern: "DELETE /api/v1/node", Permission: "delete_node", OwnEvents: true, Do: s.deleteNode},
		{Pattern: "GET /api/v1/node/adopt", Permission: "change_node_config", Do: s.listUnknown},
		{Pattern: "POST /api/v1/node/adopt", Permission: "change_node_config", Do: s.adopt},

		{Pattern: "GET /api/v1/maintenance", Permission: "get_config", Do: s.maintenance},
		{Pattern: "POST /api/v1/maintenance", Permission: "change_config", Do: s.beginMaintenance},
		{Pattern: "DELETE /api/v1/maintenance", Permission: "change_config", Do: s.endMaintenance},

		{Pattern: "GET /api/v1/registry/disk", Permission: "get_registry_disk_info", Do: s.registryDisk},

		{Pattern: "GET " + api.PathBackup, Permission: string(farm.PermRoot), Hangs: true, Raw: s.backup},

		{Pattern: "POST " + api.PathJoin, Permission: rest.NodeOrKnown, Typed: true, Do: link(s.join)},
		{
			Pattern: "POST " +
				api.PathPoll, Permission: rest.Node, Steady: true, Hangs: true, Typed: true, Vouch: s.verifyNode,
			Do: s.poll,
		},
		{
			Pattern: "POST " + api.PathReport, Permission: rest.Node, Steady: true, Typed: true, MaxBody: maxReport,
			Vouch: s.verifyNode, Do: link(s.report),
		},
		{Pattern: "POST " + api.PathPass, Permission: rest.Node, Steady: true, Typed: true, Do: link(s.nodeToken)},
		{Pattern: "GET " + api.PathConsole, Permission: rest.Node, Steady: true, Hangs: true, Raw: s.nodeConsole},
		{Pattern: "POST " + api.PathDisjoin, Permission: rest.Node, Do: s.disjoin},
	}
}

func alive(*rest.Request) (any, error) { return nil, nil } // an answer without a body

func (s *server) ready(*rest.Request) (any, error) { return nil, s.c.Healthy() }

func (s *server) status(r *rest.Request) (any, error) { return s.c.Status(r.Context()), nil }

func (s *server) stats(*rest.Request) (any, error) { return s.c.Usage.Stats(), nil }

func (s *server) registryDisk(r *rest.Request) (any, error) { return s.c.Templates.Disk(r.Context()) }

// link adapts a handler of the node API: its bodies are typed and come from agents, so that they are decoded
// directly into their types.
func link[In, Out any](do func(ctx context.Context, r *http.Request, in In) (Out, error)) rest.HandlerFunc {
	return func(r *rest.Request) (any, error) {
		var in In
		if err := json.Unmarshal(r.Params.Raw(), &in); err != nil {
			return nil, farm.Errorf(farm.CodeInvalid, "The request does not have the form of the node protocol")
		}
		return do(r.Context(), r.Request, in)
	}
}

// credential returns the node's secret.
func credential(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// verifyNode refuses a caller without a node's credential.
func (s *server) verifyNode(r *http.Request) error { return s.c.Nodes.VerifyCredential(credential(r)) }

func (s *server) poll(r *rest.Request) (any, error) {
	wait, err := waitOf(r.URL)
	if err != nil {
		return nil, err
	}
	answer, err := s.c.Link.PollRaw(r.Context(), credential(r.Request), r.Params.Raw(), wait)
	if err == nil && nodelink.IsEmptyPoll(answer) {
		return s.quiet()
	}
	return answer, err
}

// waitOf returns how long a poll may wait. Agents send only this parameter, in few characters.
func waitOf(u *url.URL) (time.Duration, error) {
	text, ok := strings.CutPrefix(u.RawQuery, "wait=")
	if !ok || strings.ContainsAny(text, "&%+;") {
		text = u.Query().Get("wait")
	}
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > nodelink.MaxWait {
		return 0, farm.Invalid("wait", "must be a duration between 0s and %s", nodelink.MaxWait)
	}
	return wait, nil
}

func (s *server) report(ctx context.Context, r *http.Request, in api.Report) (api.ReportAnswer, error) {
	return s.c.Link.Report(ctx, credential(r), in)
}

func (s *server) disjoin(r *rest.Request) (any, error) {
	id := r.Params.Required("node_id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.c.Nodes.Disjoin(r.Context(), id, credential(r.Request))
}
