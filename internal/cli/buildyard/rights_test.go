package buildyard

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// granted is a cloud where rights on single resources count, and a user of the group ci.
type granted struct {
	t          *testing.T
	root, user *client.Controller
	shelf      *client.Registry
	core       *ControllerService
	registry   *RegistryService
}

// openGranted runs a cloud as one program or two.
func openGranted(t *testing.T, programs int) *granted {
	t.Helper()
	g, dir := &granted{t: t}, t.TempDir()
	settings := map[string]string{
		"enable-controller-authorization": "true", "enable-registry-authorization": "true",
		"enable-resource-management": "true",
	}
	if programs == 2 {
		delete(settings, "enable-registry-authorization")
		r, stop := startRegistry(t, filepath.Join(dir, "r"),
			withAccess(map[string]string{"enable-authorization": "true", "enable-resource-management": "true"}))
		t.Cleanup(stop)
		settings["registry"], g.registry = r.URL(), r
	}
	s, stop := startController(t, dir, programs == 1, withAccess(settings))
	t.Cleanup(stop)
	if g.core = s; programs == 1 {
		g.registry = s.registry
	}
	g.root = asRoot(t, s.URL())
	var err error
	if g.shelf, err = client.NewRegistry(g.registry.URL(),
		client.Options{Credentials: client.RootToken(rootToken)}); err != nil {
		t.Fatal(err)
	}
	private, err := g.root.CreateKey(t.Context(), api.NewKey{ID: "jenkins", TTL: 3600, Groups: []string{"ci"}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := client.ParseAPIKey("jenkins", private.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if g.user, err = client.NewController(s.URL(), client.Options{Credentials: key}); err != nil {
		t.Fatal(err)
	}
	g.ok(g.root.SetPermissionGroup(t.Context(),
		api.PermissionGroup{
			Name: "ci", Permissions: []string{"start_vm", "list_vms", "registry_list", "registry_delete", "list_nodes"},
		}))
	return g
}

func (g *granted) ok(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// push makes a template as a program of the registry's machine.
func (g *granted) push() string {
	g.t.Helper()
	push, err := transfer.New(transfer.Options{BaseURL: g.registry.localURL()})
	g.ok(err)
	defer push.Close()
	y := &yard{t: g.t, registry: push}
	return y.push("", "v1", y.disk(1, 1)).ID
}

// onTemplate grants the group ci rights on a template, and permissions at the registry.
func (g *granted) onTemplate(id, rights string, permissions ...string) {
	g.t.Helper()
	g.ok(g.shelf.SetPermissionGroup(g.t.Context(),
		api.PermissionGroup{Name: "ci", Permissions: append([]string{}, permissions...)}))
	g.ok(g.shelf.SetResources(g.t.Context(), "ci",
		[]api.Resource{{ID: id, Type: string(farm.ResourceTemplate), Permissions: strings.Fields(rights)}}))
}

func (g *granted) onNode(id, rights string) {
	g.t.Helper()
	g.ok(g.root.SetResources(g.t.Context(), "ci",
		[]api.Resource{{ID: id, Type: string(farm.ResourceNode), Permissions: strings.Fields(rights)}}))
}

// said returns the message of a failure.
func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestRightsInOnePlace: the registry's rights decide about templates and the controller's about
// nodes, whether they are one program or two; changes count for the next request.
func TestRightsInOnePlace(t *testing.T) {
	for _, programs := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d programs", programs), func(t *testing.T) {
			g := openGranted(t, programs)
			id := g.push()
			g.templates(id)
			g.starts(id)
		})
	}
}

func (g *granted) templates(id string) {
	g.t.Helper()
	ctx := g.t.Context()
	list := func() (int, string) {
		list, err := g.user.Templates(ctx, client.ListOptions{})
		return len(list), said(err)
	}
	deleted := func() string { return said(g.user.DeleteTemplate(ctx, id)) }
	for _, c := range []struct {
		rights      string
		permissions string
		lists       int
		says        string // of the list
		deletes     string // "": it is not tried
	}{
		{"", "", 0, "list_vms", "delete_vm"},
		{"", "list_vms delete_vm", 0, "", "Not found"},
		{"list", "", 0, "list_vms", "delete_vm"},
		{"list", "list_vms delete_vm", 1, "", "delete_revert"},
		{"pull", "list_vms delete_vm", 0, "", "Not found"},
	} {
		g.onTemplate(id, c.rights, strings.Fields(c.permissions)...)
		if n, says := list(); n != c.lists || !strings.Contains(says, c.says) || c.says == "" && says != "" {
			g.t.Errorf("with %q and %q: %d templates, %q", c.rights, c.permissions, n, says)
		}
		if says := deleted(); !strings.Contains(says, c.deletes) {
			g.t.Errorf("with %q and %q: the deletion says %q", c.rights, c.permissions, says)
		}
	}
	if list, err := g.root.Templates(ctx, client.ListOptions{}); err != nil || len(list) != 1 { // answers are per user
		g.t.Errorf("root: %v, %v", list, err)
	}
}

func (g *granted) starts(id string) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- fleet.Run(ctx, fleet.Options{
			NodeCount: 1, ControllerURL: g.core.URL(), JoinToken: g.core.JoinToken(), NamePrefix: "n", Capacity: 2,
			RealPulls: true,
			DataDir:   g.t.TempDir(),
			Logger:    slog.New(slog.DiscardHandler), Version: "test",
		})
	}()
	defer func() {
		cancel()
		g.ok(<-done)
	}()
	ask := client.StartRequest{TemplateID: id, Group: "ci"}
	for rights, want := range map[string]string{
		"": "VM not in the registry", "list": "You need the permission pull on the template " + id,
	} {
		g.onTemplate(id, rights)
		if _, err := g.user.Start(g.t.Context(), ask); !strings.Contains(said(err), want) {
			g.t.Errorf("with %q: %v", rights, err)
		}
	}
	g.onTemplate(id, "pull") // and no permission of the registry's
	ids, err := g.user.Start(g.t.Context(), ask)
	g.ok(err)
	g.reaches(ids[0], "no node is open to the permission group ci")
	nodes, err := g.root.Nodes(g.t.Context(), client.ListOptions{})
	g.ok(err)
	if seen, err := g.user.Nodes(g.t.Context(), client.ListOptions{}); err != nil || len(seen) != 0 || len(nodes) != 1 {
		g.t.Errorf("the user sees %v of %v, %v", seen, nodes, err)
	}
	g.onNode(nodes[0].NodeID, "create_instance")
	g.reaches(ids[0], "Started")
}

// reaches waits until an instance has a state or a message.
func (g *granted) reaches(id, want string) {
	g.t.Helper()
	last := ""
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		inst, err := g.user.Instance(g.t.Context(), id)
		g.ok(err)
		if last = fmt.Sprint(inst.InstanceState, " ", inst.Message); strings.Contains(last, want) {
			return
		}
	}
	g.t.Errorf("the instance is %s; want %s", last, want)
}
