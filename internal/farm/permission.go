package farm

import "slices"

// Permission is the right to use some routes of a service. Its text is fixed: clients and saved
// permission groups contain it, misspelled ones too.
type Permission string

// PermRoot is the permission of the root user alone, whatever is granted or switched off. It is in
// no list and cannot be granted.
const PermRoot Permission = "root"

// PermissionInfo is one permission as it is shown to people.
type PermissionInfo struct {
	Name        Permission
	Category    string // heading under which it stands
	Label       string // a few words
	Description string // a sentence
}

// Service is a program with its own permissions.
type Service string

// The services.
const (
	ServiceController Service = "controller"
	ServiceRegistry   Service = "registry"
)

// AllPermissions lists the permissions of a service, in the order in which they are shown.
func AllPermissions(s Service) []PermissionInfo { return slices.Clone(servicePermissions[s]) }

// adminPermissions is the permissions about permissions, which both services have.
var adminPermissions = []PermissionInfo{
	{"view_permissions", "Permission admin", "View permissions", "See which permissions there are."},
	{
		"view_prmission_groups", "Permission admin", "View permission groups",
		"See permission groups and what they may do.",
	},
	{
		"update_permission_groups", "Permission admin", "Change permission groups",
		"Make permission groups and change what they may do.",
	},
	{"delete_permission_groups", "Permission admin", "Delete permission groups", "Delete permission groups."},
}

// servicePermissions are the tables of the specification, and the rows that its routes need besides.
var servicePermissions = map[Service][]PermissionInfo{
	ServiceController: append([]PermissionInfo{
		{"list_vms", "Instances", "List instances", "View instances, their history and their changes, and warm pools."},
		{"start_vm", "Instances", "Start instances", "Start instances from templates."},
		{"terminate_vm", "Instances", "Terminate instances", "Terminate instances."},
		{"update_vm", "Instances", "Change instances", "Rename and restart instances, and use their console."},
		{"save_image", "Images", "Save images", "Save an instance as a template or tag."},
		{"list_images", "Images", "List images", "See requests to save an image."},
		{"get_registry_files", "Registry", "Read registry files", "Read files and logs of the registry."},
		{"view_logs", "Registry", "View logs", "Read log files, events and statistics."},
		{"get_registry_disk_info", "Registry", "Registry disk", "See how full the registry's disk is."},
		{"registry_list", "Registry", "List templates", "See templates and their tags."},
		{
			"registry_delete", "Registry", "Delete templates",
			"Delete templates, revert tags and remove templates from nodes.",
		},
		{"list_nodes", "Nodes", "List nodes", "See nodes, their USB devices, VLANs and MAC addresses."},
		{"delete_node", "Nodes", "Delete nodes", "Delete nodes that no longer exist."},
		{
			"change_node_config", "Nodes", "Configure nodes",
			"Change capacity, name and drain mode of nodes, and update them.",
		},
		{"report_scan", "Nodes", "Report scans", "Send what scanners have found on nodes and in versions."},
		{"create_group", "Node groups", "Create groups", "Create node groups."},
		{"get_groups", "Node groups", "List groups", "See node groups."},
		{"delete_group", "Node groups", "Delete groups", "Delete node groups."},
		{"update_group", "Node groups", "Change groups", "Change node groups."},
		{"add_node_to_group", "Node groups", "Add nodes to groups", "Add nodes to groups."},
		{"remove_group_from_node", "Node groups", "Remove nodes from groups", "Remove nodes from groups."},
		{
			"registry_distribute", "Distribution", "Distribute templates",
			"Distribute templates to nodes, and cancel that.",
		},
		{"registry_distribute_status", "Distribution", "Follow distributions", "See how far distributions are."},
		{
			"change_config", "Config", "Change configuration",
			"Change how the controller works: maintenance, the list of MAC addresses, warm pools.",
		},
		{"get_config", "Config", "Read configuration", "See the state of maintenance mode."},
	}, adminPermissions...),
	ServiceRegistry: append([]PermissionInfo{
		{"index", "Info", "Status", "See the welcome page and the registry's status."},
		{"get_disk_info", "Info", "Disk", "See how full the registry's disk is."},
		{"list_vms", "List", "List templates", "See templates, their tags and configurations."},
		{"head_push_vm", "Push", "Offer a push", "Ask which files of a push exist and which must be sent."},
		{"push_vm", "Push", "Push", "Push; create templates and tags."},
		{"pull_vm", "Pull", "Ask for a pull", "Get the list of files of a pull and their paths."},
		{"download_vm", "Pull", "Download", "Download the files of a pull."},
		{"delete_vm", "Delete", "Delete templates", "Delete templates with all their tags."},
		{"revert", "Delete", "Revert tags", "Delete a tag and all newer ones."},
		{
			"save_revert", "Delete", "Revert with a save",
			"Save an instance in place of a tag and all newer ones; revert includes it.",
		},
		{"upload_file", "File server", "Upload files", "Upload and delete files of the file server."},
		{"download_file", "File server", "Download files", "List and download files of the file server."},
		{"get_streamer", "Log server", "Log page", "See the page that follows a log."},
		{"stream_log", "Log server", "Read logs", "List, read and follow logs."},
		{"get_log_archive", "Log server", "Log archive", "Download logs as an archive (tar.gz)."},
		{"send_log_event", "Log server", "Send events", "Append to the event log."},
		{"send_log", "Log server", "Send logs", "Append rows to logs."},
		{"change_config", "Config", "Change configuration", "Pause the registry, and check and repair its storage."},
	}, adminPermissions...),
}

// ResourceType is a kind of resources on which rights can be granted one by one.
type ResourceType string

// The resource types.
const (
	ResourceNode     ResourceType = "node"
	ResourceTemplate ResourceType = "template"
)

// ResourceTypes lists the resource types that a service has the rights of.
func ResourceTypes(s Service) []ResourceType {
	switch s {
	case ServiceController:
		return []ResourceType{ResourceNode}
	case ServiceRegistry:
		return []ResourceType{ResourceTemplate}
	default:
		return nil
	}
}

// ResourcePermissions lists the rights on resources of a type, sorted by name.
func ResourcePermissions(t ResourceType) []PermissionInfo {
	return slices.Clone(resourcePermissions[t])
}

var resourcePermissions = map[ResourceType][]PermissionInfo{
	ResourceNode: {
		{"change_config", "Node", "Configure", "Change the node's capacity, name and drain mode."},
		{"create_instance", "Node", "Start instances", "Start instances on the node."},
		{"delete_template", "Node", "Remove templates", "Remove templates from the node."},
		{"distribute", "Node", "Distribute templates", "Distribute templates to the node."},
		{"force_upgrade", "Node", "Update", "Have the node install the current agent."},
		{"list", "Node", "List", "See the node."},
		{"remove", "Node", "Delete", "Delete the node."},
	},
	ResourceTemplate: {
		{"delete_revert", "Template", "Delete and revert", "Delete the template and revert its tags."},
		{"get_config", "Template", "Read configuration", "See the configuration of the template's VM."},
		{"list", "Template", "List", "See the template and its tags."},
		{"pull", "Template", "Pull", "Pull the template and start instances from it."},
		{"push_tag", "Template", "Push tags", "Push new tags of the template."},
		{"save_image", "Template", "Save images", "Save instances as tags of the template."},
		{"set_arch", "Template", "Set the architecture", "Change the template's architecture."},
	},
}
