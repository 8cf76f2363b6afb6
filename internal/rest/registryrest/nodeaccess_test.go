package registryrest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

var revertOne = "one"

// savingScope is the scope of a node with a running save of an instance of the second template: the tag r of
// the first template replaces the tag one.
var savingScope = auth.NodeScope{
	Saves: []auth.SaveScope{
		{ID: "save-1", TemplateID: first, Tag: "r", RevertTag: &revertOne, BaseTemplateID: second},
	},
	LogInstances: []string{"instance-1"}, LogRows: &auth.LogRowScope{Machine: "mac-1", Host: "10.1.1.1"},
}

// ordered begins the push of a node: fields replace the ordered ones.
func (v *vault) ordered(who string, fields map[string]any) (answer, string) {
	v.t.Helper()
	x, _, _ := disk(v.t, "saved")
	body := map[string]any{
		"id": first, "tag": "r", "must_exist": true, "arch": "amd64", "resume_key": "save-1",
		"revert": map[string]string{"tag": "one"},
		"config": json.RawMessage(`{"hard_drives":[{"file":"d"}]}`),
		"files":  []map[string]any{{"name": "d", "kind": "disk", "size": x.ContentSize()}},
	}
	maps.Copy(body, fields)
	raw, err := json.Marshal(body)
	if err != nil {
		v.t.Fatal(err)
	}
	a := v.call(who, "POST /registry/v2/push", string(raw))
	var session api.PushSession
	_ = json.Unmarshal(a.Body, &session)
	return a, "/registry/v2/push/" + session.Session
}

// TestNamedUsersHaveNoShares: an API key has one share of the pushes, whatever users its requests name, and
// invented names take nothing from others.
func TestNamedUsersHaveNoShares(t *testing.T) {
	v := openVault(t, t.TempDir())
	v.grant(nil)
	refused := false
	for i := range registry.DefaultMaxPushes + 1 {
		v.header = []string{rest.UserHeader, fmt.Sprint("u", i), rest.GroupHeader, "dev"}
		a, _ := v.offer("dev", none, fmt.Sprint("v", i), "")
		if refused = a.code == http.StatusTooManyRequests; refused {
			if want := farm.CallerShare(registry.DefaultMaxPushes); i != want ||
				!strings.Contains(a.Message, "limit per caller") {
				t.Errorf("push %d: %s", i, a.raw)
			}
			break
		}
		if a.code != 200 || a.Status != "OK" {
			t.Fatal(a.raw)
		}
	}
	if !refused {
		t.Error("one key can take all pushes")
	}
	v.header = nil
	if a, _ := v.offer("root", none, "r", ""); a.code != 200 {
		t.Errorf("root: %s", a.raw)
	}
}

// TestANodePushesItsSaveAlone: every field of the order counts, and so do the parts of the push.
func TestANodePushesItsSaveAlone(t *testing.T) {
	v := newVault(t)
	for name, fields := range map[string]map[string]any{
		"another template":         {"id": second},
		"a new template":           {"id": none, "must_exist": false, "name": "n"},
		"no template":              {"id": "", "must_exist": false, "name": "n"},
		"no matter whether it is":  {"must_exist": false, "name": "n"},
		"another tag":              {"tag": "x"},
		"without the revert":       {"revert": nil},
		"a revert of another tag":  {"revert": map[string]string{"tag": "two"}},
		"a revert of the latest":   {"revert": map[string]string{}},
		"another save":             {"resume_key": "save-2"},
		"no save":                  {"resume_key": ""},
		"what a name is added to":  {"name": "renamed"},
		"a tag with another space": {"tag": "r "},
	} {
		if a, _ := v.ordered("saving node", fields); a.code != 403 || !strings.Contains(a.Message, "head_push_vm") {
			t.Errorf("%s: %d %s", name, a.code, a.raw)
		}
	}
	_, foreign := v.offer("root", first, "x", "")
	for _, request := range []string{"GET " + foreign, "PUT " + foreign + "/d?off=0", "POST " + foreign +
		"/commit", "DELETE " + foreign} {
		if a := v.call("saving node", request, "{}"); a.code != 403 {
			t.Errorf("%s of somebody else's push: %d %s", request, a.code, a.raw)
		}
	}
	a, base := v.ordered("saving node", nil)
	if a.Status != "OK" {
		t.Fatal(a.raw)
	}
	if a := v.call("node", "POST "+base+"/commit", "{}"); a.code != 403 {
		t.Errorf("a node without that save: %d %s", a.code, a.raw)
	}
	if a := v.finish("saving node", base, "saved"); a.Status != "OK" {
		t.Fatal(a.raw)
	}
	if got := v.tags(first); !slices.Equal(got, []string{"r"}) {
		t.Errorf("the template has %v", got)
	}
	if a := v.call("saving node", "GET /registry/v2/pull?id="+first+"&tag=r&look=true", ""); a.Status != "OK" {
		t.Errorf("a look at what it has pushed: %s", a.raw)
	}
	for _, query := range []string{"id=" + first + "&tag=r", "id=" + first + "&look=true", "id=" + second +
		"&tag=two&look=true"} {
		if a := v.call("saving node", "GET /registry/v2/pull?"+query, ""); a.code != 403 {
			t.Errorf("pull?%s: %d %s", query, a.code, a.raw)
		}
	}
}

