package portal_test

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// visitor views a guarded cloud with an API key of the permission group ci.
type visitor struct {
	*world
	shelf    *client.Registry // as root
	all      map[string][]string
	node     api.Node
	instance string
	group    string
}

// newVisitor runs a cloud with one of each kind of record, for a visitor who may do whatever can be
// granted.
func newVisitor(t *testing.T, settings map[string]string) *visitor {
	t.Helper()
	all := maps.Clone(guardedSettings)
	maps.Copy(all, settings)
	v := &visitor{world: newWorld(t, all), all: map[string][]string{}}
	v.push(debian, "debian")
	v.node = v.join("mac", 1)[0]
	var err error
	ok := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	v.shelf, err = client.NewRegistry(v.RegistryURL(), client.Options{Credentials: client.RootToken(rootToken)})
	ok()
	for service, of := range map[string]interface {
		Permissions(ctx context.Context) ([]api.Permission, error)
	}{"controller": v.API, "registry": v.shelf} {
		known, err := of.Permissions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range known {
			v.all[service] = append(v.all[service], p.Name)
		}
	}
	v.grant("")
	private, err := v.API.CreateKey(t.Context(), api.NewKey{ID: "ann", TTL: 3600, Groups: []string{"ci"}})
	ok()
	key, err := client.ParseAPIKey("ann", private.Reveal())
	ok()
	r, err := http.NewRequestWithContext(t.Context(), "GET", v.URL(), nil)
	ok()
	err = key.Authorize(r, client.Target{Kind: "controller", Address: v.URL(), HTTP: http.DefaultClient})
	ok()
	v.header = map[string]string{"Authorization": r.Header.Get("Authorization")}
	g, err := v.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios"})
	ok()
	v.group = g.ID
	return v
}

// begin starts the instance that pages are about.
func (v *visitor) begin(r client.StartRequest) {
	v.t.Helper()
	r.TemplateID = debian
	v.instance = v.start(r)[0]
}

// grant returns the group every permission but one: "PERMISSION" of the controller, or
// "registry:PERMISSION".
func (v *visitor) grant(but string) {
	v.t.Helper()
	for service, of := range map[string]interface {
		SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error
	}{"controller": v.API, "registry": v.shelf} {
		less := slices.DeleteFunc(slices.Clone(v.all[service]), func(p string) bool {
			return p == but && service == "controller" || "registry:"+p == but && service == "registry"
		})
		if err := of.SetPermissionGroup(v.t.Context(), api.PermissionGroup{Name: "ci", Permissions: less}); err != nil {
			v.t.Fatal(err)
		}
	}
}

// of puts ids in the places of their names.
func (v *visitor) of(text string) string {
	return strings.NewReplacer("NODE", v.node.NodeID, "INSTANCE", v.instance, "TEMPLATE", debian, "GROUP",
		v.group).Replace(text)
}

