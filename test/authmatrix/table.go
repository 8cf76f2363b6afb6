package main

import (
	"fmt"
	"slices"
	"strings"
)

// What a row needs, besides the name of a permission.
const (
	open        = "open"  // nothing
	rootOnly    = "root"  // the root user
	anybody     = "known" // any credential
	nodeOnly    = "node"  // the credential of a node
	nodeOrKnown = "node or known"
	joining     = "join" // the join token, or a caller with change_node_config
)

// The two services.
const (
	controller = "controller"
	registry   = "registry"
)

// printed are the permissions of each service, as the specification prints them, and those that
// the contract adds.
var printed = map[string][]string{
	controller: strings.Fields(`
		list_vms start_vm terminate_vm
		get_registry_files view_logs get_registry_disk_info registry_list registry_delete
		list_nodes delete_node change_node_config
		create_group get_groups delete_group update_group add_node_to_group remove_group_from_node
		registry_distribute registry_distribute_status
		change_config get_config
		view_permissions view_prmission_groups update_permission_groups delete_permission_groups
		update_vm save_image list_images report_scan`),
	registry: strings.Fields(`
		index get_disk_info list_vms head_push_vm push_vm pull_vm download_vm delete_vm revert
		upload_file download_file get_streamer stream_log get_log_archive send_log_event send_log
		view_permissions view_prmission_groups update_permission_groups delete_permission_groups
		change_config`),
}

// ordered are the routes of the registry that a registry token can open, each for orders of its kind; all others
// are closed to nodes.
var ordered = map[string]order{
	"POST /log":                               rowsOrder,
	"GET /registry/v2/pull":                   pullOrder,
	"PUT /registry/v2/pull/trace":             pullOrder,
	"GET /registry/v2/blob/{root}":            pullOrder,
	"POST /registry/v2/push":                  saveOrder,
	"GET /registry/v2/push/{session}":         saveOrder,
	"PUT /registry/v2/push/{session}/{file}":  saveOrder,
	"POST /registry/v2/push/{session}/commit": saveOrder,
	"DELETE /registry/v2/push/{session}":      saveOrder,
	"PUT /registry/files/{path...}":           logsOrder,
}

// order is what a node can be ordered to do at the registry.
type order string

// The orders.
const (
	rowsOrder order = "rows"
	pullOrder order = "pull"
	saveOrder order = "save"
	logsOrder order = "logs"
)

// openByContract is the contract's list of what is open, with the routes of the login page.
var openByContract = strings.Fields(`GET:/livez GET:/readyz POST:/tap/v1/hand POST:/tap/v1/shake GET:/config/v1/auth GET:/oidc/v1/callback
	GET:/login POST:/login GET:/login/oidc`)