func (v *vault) tags(id string) (tags []string) {
	v.t.Helper()
	var detail api.TemplateDetail
	if err := json.Unmarshal(v.call("root", "GET /registry/v2/vm?id="+id, "").Body, &detail); err != nil {
		v.t.Fatal(err)
	}
	for _, version := range detail.Versions {
		tags = append(tags, version.Tag)
	}
	return tags
}

// TestANodeOfAKeyThatMayNotRevert cannot save with a revert, and the key alone grants no right.
func TestANodeOfAKeyThatMayNotRevert(t *testing.T) {
	v := newVault(t)
	v.grant(nil) // the group of the node's key has everything but revert and save_revert
	if a, _ := v.ordered("keyed node", nil); a.code != 403 || !strings.Contains(a.Message, "revert") {
		t.Errorf("without revert: %d %s", a.code, a.raw)
	}
	for _, p := range []farm.Permission{"revert", "save_revert"} {
		err := v.grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
			return g.SetGroup(farm.ServiceRegistry, "nodes", []farm.Permission{"head_push_vm", "push_vm", p})
		})
		if err != nil {
			t.Fatal(err)
		}
		if a, _ := v.ordered("keyed node", nil); a.Status != "OK" {
			t.Errorf("with %s: %d %s", p, a.code, a.raw)
		}
		if a := v.call("keyed node", "DELETE /registry/revert?id="+first+"&tag=one", ""); a.code != 403 {
			t.Errorf("a revert by itself with %s: %d %s", p, a.code, a.raw)
		}
	}
}

// TestANodesPushRestsOnItsOwnLayers: a node that knows layers of another template cannot use them.
func TestANodesPushRestsOnItsOwnLayers(t *testing.T) {
	v := newVault(t)
	foreign, base := v.push("root", none, "secret"), v.push("root", second, "base")
	file := func(field, root string) map[string]any {
		x, _, _ := disk(t, none+"secret")
		return map[string]any{
			"files": []map[string]any{{"name": "d", "kind": "disk", "size": x.ContentSize(), field: root}},
		}
	}
	if a, _ := v.ordered("saving node", file("parent", foreign)); a.code != 412 {
		t.Errorf("a layer on another template's: %d %s", a.code, a.raw)
	}
	if a, _ := v.ordered("saving node", file("parent", base)); a.Status != "OK" {
		t.Errorf("a layer on its base's: %d %s", a.code, a.raw)
	}
	a, session := v.ordered("saving node", file("root", foreign))
	if strings.Contains(string(a.Body), api.PushExists) {
		t.Errorf("it learns that the layer is there: %s", a.raw)
	}
	if a := v.call("saving node", "POST "+session+"/commit", `{"roots":{"d":"`+foreign+`"}}`); a.Status == "OK" {
		t.Errorf("it got the layer: %s", a.raw)
	}
	// a node that has the bytes may push them
	if a := v.finish("saving node", session, none+"secret"); a.Status != "OK" {
		t.Errorf("with the bytes: %s", a.raw)
	}
}

