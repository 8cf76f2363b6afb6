package controllerrest

import (
	"strings"
	"testing"
)

// routePermissions is what each route needs, as the specification's permission tables and section 4 of the
// contract define it: "-" needs no credential, "known" any valid credential.
const routePermissions = `
GET /livez -
GET /readyz -
GET /api/v1/status known
GET /api/v1/rights known
GET /api/v1/search known
GET /api/v1/filter/complete known
GET /api/v1/stats view_logs
GET /api/v1/stats/series view_logs
GET /api/v1/stats/usage view_logs
GET /api/v1/vm list_vms
GET /api/v1/vm/page list_vms
GET /api/v1/vm/history list_vms
GET /api/v1/vm/watch list_vms
GET /api/v1/vm/console update_vm
POST /api/v1/vm start_vm
PUT /api/v1/vm update_vm
DELETE /api/v1/vm terminate_vm
POST /api/v1/rpc/vm/restart update_vm
GET /api/v1/image list_images
POST /api/v1/image save_image
GET /api/v1/node list_nodes
GET /api/v1/node/page list_nodes
DELETE /api/v1/node delete_node
GET /api/v1/node/adopt change_node_config
POST /api/v1/node/adopt change_node_config
POST /api/v1/node/config change_node_config
PUT /api/v1/node/update change_node_config
GET /api/v1/node/token change_node_config
POST /api/v1/node/token change_node_config
DELETE /api/v1/node/token change_node_config
GET /api/v1/node/rollout list_nodes
POST /api/v1/node/rollout change_node_config
PUT /api/v1/node/rollout change_node_config
GET /api/v1/node/scan list_nodes
GET /api/v1/node/scans list_nodes
GET /api/v1/node/scan/instances list_nodes
PUT /api/v1/node/scan report_scan
PUT /api/v1/vulnerability/version report_scan
GET /api/v1/vulnerability/version report_scan
GET /api/v1/vulnerability/affected list_vms
GET /api/v1/maintenance get_config
POST /api/v1/maintenance change_config
DELETE /api/v1/maintenance change_config
GET /api/v1/registry/disk get_registry_disk_info
GET /api/v1/admin/backup root
GET /api/v1/registry/vm registry_list
GET /api/v1/registry/vm/page registry_list
GET /api/v1/registry/vm/nodes list_nodes
GET /api/v1/registry/vm/scan registry_list
DELETE /api/v1/registry/vm registry_delete
DELETE /api/v1/registry/revert registry_delete
GET /api/v1/registry/vm/remove registry_list
DELETE /api/v1/registry/vm/remove registry_delete
GET /api/v1/registry/vm/distribute registry_distribute_status
POST /api/v1/registry/vm/distribute registry_distribute
DELETE /api/v1/registry/vm/distribute registry_distribute
GET /api/v1/events view_logs
GET /api/v1/group get_groups
POST /api/v1/group create_group
PUT /api/v1/group update_group
DELETE /api/v1/group delete_group
POST /api/v1/node/group add_node_to_group
DELETE /api/v1/node/group remove_group_from_node
GET /api/v1/pool list_vms
POST /api/v1/pool change_config
PUT /api/v1/pool change_config
DELETE /api/v1/pool change_config
GET /api/v1/usb list_nodes
GET /api/v1/vlan list_nodes
GET /api/v1/macaddr list_nodes
PUT /api/v1/macaddr change_config
DELETE /api/v1/macaddr change_config
GET /api/v1/vm/logs view_logs
GET /api/v1/registry/files get_registry_files
GET /api/v1/registry/files/{path...} get_registry_files
GET /api/v1/log/services view_logs
GET /api/v1/log/files view_logs
GET /api/v1/log/view view_logs
GET /api/v1/log/entries view_logs
GET /api/v1/log/stream view_logs
GET /api/v1/log/page view_logs
GET /api/v1/log/archive view_logs
GET /pkg/manifest node-or-known
GET /pkg/{name} node-or-known
POST /queue/v1/join node-or-known
POST /queue/v1/cloud node
POST /queue/v1/poll node
POST /queue/v1/report node
POST /queue/v1/pass node
POST /queue/v1/peers node
POST /queue/v1/scan node
GET /queue/v1/console node
POST /queue/v1/disjoin node
GET /api known
GET /api/v1/openapi.json known
GET /api/v1/openapi.yaml known
`

// TestEachRouteNeedsItsPermission: a change of a route's permission must be made here, too.
func TestEachRouteNeedsItsPermission(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(routePermissions)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		want[line[:at]] = strings.TrimSpace(line[at:])
	}
	for _, r := range Routes() {
		if needs, ok := want[r.Pattern]; !ok {
			t.Errorf("%s %s is not in the table", r.Pattern, r.Permission)
		} else if needs != r.Permission {
			t.Errorf("%s needs %s; the table says %s", r.Pattern, r.Permission, needs)
		}
		delete(want, r.Pattern)
	}
	for pattern := range want {
		t.Errorf("there is no route %s", pattern)
	}
}
