package portal_test

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestStart: the form that starts instances, with the command next to it and errors shown per
// field.
func TestStart(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/instances/start").has(200, "No templates", "template ID")
	w.push(debian, "debian")
	w.join("mac", 1)
	w.get("/instances/start?vmid="+debian).has(200, `value="`+debian+`" selected`, `<option value="v2">v2 (latest, `,
		"mac-0001",
		"-X POST", "Start 1 instance", "4 free slots in the cloud", "suitable node has cached v2", "!open><summary>",
		"Empty: the latest, now v2.")
	form := url.Values{
		"vmid": {debian}, "name": {hostile}, "metadata": {"branch=main\r\n\r\nx = y=z"},
		"port_forwarding_override": {"ssh 22 2222"}, "ttl": {"2h"}, "preview": {"1"},
	}
	w.post("/instances/start", form).has(200, "branch", "y=z", "2h0m0s", "&lt;script&gt;", "!<script>alert",
		"host_port", "open><summary>", "Ports ssh 22 2222", "Terminates automatically")
	form.Del("preview")
	for field, values := range map[string][2]string{
		"count": {"1001", "must be an integer between"}, "priority": {"x", "must be an integer"},
		"ttl":                      {"soon", "must be a time such as"},
		"metadata":                 {"no sign", "each line must be key=value"},
		"port_forwarding_override": {"ssh", "each line must have a name"},
		"script_timeout":           {"5", "requires script_monitoring"},
	} {
		bad := url.Values{"vmid": {debian}, field: {values[0]}}
		w.post("/instances/start", bad).has(400, `id="w-`+field+`" role="alert">`+values[1],
			`aria-describedby="w-`+field+`"`)
	}
	w.post("/instances/start", url.Values{"vmid": {debian}, "node_id": {"mac-0009"}}).has(400,
		`id="w-node_id" role="alert">no node has this name`)
	w.post("/instances/start", url.Values{"vmid": {debian}, "node_id": {"mac-0"}, "preview": {"1"}}).has(200,
		`<option value="mac-0001">`, "No node has this name", "!free slot")
	group, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "empty"})
	if err != nil {
		t.Fatal(err)
	}
	w.get("/instances/start?vmid="+debian+"&group_id="+group.ID).has(200, "No node is in this group", "!free slot")
	w.post("/instances/start", url.Values{"vmid": {debian}, "count": {"6"}, "preview": {"1"}}).has(200,
		"2 instances wait until a slot is free", "Start 6 instances", "buildyard instance start debian --count 6")
	to := w.post("/instances/start", url.Values{"vmid": {debian}, "node_id": {"mac-0001"}}).leadsTo("/instances/")
	w.get(to).has(200, "debian")
	w.post("/instances/start", url.Values{"vmid": {spare}}).has(400, "No instance was started")
	w.post("/instances/start", url.Values{"name": {"x"}}).has(400, `id="w-vmid"`)
	form.Set("port_forwarding_override", "")
	form.Set("key", "the same twice")
	first, second := w.post("/instances/start", form), w.post("/instances/start", form)
	if to := first.Header.Get("Location"); first.Code != 303 || to != second.Header.Get("Location") {
		t.Errorf("%d to %q, then %q", first.Code, to, second.Header.Get("Location"))
	}
	w.post("/instances/start", url.Values{"vmid": {debian}, "count": {"2"}}).has(200, "2 done", "Requested")
}

// TestGroups: groups are made, changed, shown with their nodes, and deleted.
func TestGroups(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/groups").has(200, "No node groups yet")
	w.get("/groups/new").has(200, "Create group")
	w.post("/groups/new", url.Values{"name": {"ios"}, "description": {hostile}}).leadsTo("/groups?q=id%3A")
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
	w.get("/groups?q=id%3A"+ios).has(200, "1 group of nodes that match", `id="g-`+ios+`"`)
	w.get("/groups").has(200, "2 groups", "ios", `>1</a>`, "&lt;script&gt;", "!<script>alert", `id="g-`+ios+`"`)
	w.get("/groups/"+ios+"/edit").has(200, `value="ios"`)
	w.get("/groups/nobody/edit").has(404, "Group not found")
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
	w.await("the event of the start", func() (bool, error) { // it follows the state
		return strings.Contains(w.get("/events").Text, "</a> started on <a"), nil
	})
	w.get("/events").has(200, "</a> started on <a", `href="/instances/`+id+`"`, `href="/nodes/`+node.NodeID+`"`,
		">debian:v2</a>", "Instances</a>", "&lt;script&gt;", "!<script>alert", "An anonymous caller requested ")
	w.get("/events?q=sub_type:vmAction").has(200, `aria-current="true">Instances`, " requested ", "!pulled")
	w.get("/events?q=name:nothing").has(200, "No matching events")
	w.get("/events?q=colour:red").has(200, "unknown field", `aria-invalid="true"`)
	newWorld(t, map[string]string{"SVC_ENABLE_EVENT_LOGGING": "false"}).get("/events").has(200, "No events",
		"--enable-event-logging")
}

