package controllerrest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"hash/maphash"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
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
	RegistryAddress   string
	RegistryTransport http.RoundTripper // its connections, with the controller's credentials; nil: plain ones
	Packages          PackageFiles      // nil: there are no agent packages
	// Backup streams the store and returns the approximate size; nil: it cannot be backed up.
	Backup     func(ctx context.Context) (stream io.ReadCloser, size int64, err error)
	Guard      *rest.Guard            // nil: every caller may do everything
	AuthRoutes []rest.Route           // the routes of authentication
	Watches    *rest.ConcurrencyLimit // of watches and waits for events; nil: not bounded
	LogStreams *rest.ConcurrencyLimit // of the streams of logs that are passed on; nil: not bounded
	Consoles   *rest.ConcurrencyLimit // of the consoles of viewers; nil: only bounded in total
	// IssueRegistryToken makes a registry token, restricted to a scope, and returns its lifetime. nil:
	// nodes need no token there, or none that can be made here.
	IssueRegistryToken func(node *farm.Node, scope auth.NodeScope) (pass string, life time.Duration)
	ListKeys           func() []farm.APIKey // the API keys, for a search of the root user; nil: there are none
}

type server struct {
	controller        *controller.Controller
	vmNamePrefix      string                       // of the names of VMs
	emptyPollResponse func() (rest.Encoded, error) // the response to a poll without work
	// registryAddress is the registry's address for logs and files.
	registryAddress   string
	registryTransport http.RoundTripper
	processEpoch      string       // of this process: its counters start again in the next one
	hashSeed          maphash.Seed // of sums that are valid only in this process

	scanSlots chan struct{} // limits the concurrent requests that read or write scan results

	watches, logStreams, consoles *rest.ConcurrencyLimit

	packageFiles PackageFiles
	// openBackup streams the store; nil: it cannot be backed up.
	openBackup func(ctx context.Context) (io.ReadCloser, int64, error)

	guessLimiter       *auth.GuessLimiter // limits guesses of the join token without a guard
	issueRegistryToken func(node *farm.Node, scope auth.NodeScope) (string, time.Duration)
	listKeys           func() []farm.APIKey // nil: there are none

	vmFields filter.Table[instances.View]

	instanceTexts *searchTexts[farm.Instance]
	historyTexts  *searchTexts[farm.InstanceHistory]
}

// Handler serves the controller's API and the node API.
func Handler(o Options) http.Handler {
	s := newServer(o)
	return newHandler(o, s.withTierGates(slices.Concat(s.allRoutes(), o.AuthRoutes)))
}

// NodeHandler serves only the node API, the handshake of the API keys that nodes join with, and the health
// checks.
func NodeHandler(o Options) http.Handler {
	s := newServer(o)
	routes := slices.DeleteFunc(s.allRoutes(), func(r rest.Route) bool {
		switch r.Permission {
		case rest.NodeOnly, rest.NodeOrCaller, rest.NoCredential:
			return false
		}
		return true
	})
	for _, r := range o.AuthRoutes {
		if slices.Contains([]string{"POST " + api.PathHand, "POST " + api.PathShake}, r.Pattern) {
			routes = append(routes, r)
		}
	}
	return newHandler(o, s.withTierGates(routes))
}

func newHandler(o Options, routes []rest.Route) http.Handler {
	routes = rest.WithTimeout(o.RequestTimeout, routes)
	return rest.Metered(o.Meter, routes, o.Guard.Handler(routes, o.Logger))
}

func newServer(o Options) *server {
	s := &server{
		controller: o.Controller, vmNamePrefix: o.VMNamePrefix,
		registryAddress:   strings.TrimSuffix(o.RegistryAddress, "/"),
		registryTransport: o.RegistryTransport, processEpoch: rand.Text()[:12], hashSeed: maphash.MakeSeed(),
		watches: o.Watches, logStreams: o.LogStreams, consoles: o.Consoles,
		packageFiles: o.Packages, guessLimiter: &auth.GuessLimiter{}, issueRegistryToken: o.IssueRegistryToken,
		listKeys: o.ListKeys,
		vmFields: vmFields(o.Controller),
		instanceTexts: newSearchTexts(
			func(a, b *farm.Instance) bool { return a.ID < b.ID }, searchedInstance, orderOfInstance),
		historyTexts: newSearchTexts(
			func(a, b *farm.InstanceHistory) bool { return record.HistoryKey(a) < record.HistoryKey(b) }, searchedPast,
			orderOfPast),
		openBackup: o.Backup, scanSlots: make(chan struct{}, maxScans),
	}
	if s.registryTransport == nil {
		s.registryTransport = http.DefaultTransport
	}
	s.emptyPollResponse = sync.OnceValues(func() (rest.Encoded, error) {
		return rest.Encode(s.controller.Link.EmptyPollResponse())
	})
	return s
}

