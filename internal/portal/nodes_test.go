package portal_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestNodes: the list, the page of one node, and what is changed in place.
func TestNodes(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/nodes").has(200, "No nodes", "buildyard node token", "buildnode join "+w.URL()+" --token-file token",
		"is a loopback address")
	w.get("/nodes/join").has(200, "buildnode join "+w.URL(), "change_node_config")
	w.push(debian, "debian")
	nodes := w.join("mac", 2)
	id := nodes[0].NodeID
	at := "/nodes/" + id
	w.start(client.StartRequest{TemplateID: debian, Name: hostile, NodeID: id})
	w.get("/nodes?q=state:active&sort=-vms").has(200, "2 nodes that match", "1 VM, 8 schedulable slots",
		`aria-sort="descending"`,
		`class="slots"`, `aria-label="1 running, 3 free"`, "1 of <form", `id="n-`+id+`"`, "Active <b>2</b>")
	w.get("/nodes?q=colour:red").has(200, "unknown field", `aria-invalid="true"`, "!No node matches")
	w.get("/nodes?q=name:nobody").has(200, "No matching nodes")
	w.get(at).has(200, nodes[0].NodeName, "1 of 4", "debian", "v2", "phone", "&lt;script&gt;", "!<script>alert",
		"has not reported yet", " started on ", "curl -s", "free of")
	w.get("/nodes/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22").has(404, "Not found", "Request ID <code>")

	w.post(at+"/edit", url.Values{"capacity_mode": {"number"}, "max_vm_count": {"7"}, "back": {"/nodes?q=mac"}}).leads(
		"/nodes?q=mac")
	w.get(at).has(200, "1 of 7")
	w.post(at+"/edit", url.Values{"capacity_mode": {"number"}, "max_vm_count": {"1001"}}).has(400,
		"Maximum VMs: must be an integer between 1 and 1000")
	w.post(at+"/edit", url.Values{"capacity_mode": {"number"}, "max_vm_count": {""}}).has(400, "Maximum VMs: must be")
	w.post(at+"/edit", url.Values{"host": {"no host!"}}).has(400, "Host: ")
	w.post(at+"/edit", url.Values{
		"capacity_mode": {"resource"}, "vcpu_override": {"9"}, "ram_override": {""},
		"name": {hostile}, "central_log": {"off"},
	}).leads(at)
	w.get(at).has(200, "of 9", "stay on the node", "&lt;img src=x", "!<img src=x", "Memory of VMs")
	w.get(at+"/edit").has(200, `value="9"`, "selected>virtual CPUs and memory")
	w.post("/nodes/nobody/edit", url.Values{"name": {"x"}}).has(404, "Not found")
	for _, back := range []string{
		"//elsewhere.example/", "https://elsewhere.example/", "/\\elsewhere.example", "nodes",
	} {
		w.post(at+"/edit", url.Values{"capacity_mode": {"resource"}, "back": {back}}).leads(at)
	}
}

// TestDrain: a node is drained with a reason and a deadline, and takes instances again.
func TestDrain(t *testing.T) {
	w := newWorld(t, nil)
	nodes := w.join("mac", 2)
	id, other := nodes[0].NodeID, nodes[1].NodeID
	w.get("/nodes/drain").has(400, "No node selected")
	w.get("/nodes/drain?chosen="+id).has(200, "Drain "+nodes[0].NodeName, `name="reason"`, `name="deadline"`,
		"drain_mode")
	w.post("/nodes/drain", url.Values{"chosen": {id}, "reason": {hostile}, "deadline": {"2h"}, "back": {"/nodes/" +
		id}}).leads("/nodes/" + id)
	w.get("/nodes/"+id).has(200, "<b>Drained</b>", "Drain Mode", "no VM remains",
		"terminated at", "&lt;script&gt;", "!<script>alert",
		"Undrain")
	w.get("/nodes").has(200, "Drain Mode <b>1</b>", "Active <b>1</b>", "no VM remains")
	w.post("/nodes/drain", url.Values{"chosen": {id}, "deadline": {"soon"}}).has(409, "such as 30m or 2h")
	w.post("/nodes/undrain", url.Values{"all": {"1"}, "shown": {"1"}, "q": {"state:\"drain mode\""}}).leads("/nodes")
	w.post("/nodes/drain", url.Values{"chosen": {id, "none"}}).has(409, "1 failed of 2", "Drain started", "Not found")
	w.post("/nodes/undrain", url.Values{"chosen": {id, other}}).has(200, "2 done", "Schedulable")
	w.post("/nodes/update", url.Values{"chosen": {id, other}}).has(409, "2 failed of 2")
}