// TestPagesOfWhoMayLess: a page without one permission names it, and the rest of the page is there.
func TestPagesOfWhoMayLess(t *testing.T) {
	v := newVisitor(t, nil)
	v.begin(client.StartRequest{Name: "job"})
	const needs = "You need the permission "
	off := func(name string) string { return "disabled title=\"" + needs + name + "\"" }
	for _, c := range []struct {
		page, without string
		code          int
		shows         []string // besides the name of the permission
	}{
		{"/", "", 200, []string{"Active nodes", "!Not shown", "!" + needs}},
		{"/", "list_vms", 200, []string{
			"Failed instances: " + needs, `<p class="in dim">Not shown: ` + needs, "Registry storage", "Running instances",
		}},
		{"/", "view_logs", 200, []string{
			"Charts: " + needs, "queue: " + needs, "Registry storage", "!enable-event-logging",
		}},
		{"/", "get_registry_disk_info", 200, []string{"Registry storage: " + needs, "Active nodes"}},
		{"/instances", "", 200, []string{"job", "!disabled", "!permissions that you do not have"}},
		{"/instances", "list_vms", 403, []string{needs, "Request ID <code>", "Ask the administrator"}},
		{"/instances", "terminate_vm", 200, []string{"job", off("terminate_vm"), "Missing permissions: terminate_vm."}},
		{"/instances", "start_vm", 200, []string{"job", off("start_vm")}},
		{"/instances/INSTANCE", "", 200, []string{">Terminate</a>", "!disabled"}},
		{"/instances/INSTANCE", "terminate_vm", 200, []string{">Timeline<", off("terminate_vm")}},
		{"/instances/INSTANCE", "list_vms", 403, []string{needs}},
		{"/instances/INSTANCE", "view_logs", 200, []string{"Not shown: " + needs, ">Timeline<"}},
		{"/instances/start", "registry_list", 200, []string{"Templates cannot be listed: " +
			needs, "mac-0001", `name="tag"`}},
		{"/instances/start", "registry:list_vms", 200, []string{"Templates cannot be listed: ", "the permission "}},
		{"/instances/end?chosen=INSTANCE", "list_vms", 200, []string{"Terminate 1 instance", "Not shown here: " +
			needs, "!job"}},
		{"/nodes", "", 200, []string{"mac-0001", "!disabled", `name="max_vm_count"`}},
		{"/nodes", "list_nodes", 403, []string{needs}},
		{"/nodes", "change_node_config", 200, []string{"mac-0001", off("change_node_config"), "!>Set<"}},
		{"/nodes", "delete_node", 200, []string{
			"mac-0001", off("delete_node"), `formaction="/nodes/drain" data-dialog data-needs-chosen>Drain</button>`,
		}},
		{"/nodes/NODE", "", 200, []string{"Cached templates", "!disabled", "!Not shown"}},
		{"/nodes/NODE", "list_nodes", 403, []string{needs}},
		{"/nodes/NODE", "list_vms", 200, []string{"Not shown: " + needs, "Cached templates"}},
		{"/nodes/NODE", "view_logs", 200, []string{"Not shown: " + needs, "Cached templates", "job"}},
		{"/nodes/NODE", "change_node_config", 200, []string{off("change_node_config"), "!>Set<", "job"}},
		{"/nodes/NODE", "delete_node", 200, []string{off("delete_node"), ">Drain</a>"}},
		{"/nodes/NODE", "add_node_to_group", 200, []string{off("add_node_to_group"), ">Drain</a>"}},
		{"/nodes/drain?chosen=NODE", "list_nodes", 200, []string{"Drain 1 node", "Not shown here: " +
			needs, "!mac-0001"}},
		{"/nodes/NODE/groups", "get_groups", 403, []string{needs}},
		{"/templates", "", 200, []string{"debian", "!disabled"}},
		{"/templates", "registry_list", 403, []string{needs}},
		{"/templates", "registry:list_vms", 403, []string{"the permission "}},
		{"/templates", "list_nodes", 200, []string{"debian", "not shown"}},
		{"/templates/TEMPLATE", "", 200, []string{"2 tags", "!disabled", "!ot shown"}},
		{"/templates/TEMPLATE", "list_nodes", 200, []string{"Not shown: " + needs, "2 tags"}},
		{"/templates/TEMPLATE", "list_vms", 200, []string{"not shown: " + needs, "2 tags"}},
		{"/templates/TEMPLATE", "registry_distribute_status", 200, []string{"Not shown: " + needs, "2 tags"}},
		{"/templates/TEMPLATE", "registry_distribute", 200, []string{
			off("registry_distribute"),
			">Revert to this</a>",
		}},
		{"/templates/TEMPLATE", "registry_delete", 200, []string{off("registry_delete"), ">Prefetch</a>"}},
		{"/templates/TEMPLATE", "registry:delete_vm", 200, []string{
			off("delete_vm at the registry"),
			">Revert to this</a>",
		}},
		{
			"/templates/TEMPLATE", "registry:revert", 200,
			[]string{off("revert at the registry"), ">Delete template</a>"},
		},
		{"/templates/TEMPLATE/distribute", "list_nodes", 200, []string{"Nodes are not shown: " + needs, "All nodes"}},
		{"/templates/TEMPLATE/delete", "list_vms", 200, []string{"not shown: " + needs, "Delete debian"}},
		{"/templates/TEMPLATE/delete", "list_nodes", 200, []string{"not shown: " + needs, "Delete debian"}},
		{"/groups", "", 200, []string{"ios", "!disabled"}},
		{"/groups", "get_groups", 403, []string{needs}},
		{"/groups", "list_nodes", 200, []string{"Node counts are not shown: " + needs, "ios"}},
		{"/groups", "create_group", 200, []string{"ios", off("create_group"), ">Edit</a>"}},
		{"/groups", "update_group", 200, []string{"ios", off("update_group"), ">Delete</a>"}},
		{"/groups", "delete_group", 200, []string{"ios", off("delete_group"), ">Edit</a>"}},
		{"/groups", "list_vms", 200, []string{"Pool counts are not shown: " + needs, "ios"}},
		{"/pools", "", 200, []string{"No pools", "!disabled"}},
		{"/pools", "list_vms", 403, []string{needs}},
		{"/pools", "change_config", 200, []string{off("change_config"), "Missing permissions: change_config."}},
		{"/pools/new", "get_groups", 200, []string{"Groups cannot be listed: " + needs, `name="tag"`}},
		{"/pools/new", "registry_list", 200, []string{"Templates cannot be listed: " + needs, `name="tag"`}},
		{"/search?q=pool", "change_config", 200, []string{needs, "!href=\"/pools/new\""}},
		{"/events", "view_logs", 403, []string{needs}},
		{"/logs", "", 200, []string{"<h1>Logs</h1>", "!not shown"}},
		{"/logs", "view_logs", 403, []string{needs}},
		{"/logs", "registry:stream_log", 403, []string{"the permission "}},
		{"/logs", "get_registry_files", 200, []string{"Failed VMs are not shown: " + needs, "<h1>Logs</h1>"}},
		{"/health", "", 200, []string{"License", "!Not checked"}},
		{"/health", "get_registry_disk_info", 200, []string{"Registry storage: " + needs, "License"}},
		{"/templates?q=name:nothing", "", 200, []string{"No matching templates.<"}},
		{"/nodes?q=name:nothing", "", 200, []string{"No matching nodes.<"}},
		{"/search?q=nothing-like-it", "", 200, []string{"Nothing that you may see matches."}},
		{"/account", "", 200, []string{">API key<", "ann, ci", "!missing</span>"}},
		{"/account", "terminate_vm", 200, []string{
			`id="p-controller-terminate_vm"`, "Terminate instances", "missing</span>", "granted</span>",
		}},
		{"/account", "registry:revert", 200, []string{`id="p-registry-revert"`, "missing</span>"}},
		{"/usage", "view_logs", 403, []string{needs}},
		{"/usage", "get_groups", 200, []string{"Not shown: " + needs, "By owner", "!No usage"}},
		{"/usage?by=owner", "list_vms", 200, []string{"Not shown: " + needs}},
		{"/usage?by=template", "registry_list", 200, []string{"Not shown: " + needs}},
		{"/usage?by=owner", "", 200, []string{"Instance hours", "!Not shown"}},
		{"/", "get_groups", 200, []string{"Capacity by group: " + needs, "Registry storage"}},
		{"/search", "start_vm", 200, []string{needs, "Show the queue", "!href=\"/instances/start\""}},
		{"/search", "", 200, []string{`href="/instances/start"`, "Only the root user", "!href=\"/keys/create\""}},
		{"/instances/start", "start_vm", 200, []string{`disabled title="` + needs, `id="start-button"`}},
		{"/keys", "", 200, []string{"Only the root user", "!Create API key"}},
		{"/keys/create", "", 403, []string{"Only the root user"}},
		{"/permission-groups", "", 200, []string{">ci<", "!disabled"}},
		{"/permission-groups", "view_prmission_groups", 200, []string{"Controller: " + needs, ">ci<"}},
		{
			"/permission-groups", "registry:view_prmission_groups", 200,
			[]string{"Registry: ", "the permission ", ">ci<"},
		},
		{"/permission-groups/edit?name=ci", "view_permissions", 200, []string{"Not shown: " + needs, "Registry"}},
	} {
		v.grant(c.without)
		_, name, ok := strings.Cut(c.without, ":")
		if !ok {
			name = c.without
		}
		t.Log(c.page, "without", c.without)
		v.get(v.of(c.page)).has(c.code, append(c.shows, name)...)
	}
	v.grant("update_permission_groups") // the registry's still lets them
	v.get("/permission-groups").has(200, "!disabled")
}

