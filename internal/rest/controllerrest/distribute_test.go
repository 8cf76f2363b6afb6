package controllerrest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
)

// memberNode adds a node, which has not described itself yet.
func (c *cloud) memberNode(name string) api.JoinAnswer {
	c.t.Helper()
	answer, err := c.Nodes.Join(c.t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: name, Arch: "amd64"})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// polled returns the orders of a node from a poll of that length.
func (c *cloud) polled(node api.JoinAnswer, info *api.NodeInfo, wait time.Duration) []api.CacheJob {
	c.t.Helper()
	answer, err := c.Link.Poll(c.t.Context(), node.Credential, api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: node.NodeID, BootID: "boot", InfoHash: "i", HeldHash: "h", Info: info,
		HasHeld: true,
	}, wait)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.CacheJobs
}

// reports sends cache job statuses of a node.
func (c *cloud) reports(node api.JoinAnswer, statuses ...api.CacheJobStatus) {
	c.t.Helper()
	body, err := json.Marshal(api.Report{
		Protocol: api.LinkProtocol, NodeID: node.NodeID, BootID: "boot", Seq: 1, CacheJobs: statuses,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.call("POST", api.PathReport, string(body), "Authorization", "Bearer "+node.Credential).into(c.t,
		&api.ReportAnswer{})
}

const distributePath = "/api/v1/registry/vm/distribute"

// distribute requests a distribution with the given parameters.
func (c *cloud) distribute(path, body string, header ...string) string {
	c.t.Helper()
	var made api.DistributeAnswer
	c.call("POST", path, body, header...).into(c.t, &made)
	return made.RequestID
}

// object returns an answer as it is on the wire.
func (c *cloud) object(path string) map[string]any {
	c.t.Helper()
	var out map[string]any
	c.call("GET", path, "").into(c.t, &out)
	return out
}

func TestDistributeOverTheWire(t *testing.T) {
	c := newCloud(t)
	a, b := c.memberNode("a"), c.memberNode("b")
	id := c.distribute(distributePath,
		`{"template_id":"`+templateID+`","tag":"v1+x","node_ids":null,"group_id":"","group":""}`+"\n",
		"Content-Type", "application/x-www-form-urlencoded")
	at := distributePath + "?id=" + id
	got := c.object(at)
	request := got["request"].(map[string]any)
	if asked, err := time.Parse(time.RFC3339Nano, fmt.Sprint(request["time_requested"])); err != nil ||
		time.Since(asked) > time.Minute {
		t.Errorf("asked at %v, %v", asked, err)
	}
	delete(request, "time_requested")
	want := map[string]any{
		"request": map[string]any{"request_id": id, "template_id": templateID, "tag": "v1+x", "version": 0.0},
		"distribute_status": map[string]any{
			a.NodeID: map[string]any{"status": false, "progress": 0.0},
			b.NodeID: map[string]any{"status": false, "progress": 0.0},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first answer (-want +got):\n%s", diff)
	}
	info := &api.NodeInfo{Arch: "amd64", Driver: "sim"}
	if list := c.polled(a, info, nodelink.MaxWait); len(list) != 1 || list[0].ID != id || list[0].ContentID != "c0" {
		t.Fatalf("a node gets %+v", list)
	}
	c.reports(a, api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: 0.5})
	status := func(node api.JoinAnswer) map[string]any {
		return c.object(at)["distribute_status"].(map[string]any)[node.NodeID].(map[string]any)
	}
	if diff := cmp.Diff(map[string]any{"status": false, "progress": 0.5}, status(a)); diff != "" {
		t.Errorf("while it is pulled (-want +got):\n%s", diff)
	}
	c.reports(a, api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
	if a := c.call("DELETE", distributePath, `{"id":"`+id+`"}`); a.code != http.StatusOK || a.Status != "OK" ||
		a.Body != nil {
		t.Errorf("the cancel answers %+v", a)
	}
	if diff := cmp.Diff(map[string]any{"status": true, "progress": 1.0}, status(a)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"status": false, "progress": 0.0, "error": "request canceled"},
		status(b)); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}
}

func TestListOfDistributions(t *testing.T) {
	c := newCloud(t)
	a := c.memberNode("a")
	if got := string(c.call("GET", distributePath, "").Body); got != "[]" {
		t.Errorf("an empty list is %s", got)
	}
	query := url.Values{"template_id": {templateID}, "number": {"0"}, "node_ids": {a.NodeID}}
	ids := []string{
		c.distribute(distributePath+"?"+query.Encode(), ""),
		c.distribute(distributePath, `{"template_id":"`+strings.ToUpper(templateID)+
			`","version":"0","tag":"v1+x","node_ids":[]}`),
		c.distribute(distributePath, `{"template_id":"`+templateID+`","node_ids":["`+a.NodeID+`"]}`, "Content-Type",
			"application/json"),
	}
	for path, want := range map[string][]string{
		"": ids, "?limit=2": ids[:2], "?after=" + ids[0]: ids[1:], "?limit=1&after=" + strings.ToUpper(ids[1]): ids[2:],
		"?after=" + ids[2]: {},
	} {
		var list []api.Distribution
		c.call("GET", distributePath+path, "").into(t, &list)
		got := []string{}
		for _, d := range list {
			got = append(got, d.Request.RequestID)
			if len(d.Status) != 1 {
				t.Errorf("%s: status of %d nodes", d.Request.RequestID, len(d.Status))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q gives %v, want %v", path, got, want)
		}
	}
}

func TestRefusedCacheJobsOverTheWire(t *testing.T) {
	c := newCloud(t)
	ok := `"template_id":"` + templateID + `"`
	const unknown = "22222222-2222-4333-8444-555555555555"
	many := strings.TrimSuffix(strings.Repeat(`"x",`, cachejobs.MaxNodes+1), ",")
	for _, tt := range []struct {
		name, method, path, body string
		code                     int
		message                  string
	}{
		{"no node", "POST", distributePath, `{` + ok + `}`, 200, "no node matches the request to distribute"},
		{"no template", "POST", distributePath, `{}`, 400, "template_id: is required"},
		{"template of another type", "POST", distributePath, `{"template_id":7}`, 400, "template_id: must be a string"},
		{"unknown template", "POST", distributePath, `{"template_id":"` + unknown + `"}`, 200, "Not found"},
		{"template by name", "POST", distributePath, `{"template_id":"base"}`, 200, "Not found"},
		{"unknown tag", "POST", distributePath, `{` + ok + `,"tag":"v1 x"}`, 200, "No such tag v1 x"},
		{"unknown version", "POST", distributePath, `{` + ok + `,"version":5}`, 200, "No such tag 5"},
		{"version below 0", "POST", distributePath, `{` + ok +
			`,"version":-1}`, 400, "version: must be an integer between 0 and 2147483647"},
		{"version and number", "POST", distributePath, `{` + ok +
			`,"version":0,"number":1}`, 400, "number: version and number differ"},
		{"nodes of another type", "POST", distributePath, `{` + ok +
			`,"node_ids":"all"}`, 400, "node_ids: must be an array of strings"},
		{"too many nodes", "POST", distributePath, `{` + ok + `,"node_ids":[` + many +
			`]}`, 400, "node_ids: must have at most 10000 elements"},
		{"unknown node", "POST", distributePath, `{` + ok + `,"node_ids":["x"]}`, 200, "Not found"},
		{"unknown group", "POST", distributePath, `{` + ok + `,"group_id":"x"}`, 200, "Not found"},
		{"unknown request", "GET", distributePath + "?id=" + unknown, "", 200, "Not found"},
		{"request that is no UUID", "GET", distributePath + "?id=x%2Fy", "", 200, "Not found"},
		{"cancel of nothing", "DELETE", distributePath, "", 400, "id: is required"},
		{"cancel of an unknown one", "DELETE", distributePath + "?id=" + unknown, "", 200, "Not found"},
		{"limit", "GET", distributePath + "?limit=0", "", 400, "limit: must be an integer between 1 and 10000"},
		{"after", "GET", distributePath + "?after=x", "", 400, "after: must be the ID of a request"},
		{"removal of nothing", "DELETE", "/api/v1/registry/vm/remove", `{"node_ids":[]}`, 400, "id: is required"},
		{"removal of an unknown template", "DELETE", "/api/v1/registry/vm/remove?id=" + unknown, "", 200, "Not found"},
		{"removal on an unknown node", "DELETE", "/api/v1/registry/vm/remove?id=" +
			templateID, `{"node_ids":["x"]}`, 200, "Not found"},
		{"unknown removal", "GET", "/api/v1/registry/vm/remove?id=" + unknown, "", 200, "Not found"},
		{"delete of nothing", "DELETE", "/api/v1/registry/vm", "", 400, "id: is required"},
		{"delete of an unknown template", "DELETE", "/api/v1/registry/vm?id=" + unknown, "", 200, "Not found"},
		{"delete by name", "DELETE", "/api/v1/registry/vm?id=base", "", 200, "Not found"},
		{"revert of nothing", "DELETE", "/api/v1/registry/revert", `{"tag":"v1"}`, 400, "id: is required"},
		{"revert of an unknown template", "DELETE", "/api/v1/registry/revert?id=" + unknown, "", 200, "Not found"},
		{"revert of an unknown tag", "DELETE", "/api/v1/registry/revert?id=" + templateID +
			"&tag=v1%2By", "", 200, "No such tag v1+y"},
		{"revert of an unknown number", "DELETE", "/api/v1/registry/revert?id=" +
			templateID, `{"number":3}`, 200, "No such tag 3"},
		{"version of the list", "GET", "/api/v1/registry/vm?apiVer=v3", "", 400, "apiVer: must be one of v1, v2"},
	} {
		a := c.call(tt.method, tt.path, tt.body)
		if a.code != tt.code || a.Status != "FAIL" || a.Message != tt.message {
			t.Errorf("%s: %d %s %q", tt.name, a.code, a.Status, a.Message)
		}
	}
	if got := string(c.call("GET", distributePath, "").Body); got != "[]" {
		t.Errorf("refused requests were kept: %s", got)
	}
}

func TestRevertAndDeleteOverTheWire(t *testing.T) {
	c := newCloud(t)
	for _, tt := range []struct{ path, body, want string }{
		{"/api/v1/registry/revert?id=" + templateID, "", "null"},
		{"/api/v1/registry/revert?id=" + templateID + "&tag=v1%2Bx&number=0", "", "null"},
		{"/api/v1/registry/revert", `{"id":"` + templateID + `","tag":"v1+x","version":"0"}` + "\n", "null"},
		{"/api/v1/registry/vm?id=" + templateID, "", ""},
		{"/api/v1/registry/vm", `{"id":"` + templateID + `"}`, ""},
	} {
		a := c.call("DELETE", tt.path, tt.body)
		if a.code != http.StatusOK || a.Status != "OK" || a.Message != "" || string(a.Body) != tt.want {
			t.Errorf("%s %s: %d %s %q %s", tt.path, tt.body, a.code, a.Status, a.Message, a.Body)
		}
	}
}

func TestRemoveOverTheWire(t *testing.T) {
	c := newCloud(t)
	const path = "/api/v1/registry/vm/remove"
	a, b := c.memberNode("a"), c.memberNode("b")
	if got := string(c.call("DELETE", path+"?id="+templateID,
		`{"node_ids":null}`).Body); got != `{"requests_sent":0,"node_ids":[],"request_id":""}` {
		t.Errorf("of one that no node has: %s", got)
	}
	info := &api.NodeInfo{
		Arch: "amd64", Driver: "sim",
		Templates: []api.NodeTemplate{{ID: templateID, Name: "base", Tag: "v1+x", ContentID: "c0"}},
	}
	c.polled(a, info, 0)
	var made api.RemoveAnswer
	c.call("DELETE", path, `{"id":"`+templateID+`"}`).into(t, &made)
	if made.RequestsSent != 1 || !slices.Equal(made.NodeIDs, []string{a.NodeID}) {
		t.Fatalf("answer is %+v", made)
	}
	if list := c.polled(a, info, nodelink.MaxWait); len(list) != 1 || list[0].Kind != api.CacheJobRemove ||
		list[0].TemplateID != templateID {
		t.Fatalf("the node gets %+v", list)
	}
	c.reports(a, api.CacheJobStatus{ID: made.RequestID, Stage: api.CacheJobDone, Removed: 1})
	got := c.object(path + "?id=" + made.RequestID)
	delete(got["request"].(map[string]any), "time_requested")
	want := map[string]any{
		"request":       map[string]any{"request_id": made.RequestID, "template_id": templateID},
		"remove_status": map[string]any{a.NodeID: map[string]any{"status": true, "removed": 1.0, "kept": 0.0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var named api.RemoveAnswer
	c.call("DELETE", path+"?id="+templateID+"&node_ids="+b.NodeID+"&node_ids="+a.NodeID, "").into(t, &named)
	if named.RequestsSent != 2 {
		t.Errorf("answer is %+v", named)
	}
	var list []api.Removal
	c.call("GET", path, "").into(t, &list)
	if len(list) != 2 || list[0].Request.RequestID != made.RequestID {
		t.Errorf("the list has %d", len(list))
	}
	if got := string(c.call("GET", distributePath, "").Body); got != "[]" {
		t.Errorf("removals are listed as distributions: %s", got)
	}
}