// lines are the tables of routes: what is needed, and the routes that need it. A route begins with
// the first letters of its method: G, P (POST), U (PUT), D. After a plus is the permission that the
// registry requires of the user on whose behalf the controller calls it: permissions are enforced
// on both sides.
var lines = map[string]string{
	controller: `
		open: G/livez G/readyz
		known: G/api/v1/status G/api/v1/rights G/api/v1/search G/api/v1/filter/complete G/api G/api/v1/openapi.yaml G/api/v1/openapi.json
		get_config: G/api/v1/maintenance
		change_config: P/api/v1/maintenance D/api/v1/maintenance U/api/v1/macaddr D/api/v1/macaddr P/api/v1/pool U/api/v1/pool D/api/v1/pool
		list_vms: G/api/v1/vm G/api/v1/vm/page G/api/v1/vm/history G/api/v1/vm/watch G/api/v1/pool G/api/v1/vulnerability/affected
		start_vm: P/api/v1/vm
		terminate_vm: D/api/v1/vm
		update_vm: U/api/v1/vm P/api/v1/rpc/vm/restart G/api/v1/vm/console
		save_image: P/api/v1/image
		list_images: G/api/v1/image
		list_nodes: G/api/v1/node G/api/v1/node/page G/api/v1/node/rollout G/api/v1/registry/vm/nodes G/api/v1/node/scan G/api/v1/node/scans G/api/v1/node/scan/instances G/api/v1/usb G/api/v1/vlan G/api/v1/macaddr
		delete_node: D/api/v1/node
		change_node_config: P/api/v1/node/config U/api/v1/node/update G/api/v1/node/adopt P/api/v1/node/adopt G/api/v1/node/token P/api/v1/node/token D/api/v1/node/token P/api/v1/node/rollout U/api/v1/node/rollout
		report_scan: U/api/v1/node/scan U/api/v1/vulnerability/version G/api/v1/vulnerability/version
		create_group: P/api/v1/group
		get_groups: G/api/v1/group
		update_group: U/api/v1/group
		delete_group: D/api/v1/group
		add_node_to_group: P/api/v1/node/group
		remove_group_from_node: D/api/v1/node/group
		registry_list+list_vms: G/api/v1/registry/vm G/api/v1/registry/vm/page G/api/v1/registry/vm/scan
		registry_list: G/api/v1/registry/vm/remove
		registry_delete: D/api/v1/registry/vm D/api/v1/registry/revert D/api/v1/registry/vm/remove
		registry_distribute: P/api/v1/registry/vm/distribute D/api/v1/registry/vm/distribute
		registry_distribute_status: G/api/v1/registry/vm/distribute
		get_registry_disk_info: G/api/v1/registry/disk
		view_logs: G/api/v1/stats G/api/v1/stats/series G/api/v1/stats/usage G/api/v1/events G/api/v1/vm/logs
		get_registry_files+download_file: G/api/v1/registry/files G/api/v1/registry/files/{path...}
		view_logs+stream_log: G/api/v1/log/services G/api/v1/log/files G/api/v1/log/view G/api/v1/log/entries G/api/v1/log/stream
		view_logs+get_streamer: G/api/v1/log/page
		view_logs+get_log_archive: G/api/v1/log/archive
		node or known: G/pkg/manifest G/pkg/{name}
		join: P/queue/v1/join
		node: P/queue/v1/poll P/queue/v1/report P/queue/v1/pass P/queue/v1/peers P/queue/v1/cloud G/queue/v1/console P/queue/v1/scan P/queue/v1/disjoin
		root: G/api/v1/admin/backup G/api/v1/apikey P/api/v1/apikey U/api/v1/apikey D/api/v1/apikey`,
	registry: `
		open: G/livez G/readyz
		index: G/{$} G/registry/status
		get_disk_info: G/registry/disk G/registry/v2/stats
		list_vms: G/registry/vm G/registry/v2/vm G/registry/vm/info G/registry/v2/vm/scan
		head_push_vm: P/registry/v2/push G/registry/v2/push/{session}
		push_vm: U/registry/v2/push/{session}/{file} P/registry/v2/push/{session}/commit D/registry/v2/push/{session} U/registry/vm/arch U/registry/v2/vm/scan D/registry/v2/vm/scan
		pull_vm: G/registry/v2/pull U/registry/v2/pull/trace
		download_vm: G/registry/v2/blob/{root}
		delete_vm: D/registry/vm
		revert: D/registry/revert
		upload_file: U/registry/files/{path...} D/registry/files/{path...}
		download_file: G/registry/files G/registry/files/{path...}
		get_streamer: G/registry/log/page
		stream_log: G/registry/log/services G/registry/log/files G/registry/log/view G/registry/log/entries G/registry/log/stream
		get_log_archive: G/registry/log/archive
		send_log: P/log
		send_log_event: P/log/event
		known: G/registry/v2/rights G/registry/api G/registry/openapi.yaml G/registry/openapi.json
		change_config: P/registry/pause P/registry/v2/upkeep G/registry/v2/upkeep D/registry/v2/upkeep
		root: G/v1/apikey P/v1/apikey U/v1/apikey D/v1/apikey`,
}

// both are the routes that the two services have alike, where A stands for /admin/api/v1/permission
// and for its other spelling.
const both = `
	open: G/config/v1/auth P/tap/v1/hand P/tap/v1/shake G/login P/login G/login/oidc G/oidc/v1/callback
	known: P/logout
	view_permissions: GA GA/resources/permissions
	view_prmission_groups: GA/group GA/group/{groupName} GA/group/{groupName}/resources
	update_permission_groups: PA/group/{groupName} UA/group/{groupName} PA/group/{groupName}/resources
	delete_permission_groups: DA/group/{groupName}`

// methods by the letters of the tables.
var methods = map[byte]string{'G': "GET", 'P': "POST", 'U': "PUT", 'D': "DELETE"}

// needs returns what the routes of a service need, by their patterns.
func needs(service string) (map[string]string, error) {
	table := map[string]string{}
	for line := range strings.Lines(lines[service] + "\n" + both) {
		what, routes, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		own, also, _ := strings.Cut(what, "+")
		if also != "" && !slices.Contains(printed[registry], also) {
			return nil, fmt.Errorf("the registry has no permission %q", also)
		}
		if special := []string{open, rootOnly, anybody, nodeOnly, nodeOrKnown, joining}; !slices.Contains(special,
			own) && !slices.Contains(printed[service], own) {
			return nil, fmt.Errorf("the %s has no permission %q", service, what)
		}
		for route := range strings.FieldsSeq(routes) {
			spellings := []string{route[1:]}
			if rest, admin := strings.CutPrefix(route[1:], "A"); admin {
				spellings = []string{"/admin/api/v1/permission" + rest, "/admin/v1/api/permission" + rest}
			}
			for _, path := range spellings {
				pattern := methods[route[0]] + " " + path
				if table[pattern] != "" {
					return nil, fmt.Errorf("%s is there twice", pattern)
				}
				table[pattern] = what
			}
		}
	}
	return table, nil
}
