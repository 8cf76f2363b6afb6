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
	Name: "Registry", FileName: "/registry/openapi", PagePath: "/registry/api", Permission: rest.AnyCredential,
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
		{Pattern: "GET /{$}", Permission: permIndex, HandleRaw: s.index},
		{Pattern: "GET /livez", Permission: rest.NoCredential, Handle: s.livez},
		{Pattern: "GET /readyz", Permission: rest.NoCredential, Handle: s.readyz},
		{Pattern: "GET /registry/status", Permission: permIndex, Handle: s.status},
		{Pattern: "GET /registry/disk", Permission: permDisk, Handle: s.disk},
		{Pattern: "POST /registry/pause", Permission: permConfig, Handle: s.pause},

		{Pattern: "GET /registry/v2/stats", Permission: permDisk, Handle: s.stats},
		{Pattern: "POST /registry/v2/upkeep", Permission: permConfig, Handle: operator(s.startStorageJob)},
		{Pattern: "GET /registry/v2/upkeep", Permission: permConfig, Handle: operator(s.storageJob)},
		{Pattern: "DELETE /registry/v2/upkeep", Permission: permConfig, Handle: operator(s.cancelStorageJob)},

		{Pattern: "GET /registry/vm", Permission: permList, Handle: s.listV1},
		{Pattern: "GET /registry/v2/vm", Permission: permList, Handle: s.list},
		{Pattern: "GET /registry/vm/info", Permission: permList, Handle: s.info},
		{Pattern: "GET /registry/v2/vm/scan", Permission: permList, HandleRaw: s.scan},
		{Pattern: "PUT /registry/v2/vm/scan", Permission: permPush, HandleRaw: s.putScan},
		{Pattern: "DELETE /registry/v2/vm/scan", Permission: permPush, Handle: s.deleteScan},
		{Pattern: "GET /registry/v2/rights", Permission: rest.AnyCredential, Handle: s.rights},
		{Pattern: "DELETE /registry/vm", Permission: permDelete, Handle: s.remove},
		{Pattern: "DELETE /registry/revert", Permission: permRevert, Handle: s.revert},
		{Pattern: "PUT /registry/vm/arch", Permission: permPush, Handle: s.setArch},

		{Pattern: "POST /registry/v2/push", Permission: permOffer, AllowsNodeToken: true, Handle: s.negotiate},
		{Pattern: "GET /registry/v2/push/{session}", Permission: permOffer, AllowsNodeToken: true, Handle: s.session},
		{
			Pattern: "PUT /registry/v2/push/{session}/{file}", Permission: permPush, AllowsNodeToken: true,
			Frequent:  true,
			HandleRaw: s.put,
		},
		{
			Pattern: "POST /registry/v2/push/{session}/commit", Permission: permPush, AllowsNodeToken: true,
			Handle: s.commit,
		},
		{Pattern: "DELETE /registry/v2/push/{session}", Permission: permPush, AllowsNodeToken: true, Handle: s.abort},

		{Pattern: "GET /registry/v2/pull", Permission: permPull, AllowsNodeToken: true, Handle: s.manifest},
		{Pattern: "GET " + blobPath + "{root}", Permission: permDownload, AllowsNodeToken: true, HandleRaw: s.blob},
	}
}