// Routes returns the table of routes of the API, for comparison with its description. Its handlers must not be
// called.
func Routes() []rest.Route { return new(server).allRoutes() }

// description configures the URLs of the API's description.
var description = apidoc.Service{
	Name: "Controller", FileName: "/api/v1/openapi", PagePath: "/api", Permission: rest.AnyCredential,
	Tags: []string{"Controller", "Node link"},
}

// maxReport is the largest report of a node that is read: the output of a save's script
// has up to 2 MiB, which may be six times as much in JSON.
const maxReport = 16 << 20

// allRoutes is the table of routes of the API and its description.
func (s *server) allRoutes() []rest.Route { return slices.Concat(s.routes(), description.Routes()) }

// routes is the table of routes of the API.
func (s *server) routes() []rest.Route {
	return slices.Concat(s.coreRoutes(), s.templateRoutes(), s.eventRoutes(), s.groupRoutes(), s.poolRoutes(),
		s.configRoutes(), s.networkRoutes(), s.logRoutes(), s.packageRoutes(), s.scanRoutes(), s.tokenRoutes(),
		s.searchRoutes())
}

// coreRoutes are the routes that every build cloud has.
func (s *server) coreRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /livez", Permission: rest.NoCredential, Handle: livez},
		{Pattern: "GET /readyz", Permission: rest.NoCredential, Handle: s.ready},
		{Pattern: "GET /api/v1/status", Permission: rest.AnyCredential, Handle: s.status},
		{Pattern: "GET /api/v1/rights", Permission: rest.AnyCredential, Handle: s.callerRights},
		{Pattern: "GET /api/v1/stats", Permission: "view_logs", Handle: s.stats},
		{Pattern: "GET /api/v1/stats/series", Permission: "view_logs", Handle: s.series},
		{Pattern: "GET /api/v1/stats/usage", Permission: "view_logs", Handle: s.usageReport},

		{Pattern: "GET /api/v1/vm", Permission: "list_vms", Handle: s.listVMs},
		{Pattern: "GET /api/v1/vm/page", Permission: "list_vms", Handle: s.pageVMs},
		{Pattern: "GET /api/v1/vm/history", Permission: "list_vms", Handle: s.listHistory},
		{Pattern: "GET /api/v1/vm/watch", Permission: "list_vms", Streams: true, HandleRaw: s.watchVMs},
		{Pattern: "GET /api/v1/vm/console", Permission: "update_vm", Streams: true, HandleRaw: s.openConsole},
		{Pattern: "POST /api/v1/vm", Permission: "start_vm", OwnEvents: true, Handle: s.withIdempotencyKey(s.startVMs)},
		{Pattern: "PUT /api/v1/vm", Permission: "update_vm", Handle: s.updateVM},
		{Pattern: "DELETE /api/v1/vm", Permission: "terminate_vm", OwnEvents: true, Handle: s.terminateVM},

		{Pattern: "POST /api/v1/rpc/vm/restart", Permission: "update_vm", Handle: s.restartVM},

		{Pattern: "GET /api/v1/image", Permission: "list_images", Handle: s.listImages},
		{Pattern: "POST /api/v1/image", Permission: "save_image", Handle: s.withIdempotencyKey(s.saveImage)},

		{Pattern: "GET /api/v1/node", Permission: "list_nodes", Handle: s.listNodes},
		{Pattern: "GET /api/v1/node/page", Permission: "list_nodes", Handle: s.pageNodes},
		{Pattern: "DELETE /api/v1/node", Permission: "delete_node", OwnEvents: true, Handle: s.deleteNode},
		{Pattern: "GET /api/v1/node/adopt", Permission: "change_node_config", Handle: s.listOrphanedVMs},
		{Pattern: "POST /api/v1/node/adopt", Permission: "change_node_config", Handle: s.adopt},

		{Pattern: "GET /api/v1/maintenance", Permission: "get_config", Handle: s.maintenance},
		{Pattern: "POST /api/v1/maintenance", Permission: "change_config", Handle: s.beginMaintenance},
		{Pattern: "DELETE /api/v1/maintenance", Permission: "change_config", Handle: s.endMaintenance},

		{Pattern: "GET /api/v1/registry/disk", Permission: "get_registry_disk_info", Handle: s.registryDisk},

		{Pattern: "GET " + api.PathBackup, Permission: string(farm.PermRoot), Waits: true, HandleRaw: s.backup},

		{Pattern: "POST " +
			api.PathJoin, Permission: rest.NodeOrCaller, DecodesBody: true, Handle: nodeHandler(s.join)},
		{
			Pattern: "POST " +
				api.PathPoll, Permission: rest.NodeOnly, Frequent: true, Waits: true, DecodesBody: true,
			VerifyNode: s.verifyNode,
			Handle:     s.poll,
		},
		{
			Pattern: "POST " + api.PathReport, Permission: rest.NodeOnly, Frequent: true, DecodesBody: true,
			MaxBody:    maxReport,
			VerifyNode: s.verifyNode, Handle: nodeHandler(s.report),
		},
		{
			Pattern: "POST " + api.PathPass, Permission: rest.NodeOnly, Frequent: true, DecodesBody: true,
			Handle: nodeHandler(s.registryToken),
		},
		{
			Pattern: "POST " + api.PathPeers, Permission: rest.NodeOnly, Frequent: true, DecodesBody: true,
			Handle: nodeHandler(s.peers),
		},
		{
			Pattern: "POST " + api.PathCloudProof, Permission: rest.NodeOnly, Frequent: true, DecodesBody: true,
			Handle: nodeHandler(s.proveCloud),
		},
		{Pattern: "GET " +
			api.PathConsole, Permission: rest.NodeOnly, Frequent: true, Waits: true, HandleRaw: s.nodeConsole},
		{Pattern: "POST " + api.PathDisjoin, Permission: rest.NodeOnly, Handle: s.disjoin},
	}
}

