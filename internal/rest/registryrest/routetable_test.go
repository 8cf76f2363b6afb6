package registryrest

import (
	"strings"
	"testing"
)

// routePermissions is what each route needs, as the specification's permission tables and section 4 of the
// contract define it: "-" needs no credential, "known" any valid credential.
const routePermissions = `
GET /{$} index
GET /livez -
GET /readyz -
GET /registry/status index
GET /registry/disk get_disk_info
POST /registry/pause change_config
GET /registry/v2/stats get_disk_info
POST /registry/v2/upkeep change_config
GET /registry/v2/upkeep change_config
DELETE /registry/v2/upkeep change_config
GET /registry/vm list_vms
GET /registry/v2/vm list_vms
GET /registry/vm/info list_vms
GET /registry/v2/vm/scan list_vms
PUT /registry/v2/vm/scan push_vm
DELETE /registry/v2/vm/scan push_vm
GET /registry/v2/rights known
DELETE /registry/vm delete_vm
DELETE /registry/revert revert
PUT /registry/vm/arch push_vm
POST /registry/v2/push head_push_vm
GET /registry/v2/push/{session} head_push_vm
PUT /registry/v2/push/{session}/{file} push_vm
POST /registry/v2/push/{session}/commit push_vm
DELETE /registry/v2/push/{session} push_vm
GET /registry/v2/pull pull_vm
PUT /registry/v2/pull/trace pull_vm
GET /registry/v2/blob/{root} download_vm
GET /registry/files download_file
GET /registry/files/{path...} download_file
PUT /registry/files/{path...} upload_file
DELETE /registry/files/{path...} upload_file
POST /log send_log
POST /log/event send_log_event
GET /registry/log/services stream_log
GET /registry/log/files stream_log
GET /registry/log/view stream_log
GET /registry/log/entries stream_log
GET /registry/log/stream stream_log
GET /registry/log/page get_streamer
GET /registry/log/archive get_log_archive
GET /registry/api known
GET /registry/openapi.json known
GET /registry/openapi.yaml known
`

// TestEachRouteNeedsItsPermission: a change of a route's permission must be made here, too.
func TestEachRouteNeedsItsPermission(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(routePermissions)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		want[line[:at]] = strings.TrimSpace(line[at:])
	}
	for _, r := range Routes(nil) {
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
