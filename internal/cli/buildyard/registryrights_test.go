package buildyard

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
	"github.com/buildyard/buildyard/internal/transfer"
)

// judged is a cloud in which permissions and resource rights on templates are enforced.
type judged struct {
	asks
	controller, registry string
	root                 *client.Controller
	shelf                *client.Registry
}

// newJudged runs it in one process, or in two.
func newJudged(t *testing.T, split bool, more map[string]string) *judged {
	t.Helper()
	dir, settings := t.TempDir(), withAccess(map[string]string{"enable-controller-authorization": "true"})
	maps.Copy(settings, more)
	c := &judged{asks: asks{t: t}}
	if split {
		there := withAccess(map[string]string{"enable-authorization": "true"})
		maps.Copy(there, more)
		r, stop := startRegistry(t, filepath.Join(dir, "r"), there)
		t.Cleanup(stop)
		c.registry, settings["registry"] = r.URL(), r.URL()
	} else {
		settings["enable-registry-authorization"] = "true"
	}
	s, stop := startController(t, dir, !split, settings)
	t.Cleanup(stop)
	if !split {
		c.registry = s.registry.URL()
	}
	c.controller, c.root = s.URL(), asRoot(t, s.URL())
	var err error
	if c.shelf, err = client.NewRegistry(c.registry,
		client.Options{Credentials: client.RootToken(rootToken)}); err != nil {
		t.Fatal(err)
	}
	return c
}