// TestActionsOfWhoMayLess: a refused action names the missing permission, for each item where there
// are several; with the permission, it succeeds.
func TestActionsOfWhoMayLess(t *testing.T) {
	v := newVisitor(t, nil)
	v.begin(client.StartRequest{Name: "job"})
	const needs = "You need the permission "
	for _, c := range []struct {
		path, form, without string
		code                int
		shows               string
		with                int // what it answers with the permission; 0: it is not tried
	}{
		{"/instances/start", "vmid=TEMPLATE&name=x", "start_vm", 403, needs, 303},
		{"/instances/end", "chosen=INSTANCE&chosen=nobody", "terminate_vm", 409, "2 failed of 2", 0},
		{"/instances/end", "chosen=INSTANCE", "terminate_vm", 409, "Failed: " + needs, 0},
		{"/instances/end", "all=1&q=name:job", "list_vms", 403, needs, 0},
		{"/nodes/drain", "chosen=NODE&chosen=nobody", "change_node_config", 409, "2 failed of 2", 0},
		{"/nodes/drain", "chosen=NODE", "change_node_config", 409, "Failed: " + needs, 303},
		{"/nodes/undrain", "chosen=NODE", "change_node_config", 409, "Failed: " + needs, 303},
		{"/nodes/undrain", "chosen=NODE", "list_nodes", 303, "", 0},
		{"/nodes/update", "chosen=NODE", "change_node_config", 409, "Failed: " + needs, 0},
		{"/nodes/NODE/edit", "max_vm_count=5", "change_node_config", 403, needs, 303},
		{"/nodes/NODE/groups", "group=GROUP", "add_node_to_group", 403, needs, 303},
		{"/nodes/NODE/groups", "", "remove_group_from_node", 403, needs, 303},
		{"/templates/TEMPLATE/distribute", "tag=v1&to=all", "registry_distribute", 403, needs, 303},
		{"/templates/TEMPLATE/remove", "", "registry_delete", 403, needs, 0},
		{"/templates/TEMPLATE/revert?tag=v2", "typed=debian", "registry_delete", 403, needs, 0},
		{"/templates/TEMPLATE/revert?tag=v2", "typed=debian", "registry:revert", 403, "the permission ", 0},
		{"/templates/TEMPLATE/delete", "typed=debian", "registry:delete_vm", 403, "the permission ", 0},
		{"/groups/new", "name=mac", "create_group", 403, needs, 303},
		{"/groups/GROUP/edit", "name=ipad", "update_group", 403, needs, 303},
		{"/groups/GROUP/delete", "", "delete_group", 403, needs, 303},
		{"/keys/create", "id=x&days=3", "", 403, "Only the root user", 0},
		{"/keys/delete", "id=ann", "", 403, "Only the root user", 0},
		{
			"/permission-groups/edit", "name=x&service=controller&service=registry&controller=list_vms",
			"update_permission_groups", 409, needs, 303,
		},
		{
			"/permission-groups/delete", "name=x&service=controller&service=registry",
			"registry:delete_permission_groups",
			409, "the permission ", 303,
		},
		{"/nodes/delete", "chosen=NODE", "delete_node", 409, "Failed: " + needs, 303},
	} {
		_, name, ok := strings.Cut(c.without, ":")
		if !ok {
			name = c.without
		}
		form, err := url.ParseQuery(v.of(c.form))
		if err != nil {
			t.Fatal(err)
		}
		if path, _, _ := strings.Cut(c.path, "?"); strings.HasSuffix(path, "revert") ||
			strings.HasSuffix(path, "delete") && strings.HasPrefix(path, "/templates") {
			v.grant("")
			form.Set("seen", v.get(v.of(c.path)).form()["seen"][0])
		}
		t.Log(c.path, c.form, "without", c.without)
		v.grant(c.without)
		if c.code == 303 {
			name = ""
		}
		v.post(v.of(c.path), form).has(c.code, c.shows, name)
		if c.with != 0 {
			v.grant("")
			v.post(v.of(c.path), form).has(c.with)
		}
	}
}