// TestANodesPulls: manifest and layers of templates that it was ordered to cache.
func TestANodesPulls(t *testing.T) {
	v := newVault(t)
	own, other := v.push("root", first, "more"), v.push("root", second, "more")
	for request, code := range map[string]int{
		"GET /registry/v2/pull?id=" + first:                  200,
		"GET /registry/v2/pull?id=" + strings.ToUpper(first): 200,
		"GET /registry/v2/pull?id=" + second:                 403,
		"GET /registry/v2/pull?id=" + none:                   403,
		"GET /registry/v2/blob/" + own:                       200,
		"GET /registry/v2/blob/" + other:                     403,
	} {
		if a := v.call("node", request, ""); a.code != code {
			t.Errorf("%s: %d %s", request, a.code, a.raw[:min(len(a.raw), 200)])
		}
	}
	for id, code := range map[string]int{first: 409, second: 403, none: 403} { // 409: a trace of other layers
		content := "00"
		if m, err := v.reg.PeekManifest(t.Context(), registry.VersionRef{ID: id}); err == nil {
			content = m.ContentID
		}
		trace := fmt.Sprintf(`{"id":%q,"content_id":%q,"files":{"d":{"roots":[],"frames":[1]}}}`, id, content)
		if a := v.call("node", "PUT /registry/v2/pull/trace", trace); a.code != code {
			t.Errorf("trace of %s: %d %s", id, a.code, a.raw)
		}
	}
}

// TestANodesFiles: a node may upload only the failure logs of the node's instances.
func TestANodesFiles(t *testing.T) {
	v := newVault(t)
	for path, code := range map[string]int{
		"logs/instance-1/a.log": 200, "logs/instance-1/b/a.log": 403, "logs/instance-2/a.log": 403, "logs/a.log": 403,
		"a.log":                       403,
		"node-scans/instance-1/a.log": 403, "logs/instance-1/": 403, "logs/instance-1%2Fx/a.log": 403,
		"Logs/instance-1/a.log":                   403,
		"logs/instance-2/%2e%2e/instance-1/a.log": 403,
	} {
		if a := v.call("saving node", "PUT /registry/files/"+path, "text"); a.code != code {
			t.Errorf("%s: %d %s", path, a.code, a.raw)
		}
	}
	if a := v.call("saving node", "DELETE /registry/files/logs/instance-1/a.log", ""); a.code != 403 {
		t.Errorf("a removal: %d %s", a.code, a.raw)
	}
}

// TestRoutesOfNodes: a route that is added is closed to nodes.
func TestRoutesOfNodes(t *testing.T) {
	open := map[string]bool{}
	for _, r := range registryrest.Routes(nil) {
		if r.AllowsRegistryToken {
			open[r.Pattern] = true
		}
	}
	want := []string{
		"POST /registry/v2/push", "GET /registry/v2/push/{session}", "PUT /registry/v2/push/{session}/{file}",
		"POST /registry/v2/push/{session}/commit", "DELETE /registry/v2/push/{session}",
		"GET /registry/v2/pull", "PUT /registry/v2/pull/trace", "GET /registry/v2/blob/{root}",
		"PUT /registry/files/{path...}", "POST /log",
	}
	for _, pattern := range want {
		if !open[pattern] {
			t.Errorf("%s is closed to nodes", pattern)
		}
		delete(open, pattern)
	}
	if len(open) > 0 {
		t.Errorf("open to nodes: %v", open)
	}
	v := newVault(t)
	for _, r := range registryrest.Routes(v.reg) {
		if r.AllowsRegistryToken || r.Permission == rest.NoCredential || r.Permission == rest.AnyCredential {
			continue
		}
		method, path, _ := strings.Cut(r.Pattern, " ")
		path = strings.NewReplacer("{$}", "", "{path...}", "x").Replace(path)
		if a := v.call("saving node", method+" "+path, "{}"); a.code != 403 ||
			!strings.Contains(a.Message, fmt.Sprintf("Permission %s required", r.Permission)) {
			t.Errorf("%s: %d %s", r.Pattern, a.code, a.raw)
		}
	}
}