// TestStartHasEveryParameter: each parameter of the API has a field, and its value is in the
// command next to the form as it is sent.
func TestStartHasEveryParameter(t *testing.T) {
	w := newWorld(t, nil)
	fill := map[string]string{
		"vmid": debian, "tag": "v1", "version": "7", "name": "n", "external_id": "x", "count": "2", "node_id": spare,
		"group": "g", "group_id": spare, "priority": "9",
		"metadata": "k=v", "ttl": "90s", "startup_script": "true", "startup_script_condition": "1",
		"script_monitoring": "true", "script_timeout": "5", "script_fail_handler": "2",
		"name_template": "$ts", "vcpu": "3", "vram": "512", "disk": "80G", "skip_container_resize": "true",
		"network_mode": "bridge", "network_local": "forceOn",
		"mac_address": "52:54:00:00:00:01", "vlan_tag": "7", "usb_device": "phone",
		"port_forwarding_override": "ssh 22 2222 127.0.0.1\nweb 80 10.0.0.1", "vnc_password": "secret",
		"video_controller": "pg", "hvapic": "forceOn", "csr_active_config": "forceOn", "hw_serial": "C02",
		"hw_uuid": spare,
	}
	form := url.Values{"preview": {"1"}}
	page := w.get("/instances/start")
	for name, value := range fill {
		page.has(200, `name="`+name+`"`)
		form.Set(name, value)
	}
	preview := w.post("/instances/start", form)
	preview.has(200, "!must be", "!needs a")
	_, body, _ := strings.Cut(attribute(preview.Text[strings.Index(preview.Text, `id="same-curl"`):], "data-command"),
		" -d '")
	body, _, _ = strings.Cut(body, "' ")
	var sent map[string]any
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err, body)
	}
	kind := reflect.TypeFor[client.StartRequest]()
	for field := range kind.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" && sent[name] == nil {
			t.Errorf("%s cannot be filled in: %s", name, body)
		}
	}
	for _, text := range []string{
		`"size":"80G","skip_container_resize":true`,
		`{"name":"ssh","guest_port":22,"host_ip":"127.0.0.1","host_port":2222}`,
		`{"name":"web","guest_port":80,"host_ip":"10.0.0.1"}`,
	} {
		if !strings.Contains(body, text) {
			t.Errorf("%s is not in %s", text, body)
		}
	}
	form.Set("port_forwarding_override", "none")
	w.post("/instances/start", form).has(200, "port_forwarding_override&#34;:[]")
	w.push(debian, "debian")
	for field, values := range map[string][2]string{
		"hvapic": {"forceOn", "is an option of Intel Macs"}, "hw_uuid": {"x", "must be a UUID"},
		"skip_container_resize": {"true", "requires a new size"}, "version": {"x", "must be an integer"},
		"port_forwarding_override": {"ssh 22 1 2", "invalid port: want a number from 0 to 65535"},
		"vnc_password":             {"much too long", "must have 1 to 8"},
	} {
		w.post("/instances/start", url.Values{"vmid": {debian}, field: {values[0]}}).has(400,
			`id="w-`+field+`" role="alert">`+values[1])
	}
	w.join("mac", 1)
	to := w.post("/instances/start",
		url.Values{
			"vmid": {debian}, "version": {"0"}, "hw_serial": {"C02"}, "network_local": {"forceOn"},
			"video_controller": {"pg"},
		}).leadsTo("/instances/")
	w.get(to).has(200, "v1")
}