// TestResultsOfWhoMayLess: states that cannot be read are not those of things that are gone, and without a login there
// is no result.
func TestResultsOfWhoMayLess(t *testing.T) {
	v := newVisitor(t, nil)
	v.begin(client.StartRequest{Name: "job"})
	for kind, id := range map[string]string{"instances": v.instance, "nodes": v.node.NodeID} {
		chosen, without := url.Values{"chosen": {id}}, map[string]string{"instances": "list_vms", "nodes": "list_nodes"}
		v.grant(without[kind])
		v.post("/results/"+kind, chosen).has(200, "Not shown", "You need the permission "+without[kind], "!Gone")
		v.grant("")
		v.post("/results/"+kind, chosen).has(200, "!Not shown", "!Gone", `href="/`+kind+"/"+id)
	}
	v.header = nil
	v.post("/results/nodes", url.Values{"chosen": {v.node.NodeID}}).leadsTo("/login?return=")
}

// TestRightsOnSingleThings: where resource rights on nodes and templates are enforced, lists have
// what may be listed, and each item names the right on it that is missing.
func TestRightsOnSingleThings(t *testing.T) {
	v := newVisitor(t, map[string]string{"SVC_ENABLE_RESOURCE_MANAGEMENT": "true"})
	hidden := v.join("secret", 1)[0]
	v.push(spare, "spare")
	const needs = "You need the permission "
	rights := func(node, template string) {
		t.Helper()
		err := v.API.SetResources(t.Context(), "ci",
			[]api.Resource{{ID: v.node.NodeID, Type: "node", Permissions: strings.Fields(node)}})
		if err == nil {
			err = v.shelf.SetResources(t.Context(), "ci",
				[]api.Resource{{ID: debian, Type: "template", Permissions: strings.Fields(template)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rights("list create_instance", "list pull")
	for _, c := range []struct {
		page  string
		code  int
		shows []string
	}{
		{"/", 200, []string{"Active nodes"}},
		{"/nodes", 200, []string{"mac-0001", "!secret-0001", needs +
			"change_config on the node NODE", "!>Set<", "change_config on the node"}},
		{"/nodes/NODE", 200, []string{needs + "change_config on the node NODE", needs +
			"force_upgrade on the node NODE", needs + "remove on the node NODE", "Cached templates"}},
		{"/nodes/" + hidden.NodeID, 404, []string{"Not found"}},
		{"/templates", 200, []string{"debian", "!spare"}},
		{"/templates/TEMPLATE", 200, []string{needs +
			"delete_revert on the template TEMPLATE", ">Prefetch</a>", "2 tags"}},
		{"/templates/" + spare, 404, []string{"Not found"}},
		{"/groups", 200, []string{"ios"}},
		{"/instances", 200, []string{"No instances.", "!No instances that you may see"}},
		{"/nodes?q=name:nothing", 200, []string{"No matching nodes that you may see."}},
		{"/templates?q=name:nothing", 200, []string{"No matching templates that you may see."}},
		{"/templates/TEMPLATE", 200, []string{
			"no node that you may see<", "No node that you may see has cached the template.",
		}},
		{"/templates/TEMPLATE/delete", 200, []string{"none that you may see has it cached"}},
		{"/nodes/NODE", 200, []string{"None that you may see. A node pulls"}},
		{"/account", 200, []string{"Rights on single nodes and templates are enforced"}},
		{"/instances/start?vmid=TEMPLATE", 200, []string{
			"The permission group", `<option value="ci">ci</option>`, "!secret-0001", "!Group of nodes",
		}},
		{"/templates/TEMPLATE/distribute", 200, []string{
			"Permission group", `name="act_as"`, "!secret-0001", "!Nodes of the group",
		}},
	} {
		var shows []string
		for _, text := range c.shows {
			shows = append(shows, v.of(text))
		}
		t.Log(c.page)
		v.get(v.of(c.page)).has(c.code, shows...)
	}
	v.post("/instances/start", url.Values{"vmid": {debian}}).has(400, `id="w-group"`, "is required")
	v.post("/instances/start", url.Values{"vmid": {debian}, "group": {"other"}}).has(403,
		"You are not a member of the permission group other")
	v.post("/instances/start", url.Values{"vmid": {spare}, "group": {"ci"}}).has(400, "No instance was started")
	to := v.post("/instances/start",
		url.Values{"vmid": {debian}, "group": {"ci"}, "name": {"mine"}}).leadsTo("/instances/")
	v.get(to).has(200, "mine", "debian")
	two := url.Values{"chosen": {v.node.NodeID, hidden.NodeID}}
	v.post("/nodes/drain", two).has(409, "2 failed of 2", needs+"change_config on the node "+v.node.NodeID, "Not found")
	v.post("/templates/"+debian+"/distribute",
		url.Values{"tag": {"v1"}, "to": {"filter"}, "filter": {"id:" + v.node.NodeID}, "act_as": {"ci"}}).has(409,
		"the permission group ci needs the permission distribute")
	v.post("/templates/"+debian+"/distribute", url.Values{"tag": {"v1"}, "to": {"all"}}).has(400, "is required")
	v.post("/templates/"+debian+"/delete", v.get("/templates/"+debian+"/delete").form("typed", "debian")).has(403,
		needs+"delete_revert on the template")

	rights("list create_instance change_config distribute remove", "list pull delete_revert")
	v.get("/nodes").has(200, "mac-0001", ">Set<", "!disabled")
	v.get("/nodes/"+v.node.NodeID).has(200, ">Drain</a>", ">Delete</a>", needs+"force_upgrade on the node")
	v.get("/templates/"+debian).has(200, ">Revert to this</a>", ">Delete template</a>", "!disabled")
	v.post("/nodes/drain", two).has(409, "1 failed of 2", "Drain started", "Not found")
	v.post("/templates/"+debian+"/distribute",
		url.Values{"tag": {"v1"}, "to": {"filter"}, "filter": {"id:" + v.node.NodeID}, "act_as": {"ci"}}).leadsTo(
		"/templates/")
}