// TestGroupsOfANode: a node is put into groups and taken out by one form.
func TestGroupsOfANode(t *testing.T) {
	w := newWorld(t, nil)
	id := w.join("mac", 1)[0].NodeID
	w.get("/nodes/"+id+"/groups").has(200, "No node groups")
	a, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: hostile})
	if err != nil {
		t.Fatal(err)
	}
	w.post("/nodes/"+id+"/groups", url.Values{"group": {a.ID}}).leads("/nodes/" + id)
	w.post("/nodes/"+id+"/groups", url.Values{"group": {b.ID}}).leads("/nodes/" + id)
	w.get("/nodes?q=group:ios").has(200, "No matching nodes")
	w.get("/nodes/"+id).has(200, "&lt;script&gt;", "!<script>alert", "!>ios<")
	w.get("/nodes/"+id+"/groups").has(200, `value="`+b.ID+`" checked`, "!"+a.ID+`" checked`)
	w.post("/nodes/"+id+"/groups", url.Values{"group": {"nobody"}}).has(404, "Not found")
}

// TestDeleteNode: a node is forgotten.
func TestDeleteNode(t *testing.T) {
	w := newWorld(t, nil)
	id := w.join("mac", 1)[0].NodeID
	w.get("/nodes/delete?chosen="+id).has(200, "Delete mac-0001", "must join again")
	w.post("/nodes/delete", url.Values{"chosen": {"nobody"}}).has(409, "Not found")
	w.post("/nodes/delete", url.Values{"chosen": {id}}).leads("/nodes")
	w.get("/nodes/"+id).has(404, "Not found")
}

// TestAllMatchingNodes: an action on all that match is about those that its form has shown, and the number of many has
// to be typed.
func TestAllMatchingNodes(t *testing.T) {
	w := newWorld(t, nil)
	w.join("old", 1)
	all := "/nodes/delete?all=1&q=state:active"
	form := w.get(all)
	form.has(200, "Delete old-0001", `name="shown" value="1"`)
	w.join("new", 1)
	w.post("/nodes/delete", form.form()).has(400, "The form was about fewer nodes: 2 match now. Nothing was changed.",
		"Delete 2 nodes", `name="shown" value="2"`, "new-0001")
	w.post("/nodes/delete", url.Values{"all": {"1"}, "q": {"state:active"}}).has(400,
		"The form does not say how many nodes it showed. Nothing was changed.")
	drain := w.get("/nodes/drain?all=1&q=name:old*").form("reason", "a new fan", "deadline", "2h")
	drain.Set("q", "")
	w.post("/nodes/drain", drain).has(400, "fewer nodes", `value="a new fan"`, `value="2h"`)
	w.join("many", 20)
	form = w.get(all)
	form.has(200, "Delete 22 nodes", "Type <b>22 nodes</b>")
	w.post("/nodes/delete", form.form("typed", "2 nodes")).has(400, "Type 22 nodes to confirm. Nothing was changed.")
	if list, err := w.API.Nodes(t.Context(), client.ListOptions{}); err != nil || len(list) != 22 {
		t.Errorf("%d nodes are left: %v", len(list), err)
	}
	w.post("/nodes/delete", form.form("typed", "22 nodes")).has(200, "22 done")
}

// leads checks that a form forwards to another page.
func (s shown) leads(to string) {
	s.t.Helper()
	if got := s.Header.Get("Location"); s.Code != http.StatusSeeOther || got != to {
		s.t.Errorf("answered %d and forwards to %q, not %q: %s", s.Code, got, to, s.main())
	}
}
