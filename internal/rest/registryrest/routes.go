// Package registryrest is the registry's HTTP layer: the endpoints of the specification and the protocol of
// push and pull.
//
// It is not the registry: a handler reads parameters, calls one method and encodes its response.
//
// Invariant: bulk bytes are sent without the envelope in both directions and are never compressed on the way;
// everything else is in the envelope.
package registryrest

import (
	"slices"

	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/apidoc"
)

// blobPath is the path below which layer files are served.
const blobPath = "/registry/v2/blob/"

// The permissions of the registry that its routes name.
const (
	permIndex    = "index"
	permDisk     = "get_disk_info"
	permList     = "list_vms"
	permOffer    = "head_push_vm"
	permPush     = "push_vm"
	permPull     = "pull_vm"
	permDownload = "download_vm"
	permDelete   = "delete_vm"
	permRevert   = "revert"
	permConfig   = "change_config"

	permSaveRevert = "save_revert" // only for saves
)

type service struct {
	reg    *registry.Registry
	limits Limits
}

// description configures the URLs of the API's description.
var description = apidoc.Service{
	Name: "Registry", File: "/registry/openapi", Page: "/registry/api", Permission: rest.Known,
	Tags: []string{"Registry", "Push and pull"},
}

// Routes returns the registry's table of routes.
func Routes(reg *registry.Registry) []rest.Route { return RoutesWithin(reg, Limits{}) }

// Limits bound the concurrent requests of callers. A nil limit does not apply.
type Limits struct {
	LogStreams  *rest.ConcurrencyLimit
	ScanUploads *rest.ConcurrencyLimit // for scan results
}

// RoutesWithin is Routes with limits.
func RoutesWithin(reg *registry.Registry, limits Limits) []rest.Route {
	s := service{reg, limits}
	return slices.Concat(description.Routes(), s.storageRoutes(), s.logRoutes(), s.fileRoutes())
}

func (s service) storageRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /{$}", Permission: permIndex, Raw: s.index},
		{Pattern: "GET /livez", Permission: rest.Open, Do: s.livez},
		{Pattern: "GET /readyz", Permission: rest.Open, Do: s.readyz},
		{Pattern: "GET /registry/status", Permission: permIndex, Do: s.status},
		{Pattern: "GET /registry/disk", Permission: permDisk, Do: s.disk},
		{Pattern: "POST /registry/pause", Permission: permConfig, Do: s.pause},

		{Pattern: "GET /registry/v2/stats", Permission: permDisk, Do: s.stats},
		{Pattern: "POST /registry/v2/upkeep", Permission: permConfig, Do: operator(s.startStorageJob)},
		{Pattern: "GET /registry/v2/upkeep", Permission: permConfig, Do: operator(s.storageJob)},
		{Pattern: "DELETE /registry/v2/upkeep", Permission: permConfig, Do: operator(s.cancelStorageJob)},

		{Pattern: "GET /registry/vm", Permission: permList, Do: s.listV1},
		{Pattern: "GET /registry/v2/vm", Permission: permList, Do: s.list},
		{Pattern: "GET /registry/vm/info", Permission: permList, Do: s.info},
		{Pattern: "GET /registry/v2/vm/scan", Permission: permList, Raw: s.scan},
		{Pattern: "PUT /registry/v2/vm/scan", Permission: permPush, Raw: s.putScan},
		{Pattern: "DELETE /registry/v2/vm/scan", Permission: permPush, Do: s.deleteScan},
		{Pattern: "GET /registry/v2/rights", Permission: rest.Known, Do: s.rights},
		{Pattern: "DELETE /registry/vm", Permission: permDelete, Do: s.remove},
		{Pattern: "DELETE /registry/revert", Permission: permRevert, Do: s.revert},
		{Pattern: "PUT /registry/vm/arch", Permission: permPush, Do: s.setArch},

		{Pattern: "POST /registry/v2/push", Permission: permOffer, Ordered: true, Do: s.negotiate},
		{Pattern: "GET /registry/v2/push/{session}", Permission: permOffer, Ordered: true, Do: s.session},
		{
			Pattern: "PUT /registry/v2/push/{session}/{file}", Permission: permPush, Ordered: true, Steady: true,
			Raw: s.put,
		},
		{Pattern: "POST /registry/v2/push/{session}/commit", Permission: permPush, Ordered: true, Do: s.commit},
		{Pattern: "DELETE /registry/v2/push/{session}", Permission: permPush, Ordered: true, Do: s.abort},

		{Pattern: "GET /registry/v2/pull", Permission: permPull, Ordered: true, Do: s.manifest},
		{Pattern: "GET " + blobPath + "{root}", Permission: permDownload, Ordered: true, Raw: s.blob},
	}
}
