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
	registry *registry.Registry
	limits   Limits
}

// apiDescription configures the URLs of the API's description.
var apiDescription = apidoc.Service{
	Name: "Registry", FileName: "/registry/openapi", PagePath: "/registry/api", Permission: rest.AnyCredential,
	Tags: []string{"Registry", "Push and pull"},
}

// Routes returns the registry's table of routes.
func Routes(reg *registry.Registry) []rest.Route { return RoutesWithLimits(reg, Limits{}) }

// Limits bound the concurrent requests of callers. A nil limit does not apply.
type Limits struct {
	LogStreams  *rest.ConcurrencyLimit
	ScanUploads *rest.ConcurrencyLimit // for scan results
}

// RoutesWithLimits is Routes with limits.
func RoutesWithLimits(reg *registry.Registry, limits Limits) []rest.Route {
	s := service{reg, limits}
	return slices.Concat(apiDescription.Routes(), s.storageRoutes(), s.logRoutes(), s.fileRoutes())
}

func (s service) storageRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /{$}", Permission: permIndex, HandleRaw: s.getIndex},
		{Pattern: "GET /livez", Permission: rest.NoCredential, Handle: s.livez},
		{Pattern: "GET /readyz", Permission: rest.NoCredential, Handle: s.readyz},
		{Pattern: "GET /registry/status", Permission: permIndex, Handle: s.getStatus},
		{Pattern: "GET /registry/disk", Permission: permDisk, Handle: s.getDisk},
		{Pattern: "POST /registry/pause", Permission: permConfig, Handle: s.pauseGC},

		{Pattern: "GET /registry/v2/stats", Permission: permDisk, Handle: s.getStats},
		{Pattern: "POST /registry/v2/upkeep", Permission: permConfig, Handle: allowOperator(s.startStorageJob)},
		{Pattern: "GET /registry/v2/upkeep", Permission: permConfig, Handle: allowOperator(s.getStorageJob)},
		{Pattern: "DELETE /registry/v2/upkeep", Permission: permConfig, Handle: allowOperator(s.cancelStorageJob)},

		{Pattern: "GET /registry/vm", Permission: permList, Handle: s.listTemplatesV1},
		{Pattern: "GET /registry/v2/vm", Permission: permList, Handle: s.listTemplates},
		{Pattern: "GET /registry/vm/info", Permission: permList, Handle: s.getConfig},
		{Pattern: "GET /registry/v2/vm/scan", Permission: permList, HandleRaw: s.getScan},
		{Pattern: "PUT /registry/v2/vm/scan", Permission: permPush, HandleRaw: s.putScan},
		{Pattern: "DELETE /registry/v2/vm/scan", Permission: permPush, Handle: s.deleteScan},
		{Pattern: "GET /registry/v2/rights", Permission: rest.AnyCredential, Handle: s.getRights},
		{Pattern: "DELETE /registry/vm", Permission: permDelete, Handle: s.deleteTemplate},
		{Pattern: "DELETE /registry/revert", Permission: permRevert, Handle: s.revert},
		{Pattern: "PUT /registry/vm/arch", Permission: permPush, Handle: s.setArch},

		{Pattern: "POST /registry/v2/push", Permission: permOffer, AllowsRegistryToken: true, Handle: s.negotiate},
		{
			Pattern: "GET /registry/v2/push/{session}", Permission: permOffer, AllowsRegistryToken: true,
			Handle: s.getSession,
		},
		{
			Pattern: "PUT /registry/v2/push/{session}/{file}", Permission: permPush, AllowsRegistryToken: true,
			Frequent:  true,
			HandleRaw: s.putPartOrIndex,
		},
		{
			Pattern: "POST /registry/v2/push/{session}/commit", Permission: permPush, AllowsRegistryToken: true,
			Handle: s.commit,
		},
		{
			Pattern: "DELETE /registry/v2/push/{session}", Permission: permPush, AllowsRegistryToken: true,
			Handle: s.abort,
		},

		{Pattern: "GET /registry/v2/pull", Permission: permPull, AllowsRegistryToken: true, Handle: s.getManifest},
		{
			Pattern: "PUT /registry/v2/pull/trace", Permission: permPull, AllowsRegistryToken: true,
			Handle: s.putBootTrace,
		},
		{Pattern: "GET " + blobPath +
			"{root}", Permission: permDownload, AllowsRegistryToken: true, HandleRaw: s.getLayer},
	}
}
