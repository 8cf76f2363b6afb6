package portal_test

import (
	"net/url"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// TestStart: the form that starts instances, with the command beside it and what is refused by field.
func TestStart(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/instances/start").has(200, "There are no templates yet", "id of a template")
	w.push(debian, "debian")
	w.join("mac", 1)
	w.get("/instances/start?vmid="+debian).has(200, `value="`+debian+`" selected`, `<option value="v2">`, "mac-0001", "-X POST", "!open><summary>More")
	form := url.Values{"vmid": {debian}, "name": {hostile}, "metadata": {"branch=main\r\n\r\nx = y=z"}, "port_forwarding_override": {"ssh 22 2222"}, "ttl": {"2h"}, "preview": {"1"}}
	w.post("/instances/start", form).has(200, "branch", "y=z", "2h0m0s", "&lt;script&gt;", "!<script>alert", "host_port", "open><summary>More")
	form.Del("preview")
	for field, values := range map[string][2]string{
		"count": {"1001", "must be an integer between"}, "priority": {"x", "must be an integer"}, "ttl": {"soon", "must be a time such as"},
		"metadata": {"no sign", "needs key=value"}, "port_forwarding_override": {"ssh", "needs a name"}, "script_timeout": {"5", "needs script_monitoring"},
	} {
		bad := url.Values{"vmid": {debian}, field: {values[0]}}
		w.post("/instances/start", bad).has(400, `id="w-`+field+`" role="alert">`+values[1], `aria-describedby="w-`+field+`"`)
	}
	w.post("/instances/start", url.Values{"vmid": {spare}}).has(400, "Nothing was started")
	w.post("/instances/start", url.Values{"name": {"x"}}).has(400, `id="w-vmid"`)
	form.Set("port_forwarding_override", "")
	form.Set("key", "the same twice")
	first, second := w.post("/instances/start", form), w.post("/instances/start", form)
	if to := first.Header.Get("Location"); first.Code != 303 || to != second.Header.Get("Location") {
		t.Errorf("%d to %q, then %q", first.Code, to, second.Header.Get("Location"))
	}
	w.post("/instances/start", url.Values{"vmid": {debian}, "count": {"2"}}).has(200, "2 done", "Asked for")
}

// TestGroups: groups are made, changed, shown with their nodes, and deleted.
func TestGroups(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/groups").has(200, "No groups yet")
	w.get("/groups/new").has(200, "Create group")
	if s := w.post("/groups/new", url.Values{"name": {"ios"}, "description": {hostile}}); s.Code != 303 {
		t.Errorf("%d", s.Code)
	}
	w.post("/groups/new", url.Values{"name": {"ios"}}).has(409, "choose another name")
	list, err := w.API.Groups(t.Context(), client.ListOptions{})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	ios := list[0].ID
	w.post("/groups/new", url.Values{"name": {hostile}, "fallback_group_id": {ios}}).has(303)
	node := w.join("mac", 1)[0]
	if err := w.API.AddNodeToGroups(t.Context(), node.NodeID, ios); err != nil {
		t.Fatal(err)
	}
	w.get("/groups").has(200, "2 groups", "ios", node.NodeName, "&lt;script&gt;", "!<script>alert", `id="g-`+ios+`"`)
	w.get("/groups/"+ios+"/edit").has(200, `value="ios"`)
	w.get("/groups/nobody/edit").has(404, "no such group")
	w.post("/groups/"+ios+"/edit", url.Values{"name": {"mac"}}).leads("/groups")
	w.get("/groups/"+ios+"/delete").has(200, "Delete group mac", "end in Error")
	w.post("/groups/"+ios+"/delete", nil).leads("/groups")
	w.post("/groups/"+ios+"/delete", nil).has(404, "Not found")
}

// TestEvents: events, newest first, with what they are about; filtered by a click.
func TestEvents(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	node := w.join("mac", 1)[0]
	id := w.start(client.StartRequest{TemplateID: debian, Name: hostile})[0]
	w.get("/events").has(200, "VMStarted", `href="/instances/`+id+`"`, `href="/nodes/`+node.NodeID+`"`, "Instances</a>", "!<script>alert")
	w.get("/events?q=sub_type:vmAction").has(200, `aria-current="true">Instances`, "StartVM", "!NodeDrained")
	w.get("/events?q=name:nothing").has(200, "No event fits")
	w.get("/events?q=colour:red").has(200, "there is no field", `aria-invalid="true"`)
	newWorld(t, map[string]string{"SVC_ENABLE_EVENT_LOGGING": "false"}).get("/events").has(200, "No events yet", "--enable-event-logging")
}

// TestLogs: the central logs, searched, and rows of strangers that must not act.
func TestLogs(t *testing.T) {
	w := newWorld(t, nil)
	r, err := client.NewRegistry(w.RegistryURL(), client.Options{})
	if err == nil {
		_, err = r.Send(t.Context(), []api.LogRow{{Service: "node", MachineName: "m", Content: hostile}, {Service: "node", MachineName: "m", Content: "needle"}, {Service: "node", MachineName: "m", Content: "hay"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.get("/logs").has(200, `href="/logs/node"`, "/api/v1/log/archive?service=node", "Instances that failed")
	w.get("/logs/node").has(200, "needle", "&lt;script&gt;", "!<script>alert", `id="l-`, `data-stream="/api/v1/log/stream?`, "Download file")
	w.get("/logs/node?q=NEEDLE&lines=100").has(200, "1 of the last", "needle", "!hay")
	w.get("/logs/node?q=nowhere").has(200, "holds this")
	w.get("/logs/nobody").has(404, "Not found")
	w.get("/logs/vm/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22").has(404, "Not found")
}