// push makes a template.
func (c *judged) push() string {
	c.t.Helper()
	push, err := transfer.New(transfer.Options{BaseURL: c.registry, Authorize: func(r *http.Request) error {
		r.SetBasicAuth("root", rootToken)
		return nil
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	defer push.Close()
	y := &yard{t: c.t, registry: push}
	return y.push("", "v1", y.disk(1, 1)).ID
}

// TestGrantsEndWithTheirTemplate, in the store of a controller and in the files of a registry that runs alone.
func TestGrantsEndWithTheirTemplate(t *testing.T) {
	for name, split := range map[string]bool{"one process": false, "two": true} {
		t.Run(name, func(t *testing.T) {
			c := newJudged(t, split, map[string]string{"enable-resource-management": "true"})
			gone, kept := c.push(), c.push()
			path := c.registry + "/admin/api/v1/permission/group/dev/resources"
			n := &handNode{t: t}
			r, _ := http.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(
				`[{"id":"`+strings.ToUpper(gone)+`","type":"template","permissions":["pull"]},{"id":"`+kept+
					`","type":"template","permissions":["pull"]}]`))
			r.SetBasicAuth("root", rootToken)
			resp, err := http.DefaultClient.Do(r)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
			if err := c.root.DeleteTemplate(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
			_, body := c.body("GET", path, "Authorization", "Basic cm9vdDphIHJvb3QgdG9rZW46ICsvJSI=")
			var left []struct{ ID string }
			if err := n.into(body, &left); err != nil || len(left) != 1 || left[0].ID != kept {
				t.Errorf("left: %s, %v", body, err)
			}
		})
	}
}

// role is a documented permission group: what it is for, and its permissions at the controller and
// at the registry.
type role struct {
	name, about          string
	controller, registry []string
}

// roles are the groups that the documents recommend.
var roles = []role{
	{
		"ci", "A CI system: it starts, saves and terminates instances.",
		[]string{
			"get_groups", "get_registry_disk_info", "list_images", "list_nodes", "list_vms", "save_image", "start_vm",
			"terminate_vm", "update_vm", "view_logs", "registry_list",
		},
		[]string{"index", "list_vms", "save_revert"},
	},
	{
		"exporter", "A collector of statistics that reads the API.",
		[]string{"list_vms", "list_nodes", "get_groups", "registry_list", "get_registry_disk_info", "view_logs"},
		[]string{"list_vms"},
	},
	{
		"operators", "A team that manages nodes and maintenance.",
		[]string{
			"list_nodes", "change_node_config", "delete_node", "get_groups", "create_group", "update_group",
			"delete_group",
			"add_node_to_group", "remove_group_from_node", "get_config", "change_config", "view_logs", "list_vms",
		},
		[]string{"stream_log", "get_streamer", "get_log_archive"},
	},
	{
		"release", "A team that pushes, distributes and deletes templates.",
		[]string{"registry_list", "registry_delete", "registry_distribute", "registry_distribute_status"},
		[]string{"index", "list_vms", "head_push_vm", "push_vm", "pull_vm", "download_vm", "delete_vm", "revert"},
	},
}

// TestReferenceOfRoles: the page of the permissions has the roles, of permissions that exist.
func TestReferenceOfRoles(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"Roles are permission groups that an operator creates. These are sufficient for their task, and have " +
			"no further permissions. " +
			"`$REGISTRY` is the address of the registry.\n\n")
	for _, r := range roles {
		for service, list := range map[farm.Service][]string{
			farm.ServiceController: r.controller, farm.ServiceRegistry: r.registry,
		} {
			for _, name := range list {
				if !slices.ContainsFunc(farm.AllPermissions(service),
					func(p farm.PermissionInfo) bool { return string(p.Name) == name }) {
					t.Errorf("%s: the %s has no permission %s", r.name, service, name)
				}
			}
		}
		fmt.Fprintf(&b,
			"### %s\n\n%s\n\n```sh\nbuildyard permission set %[1]s %[3]s\nbuildyard permission set %[1]s %[4]s "+
				"--registry $REGISTRY\n```\n\n",
			r.name, r.about, wrapped(r.controller), wrapped(r.registry))
	}
	referencetest.Section(t, "permissions.md", "Roles", b.String())
}

// wrapped joins names by commas, on lines that a shell reads as one.
func wrapped(names []string) string {
	const columns = 60 // the command is on the same line
	text, width := "", 0
	for i, name := range names {
		if i > 0 {
			text, width = text+",", width+1
		}
		if width+len(name) > columns {
			text, width = text+"\\\n", 0
		}
		text, width = text+name, width+len(name)
	}
	return text
}

// as creates an API key with the permissions of a role, and returns its header.
func (c *judged) as(t *testing.T, name string) string {
	t.Helper()
	i := slices.IndexFunc(roles, func(r role) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("role %s not found", name)
	}
	if err := c.root.SetPermissionGroup(t.Context(),
		api.PermissionGroup{Name: name, Permissions: roles[i].controller}); err != nil {
		t.Fatal(err)
	}
	if err := c.shelf.SetPermissionGroup(t.Context(),
		api.PermissionGroup{Name: name, Permissions: roles[i].registry}); err != nil {
		t.Fatal(err)
	}
	return bearing(t, c.root, name+"-key", name)
}

// TestDocumentedRoles: the documented permissions of an exporter and of a CI system are sufficient,
// and not more than that.
func TestDocumentedRoles(t *testing.T) {
	c := newJudged(t, false, nil)
	template := c.push()
	exporter, ci := c.as(t, "exporter"), c.as(t, "ci")
	for _, path := range []string{
		"/api/v1/status", "/api/v1/vm", "/api/v1/node", "/api/v1/group", "/api/v1/registry/vm",
		"/api/v1/registry/vm?id=" + template,
		"/api/v1/registry/disk", "/api/v1/stats",
	} {
		if code, body := c.body("GET", c.controller+path, "Authorization", exporter); code != 200 ||
			!strings.Contains(body, `"OK"`) {
			t.Errorf("an exporter: %s: %d %s", path, code, body)
		}
	}
	for request, address := range map[string]string{
		"DELETE /registry/revert?id=" + template + "&tag=v1":        c.registry,
		"DELETE /registry/vm?id=" + template:                        c.registry,
		"DELETE /api/v1/registry/revert?id=" + template + "&tag=v1": c.controller,
	} {
		method, path, _ := strings.Cut(request, " ")
		if code, body := c.body(method, address+path, "Authorization", ci); code != 403 {
			t.Errorf("a CI system: %s: %d %s", request, code, body)
		}
	}
}

// TestRefusalsOfTheRegistry: a refusal by the registry that a client gets through the controller
// names whose credential lacks which permission, and where.
func TestRefusalsOfTheRegistry(t *testing.T) {
	c := newJudged(t, true, nil)
	if err := c.root.SetPermissionGroup(t.Context(),
		api.PermissionGroup{Name: "dev", Permissions: []string{"registry_list", "view_logs"}}); err != nil {
		t.Fatal(err)
	}
	dev := bearing(t, c.root, "ci", "dev")
	for path, want := range map[string]string{
		"/api/v1/registry/vm":  "Your credential needs the permission list_vms at the registry",
		"/api/v1/log/services": "Your credential needs the permission stream_log at the registry",
	} {
		if code, body := c.body("GET", c.controller+path, "Authorization", dev); code != 403 ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	if code, body := c.body("GET", c.registry+"/registry/log/services", "Authorization", dev); code != 401 {
		t.Errorf("a key of the controller at a registry of its own: %d %s", code, body)
	}

	// A controller that is known by a key which lacks something.
	private, err := c.shelf.CreateKey(t.Context(), api.NewKey{ID: "controller", TTL: 3600, Groups: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	s, stop := startController(t, t.TempDir(), false, withAccess(map[string]string{
		"registry": c.registry, "api-key-id": "controller", "api-key-string": private.Reveal(),
	}))
	defer stop()
	root := "Basic cm9vdDphIHJvb3QgdG9rZW46ICsvJSI="
	for path, want := range map[string]string{
		"/api/v1/registry/vm":  "The controller's credential needs the permission list_vms at the registry",
		"/api/v1/log/services": "The controller's credential needs the permission stream_log at the registry",
	} {
		if code, body := c.body("GET", s.URL()+path, "Authorization", root); code != 403 ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
}
