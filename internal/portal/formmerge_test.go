package portal_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// also sets fields of a form, as a user does who edits them.
func also(f url.Values, pairs ...string) url.Values {
	for i := 0; i < len(pairs); i += 2 {
		f.Set(pairs[i], pairs[i+1])
	}
	return f
}

// TestTwoFormsOfANode: saving a form that was open for a while does not revert what was changed
// elsewhere since then.
func TestTwoFormsOfANode(t *testing.T) {
	w := newWorld(t, nil)
	n := w.join("mac", 1)[0]
	at := "/nodes/" + n.NodeID
	shown := func(pairs ...string) url.Values { // every field of the form, as browsers send them
		all := []string{
			"name", n.NodeName, "host", n.IPAddress, "capacity_mode", "number", "max_vm_count", "4",
			"vcpu_override", "", "ram_override", "", "central_log", "on",
		}
		return also(also(w.get(at+"/edit").form(), all...), pairs...)
	}
	first, second := shown("max_vm_count", "9"), shown("name", "other")
	row := also(formOf(w.get("/nodes"), `action="`+at+`/edit"`), "max_vm_count", "12")
	w.post(at+"/edit", first).leads(at)
	w.post(at+"/edit", second).leads(at)
	w.get(at).has(200, "<h1>other</h1>", "0 of 9")
	if err := w.API.ConfigureNode(t.Context(),
		client.NodeConfig{NodeID: n.NodeID, CapacityMode: "resource"}); err != nil {
		t.Fatal(err)
	}
	w.post(at+"/edit", row).leads("/nodes")
	w.get(at+"/edit").has(200, "selected>virtual CPUs and memory", `name="max_vm_count" value="12"`)

	var groups []string
	for _, name := range []string{"ios", "mac", "web"} {
		g, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g.ID)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.API.AddNodeToGroups(t.Context(), n.NodeID, groups[0]))
	form := w.get(at+"/groups").form("group", groups[1]) // out of the first, into the second
	must(w.API.AddNodeToGroups(t.Context(), n.NodeID, groups[2]))
	w.post(at+"/groups", form).leads(at)
	now, err := w.API.Node(t.Context(), n.NodeID)
	must(err)
	var in []string
	for _, g := range now.Groups {
		in = append(in, g.Name)
	}
	if slices.Sort(in); strings.Join(in, " ") != "mac web" {
		t.Errorf("the node is in %v", in)
	}
}

// formOf returns the hidden fields of the one form of a page that a text is in the head of.
func formOf(s shown, head string) url.Values {
	_, text, _ := strings.Cut(s.Text, head)
	text, _, _ = strings.Cut(text, "</form>")
	return shown{t: s.t, Text: text}.form()
}

// TestTwoFormsOfAGroup: as for nodes.
func TestTwoFormsOfAGroup(t *testing.T) {
	w := newWorld(t, nil)
	about := "as it was"
	g, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios", Description: &about})
	if err != nil {
		t.Fatal(err)
	}
	at := "/groups/" + g.ID + "/edit"
	form := func(pairs ...string) url.Values {
		return also(also(w.get(at).form(), "name", "ios", "description", about, "fallback_group_id", ""), pairs...)
	}
	first, second := form("description", "phones"), form("name", "apple")
	w.post(at, first).leads("/groups")
	w.post(at, second).leads("/groups")
	w.get(at).has(200, `value="apple"`, `value="phones"`)
}

// TestTwoFormsOfAccess: permissions and groups of keys that were added elsewhere stay, and those that
// were taken away elsewhere do not come back.
func TestTwoFormsOfAccess(t *testing.T) {
	w := newGuarded(t)
	w.logIn()
	set := func(permissions ...string) {
		t.Helper()
		if err := w.API.SetPermissionGroup(t.Context(),
			api.PermissionGroup{Name: "ci", Permissions: permissions}); err != nil {
			t.Fatal(err)
		}
	}
	const at = "/permission-groups/edit"
	set("list_vms", "start_vm")
	form := w.get(at+"?name=ci").form("controller", "list_vms", "controller", "start_vm", "controller", "save_image")
	set("list_vms", "update_vm")
	w.post(at, form).leads("/permission-groups")
	is := func(want string) {
		t.Helper()
		groups, err := w.API.PermissionGroups(t.Context())
		if err != nil || len(groups) != 1 {
			t.Fatal(groups, err)
		}
		if slices.Sort(groups[0].Permissions); strings.Join(groups[0].Permissions, " ") != want {
			t.Errorf("ci has %v, not %s", groups[0].Permissions, want)
		}
	}
	is("list_vms save_image update_vm")
	w.post(at, w.get(at).form("name", "ci", "controller", "view_logs")).leads("/permission-groups") // made once more
	is("list_vms save_image update_vm view_logs")

	w.post("/keys/create", url.Values{"id": {"bot"}, "groups": {"a, b"}, "days": {"3"}}).has(200, "Private key")
	change := also(w.get("/keys/change?id=bot").form(), "groups", "a, c")
	w.post("/keys/change", url.Values{"id": {"bot"}, "groups": {"a, b, d"}}).leads("/keys")
	w.post("/keys/change", change).leads("/keys")
	w.get("/keys/change?id=bot").has(200, `name="groups" value="a, d, c"`)
}