func livez(*rest.Request) (any, error) { return nil, nil } // an answer without a body

func (s *server) ready(*rest.Request) (any, error) { return nil, s.controller.Healthy() }

// status returns the status, with the outages and alarms of the nodes that the caller sees.
func (s *server) status(r *rest.Request) (any, error) {
	out, sees := s.controller.Status(r.Context()), s.visibilityOf(r)
	if sees.listsNodes {
		out.Outages = s.controller.Outages.Current(sees.seesNode)
	}
	out.ActiveAlarms = sees.visibleAlarms(out.ActiveAlarms)
	out.Alarms = nil
	for _, a := range out.ActiveAlarms {
		out.Alarms = append(out.Alarms, a.Message)
	}
	return out, nil
}

func (s *server) stats(*rest.Request) (any, error) {
	out := s.controller.Usage.Stats()
	sum, free := s.controller.Nodes.Slots()
	out.Slots = slotsToAPI(sum)
	out.Slots.Free = free
	return out, nil
}

func (s *server) registryDisk(r *rest.Request) (any, error) {
	return s.controller.Templates.DiskInfo(r.Context())
}

// nodeHandler adapts a handler of the node API: its bodies are typed and come from agents, so that they are decoded
// directly into their types.
func nodeHandler[In, Out any](do func(ctx context.Context, r *http.Request, in In) (Out, error)) rest.HandlerFunc {
	return func(r *rest.Request) (any, error) {
		var in In
		if err := json.Unmarshal(r.Params.RawBody(), &in); err != nil {
			return nil, farm.Errorf(farm.CodeInvalid, "The request does not have the form of the node protocol")
		}
		return do(r.Context(), r.Request, in)
	}
}

// nodeCredential returns the node's secret.
func nodeCredential(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// verifyNode refuses a caller without a node's credential.
func (s *server) verifyNode(r *http.Request) error {
	return s.controller.Nodes.VerifyCredential(nodeCredential(r))
}

func (s *server) poll(r *rest.Request) (any, error) {
	wait, err := waitParam(r.URL)
	if err != nil {
		return nil, err
	}
	sent := nodeTime(r.Header)
	answer, err := s.controller.Link.PollRaw(r.Context(), nodeCredential(r.Request), r.Params.RawBody(), sent, wait)
	if err == nil && nodelink.IsEmptyPoll(answer) {
		return s.emptyPollResponse()
	}
	return answer, err
}

// nodeTime returns when a node sent its poll by its own clock; zero when it did not name a time of this epoch.
func nodeTime(h http.Header) time.Time {
	milliseconds, err := strconv.ParseInt(h.Get(api.HeaderNodeTime), 10, 64)
	if err != nil || milliseconds <= 0 || milliseconds > math.MaxInt64/int64(time.Millisecond) {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// waitParam returns how long a poll may wait. Agents send only this parameter, in few characters.
func waitParam(u *url.URL) (time.Duration, error) {
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
	return s.controller.Link.Report(ctx, nodeCredential(r), in)
}

func (s *server) disjoin(r *rest.Request) (any, error) {
	id := r.Params.Required("node_id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, s.controller.Nodes.Disjoin(r.Context(), id, nodeCredential(r.Request))
}
