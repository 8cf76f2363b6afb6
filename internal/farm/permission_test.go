package farm

import (
	"slices"
	"strings"
	"testing"
)

// printed is the names of the specification's tables, letter for letter, and below them
// what the contract adds for routes that the tables lack.
var printed = map[Service]string{
	ServiceController: `list_vms start_vm terminate_vm
		get_registry_files view_logs get_registry_disk_info registry_list registry_delete
		list_nodes delete_node change_node_config
		create_group get_groups delete_group update_group add_node_to_group remove_group_from_node
		registry_distribute registry_distribute_status
		change_config get_config
		view_permissions view_prmission_groups update_permission_groups delete_permission_groups
		update_vm save_image list_images report_scan`,
	ServiceRegistry: `index get_disk_info list_vms head_push_vm push_vm pull_vm download_vm delete_vm revert save_revert
		upload_file download_file
		get_streamer stream_log get_log_archive send_log_event send_log
		view_permissions view_prmission_groups update_permission_groups delete_permission_groups
		change_config`,
}

var printedResources = map[ResourceType]string{
	ResourceNode:     "change_config create_instance delete_template distribute force_upgrade list remove",
	ResourceTemplate: "delete_revert get_config list pull push_tag save_image set_arch",
}

func names(list []PermissionInfo) []string {
	var out []string
	for _, p := range list {
		out = append(out, string(p.Name))
	}
	return slices.Sorted(slices.Values(out))
}

func TestPermissionsAreAsPrinted(t *testing.T) {
	for service, text := range printed {
		if got, want := names(AllPermissions(service)),
			slices.Sorted(slices.Values(strings.Fields(text))); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", service, got, want)
		}
	}
	for kind, text := range printedResources {
		if got := names(ResourcePermissions(kind)); !slices.Equal(got, strings.Fields(text)) {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

func TestPermissionsAreDescribed(t *testing.T) {
	lists := [][]PermissionInfo{AllPermissions(ServiceController), AllPermissions(ServiceRegistry)}
	for _, kind := range append(ResourceTypes(ServiceController), ResourceTypes(ServiceRegistry)...) {
		lists = append(lists, ResourcePermissions(kind))
	}
	for _, list := range lists {
		seen := map[Permission]bool{PermRoot: true}
		for _, p := range list {
			if seen[p.Name] || p.Category == "" || p.Label == "" || !strings.HasSuffix(p.Description, ".") {
				t.Errorf("%+v is there twice, or is not described", p)
			}
			seen[p.Name] = true
		}
		if len(list) == 0 || len(list) > 64 {
			t.Errorf("%d permissions: they must fit one word of bits", len(list))
		}
	}
}

func TestUnknownServicesHaveNoPermissions(t *testing.T) {
	if ResourceTypes("other") != nil || AllPermissions("other") != nil {
		t.Error("something is there that nobody has")
	}
	AllPermissions(ServiceRegistry)[0].Name = "changed"
	if AllPermissions(ServiceRegistry)[0].Name == "changed" {
		t.Error("a caller can change the table")
	}
}
