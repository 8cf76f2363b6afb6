package registryrest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// as identifies callers by a header of the test: root, a node, a node of a key, or a user of one group.
type as struct{}

func (as) Schemes() []string { return nil }

func (a as) Revalidate(r *http.Request, _ auth.Identity) (auth.Identity, error) { return a.Identify(r) }

func (as) Identify(r *http.Request) (auth.Identity, error) {
	switch who := r.Header.Get("As"); who {
	case "root":
		return auth.Identity{Name: auth.RootName, Method: auth.ByRoot, Root: true}, nil
	case "node":
		return auth.Identity{
			Name: "node-1", Method: auth.ByNode, Scope: auth.NodeScope{PullTemplates: []string{first}},
		}, nil
	case "saving node":
		return auth.Identity{Name: "node-1", Method: auth.ByNode, Scope: savingScope}, nil
	case "keyed node":
		return auth.Identity{
			Name: "node-2", Method: auth.ByNode, KeyID: "k", Groups: []string{"nodes"},
			Scope: savingScope,
		}, nil
	default:
		return auth.Identity{Name: "u", Groups: []string{who}, Method: auth.ByKey, KeyID: "u"}, nil
	}
}

// vault is a registry where rights on single templates count.
type vault struct {
	t      *testing.T
	server *httptest.Server
	reg    *registry.Registry
	base   string
	grants *auth.GrantTable
	header []string // of each request, in addition to the caller
}

const (
	first  = "aaaaaaaa-0000-4000-8000-00000000000a"
	second = "bbbbbbbb-0000-4000-8000-00000000000b"
	none   = "cccccccc-0000-4000-8000-00000000000c"
)

// newVault has two templates, of one layer each.
func newVault(t *testing.T) *vault {
	t.Helper()
	v := openVault(t, t.TempDir())
	v.push("root", first, "one")
	v.push("root", second, "two")
	return v
}

func openVault(t *testing.T, base string) *vault {
	t.Helper()
	v := &vault{t: t, grants: auth.NewGrantTable(auth.Grants{}, nil), base: base}
	var err error
	if v.reg, err = registry.Open(t.Context(), registry.Options{Base: v.base, Version: "1.2.3"}); err != nil {
		t.Fatal(err)
	}
	judge := auth.NewAuthorizer(auth.Policy{
		Service: farm.ServiceRegistry, Tier: farm.TierEnterprisePlus, Authorization: true, Resources: true,
	}, v.grants)
	log := slog.New(slog.DiscardHandler)
	guard, err := rest.NewGuard(rest.GuardOptions{Identifier: as{}, Authorizer: judge, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	v.server = httptest.NewServer(guard.Handler(registryrest.Routes(v.reg), log))
	t.Cleanup(func() {
		v.server.Close()
		_ = v.reg.Close()
	})
	return v
}

// disk makes the layer of a small disk, and the data that its push sends.
func disk(t *testing.T, content string) (x *blob.Index, stored []byte, frames []blob.PartFrame) {
	t.Helper()
	data := bytes.Repeat([]byte(content+strings.Repeat(".", 64-len(content))), 100)
	x, err := blob.Encode(t.Context(), source{bytes.NewReader(data)},
		blob.EncodeOptions{Size: int64(len(data))}, func(f blob.Frame, _ int64, p []byte) error {
			stored, frames = append(stored, p...), append(frames, blob.PartFrame{StoredSize: f.StoredSize, Sum: f.Sum})
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return x, stored, frames
}

// grant returns the group dev every permission of the registry but some, and rights on the first template.
func (v *vault) grant(without []farm.Permission, rights ...farm.Permission) {
	v.t.Helper()
	err := v.grants.Change(v.t.Context(), func(g auth.Grants) (auth.Grants, error) {
		all := []farm.Permission{}
		for _, p := range farm.AllPermissions(farm.ServiceRegistry) {
			if !slices.Contains(without, p.Name) {
				all = append(all, p.Name)
			}
		}
		g, err := g.SetGroup(farm.ServiceRegistry, "dev", all)
		if err != nil {
			return g, err
		}
		if g, err = g.SetGroup(farm.ServiceRegistry, "nodes", slices.DeleteFunc(all,
			func(p farm.Permission) bool { return p == "revert" || p == "save_revert" })); err != nil {
			return g, err
		}
		return g.SetGroupResources(farm.ServiceRegistry, "dev",
			[]farm.ResourcePermission{{ID: first, Type: farm.ResourceTemplate, Permissions: rights}})
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// call sends a request as the given user.
func (v *vault) call(who, request, body string) answer {
	v.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.server.URL+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("As", who)
	for i := 0; i < len(v.header); i += 2 {
		req.Header.Set(v.header[i], v.header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	a := answer{code: resp.StatusCode, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.Envelope) // a layer has no envelope
	return a
}

// says returns code and message, with names for IDs.
func (v *vault) says(who, request, body string) string {
	v.t.Helper()
	a := v.call(who, request, body)
	return fmt.Sprintf("%d %s", a.code, strings.NewReplacer(first, "FIRST", second, "SECOND").Replace(a.Message))
}

// offer begins a push of a disk and returns the path of its session. more is appended to the request.
func (v *vault) offer(who, id, tag, more string) (answer, string) {
	v.t.Helper()
	x, _, _ := disk(v.t, id+tag)
	a := v.call(who, "POST /registry/v2/push", fmt.Sprintf(
		`{"id":%q,"name":"n","tag":%q,"arch":"amd64","config":{"hard_drives":[{"file":"d"}]},"files":[{"name":"d","kind":"disk","size":%d}]%s}`, id, tag, x.ContentSize(), more))
	var session api.PushSession
	_ = json.Unmarshal(a.Body, &session)
	return a, "/registry/v2/push/" + session.Session
}

// finish sends the data of a push and commits it.
func (v *vault) finish(who, base, content string) answer {
	v.t.Helper()
	x, stored, frames := disk(v.t, content)
	root := x.Digest().String()
	for _, c := range []struct{ request, body string }{
		{"PUT " + base + "/d?off=0", string(blob.PartHeader(frames)) + string(stored)},
		{"PUT " + base + "/d?index=" + root, string(x.Encoded())},
	} {
		if a := v.call(who, c.request, c.body); a.code != 204 {
			return a
		}
	}
	return v.call(who, "POST "+base+"/commit", `{"roots":{"d":"`+root+`"}}`)
}

// push publishes a version and returns the name of its layer.
func (v *vault) push(who, id, tag string) string {
	v.t.Helper()
	a, base := v.offer(who, id, tag, "")
	if a.code == 200 && a.Status == "OK" {
		a = v.finish(who, base, id+tag)
	}
	if a.code != 200 || a.Status != "OK" {
		v.t.Fatal(a.raw)
	}
	x, _, _ := disk(v.t, id+tag)
	return x.Digest().String()
}

// TestRightsOnTemplates: each route requires its right on the template, and one that may not be listed is not
// found.
func TestRightsOnTemplates(t *testing.T) {
	v := newVault(t)
	for _, c := range []struct {
		request, body string
		right         farm.Permission
		done          string
	}{
		{"GET /registry/v2/vm?id=ID", "", "list", "200 "},
		{"GET /registry/vm?id=ID", "", "list", "200 "},
		{"GET /registry/vm/info?id=ID", "", "get_config", "200 "},
		{"GET /registry/v2/pull?id=ID", "", "pull", "200 "},
		{"GET /registry/v2/pull?id=ID&look=true", "", "pull", "200 "},
		{"PUT /registry/vm/arch", `{"id":"ID","arch":"amd64"}`, "set_arch", "200 "},
		{
			"POST /registry/v2/push", `{"id":"ID","tag":"x","must_exist":true,"arch":"amd64","config":{},"files":[]}`,
			"push_tag", "200 ",
		},
		{"DELETE /registry/revert?id=ID&tag=none", "", "delete_revert", "400 Did not find any versions with tag none"},
		{"DELETE /registry/vm?id=ID", "", "delete_revert", "200 "},
	} {
		on := func(id string) string {
			return v.says("dev", strings.ReplaceAll(c.request, "ID", id), strings.ReplaceAll(c.body, "ID", id))
		}
		const notThere = "200 Not found"
		v.grant(nil)
		for _, id := range []string{first, strings.ToUpper(first), second, none, "x"} {
			if got := on(id); got != notThere && !(id == "x" && strings.HasPrefix(got, "400 id: must be a UUID")) {
				t.Errorf("%s %s of %s without rights: %s", c.request, c.body, id, got)
			}
		}
		if c.right != "list" {
			v.grant(nil, "list")
			if got, want := on(first), fmt.Sprintf("403 You need the permission %s on the template FIRST",
				c.right); got != want {
				t.Errorf("%s: %s, want %s", c.request, got, want)
			}
		}
		v.grant(nil, c.right)
		if got := on(second); got != notThere {
			t.Errorf("%s: of another one: %s", c.request, got)
		}
		if got := on(strings.ToUpper(first)); got != c.done {
			t.Errorf("%s %s with the right: %s, want %s", c.request, c.body, got, c.done)
		}
	}
}

// TestTemplatesShown: lists, damage and the names of layers.
func TestTemplatesShown(t *testing.T) {
	v := newVault(t)
	for _, path := range []string{"/registry/vm", "/registry/v2/vm"} {
		v.grant(nil)
		if a := v.call("dev", "GET "+path, ""); string(a.Body) != "[]" {
			t.Errorf("%s without rights: %s", path, a.Body)
		}
		v.grant(nil, "list")
		if a := v.call("dev", "GET "+path, ""); !strings.Contains(a.raw, first) || strings.Contains(a.raw, second) {
			t.Errorf("%s: %s", path, a.Body)
		}
		if a := v.call("node", "GET "+path, ""); a.code != 403 {
			t.Errorf("%s, a node: %d %s", path, a.code, a.Body)
		}
		one := "GET " + path + "?id=" + first
		if a := v.call("dev", one, ""); strings.Contains(a.raw, ".ank") || !strings.Contains(a.raw, `"images":[]`) {
			t.Errorf("%s names layers: %s", path, a.Body)
		}
		v.grant(nil, "list", "pull")
		if a := v.call("dev", one, ""); !strings.Contains(a.raw, ".ank") {
			t.Errorf("%s names no layers: %s", path, a.Body)
		}
	}
}

// TestDamageShown: the status reports the damage of templates that may be listed.
func TestDamageShown(t *testing.T) {
	v := newVault(t)
	v.server.Close()
	if err := v.reg.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{first, second} {
		if err := os.WriteFile(filepath.Join(v.base, "vm_dir", id, "template.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v = openVault(t, v.base)
	v.grant(nil, "list")
	const path = "GET /registry/status"
	if a := v.call("dev", path, ""); !strings.Contains(a.raw, first) || strings.Contains(a.raw, second) {
		t.Errorf("%s", a.raw)
	}
	if a := v.call("root", path, ""); !strings.Contains(a.raw, second) {
		t.Errorf("root: %s", a.raw)
	}
}

// TestLayersAreOfTheirTemplates: a caller that knows the name of a layer needs the right to pull a template
// that has it.
func TestLayersAreOfTheirTemplates(t *testing.T) {
	v := newVault(t)
	root := v.push("root", first, "more")
	get := func(who string) int { return v.call(who, "GET /registry/v2/blob/"+root, "").code }
	layer := func(who string) bool {
		a := v.call(who, "GET /registry/v2/blob/"+root, "")
		return a.code == 200 && a.Status == ""
	}
	v.grant(nil, "list")
	if layer("dev") {
		t.Errorf("without the right: %d", get("dev"))
	}
	for who, rights := range map[string][]farm.Permission{"dev": {"pull"}, "node": nil, "root": nil} {
		if v.grant(nil, rights...); !layer(who) {
			t.Errorf("%s: %d", who, get(who))
		}
	}
	if a := v.call("root", "DELETE /registry/revert?id="+first+"&tag=more", ""); a.Status != "OK" {
		t.Fatal(a.raw)
	}
	if v.grant(nil); !layer("dev") { // a pull that has begun continues
		t.Errorf("of no template any more: %d", get("dev"))
	}
}

// TestPushesAreChecked: a caller that may push may create a template, and every step of a push is authorized
// again.
func TestPushesAreChecked(t *testing.T) {
	v := newVault(t)
	v.grant(nil, "list")
	v.push("dev", none, "v1") // from now on no user has rights on it
	if got := v.says("dev", "GET /registry/v2/vm?id="+none, ""); got != "200 Not found" {
		t.Errorf("a new template: %s", got)
	}
	if a, _ := v.offer("dev", none, "v2", ""); a.Message != "Not found" {
		t.Errorf("a second tag of it: %s", a.raw)
	}
	v.grant(nil, "push_tag")
	a, base := v.offer("dev", first, "two", "")
	if a.Status != "OK" {
		t.Fatal(a.raw)
	}
	v.grant(nil, "list")
	const no = "403 You need the permission push_tag on the template FIRST"
	for _, request := range []string{"GET " + base, "PUT " + base + "/d?off=0", "POST " + base + "/commit", "DELETE " +
		base} {
		if got := v.says("dev", request, ""); got != no {
			t.Errorf("%s after the right was taken: %s", request, got)
		}
	}
	v.grant(nil, "push_tag")
	if a := v.finish("dev", base, first+"two"); a.Status != "OK" {
		t.Errorf("with the right again: %s", a.raw)
	}
	v.grant(nil)
	if a := v.call("dev", "POST "+base+"/commit", `{}`); a.Status != "OK" { // it is done: the same answer
		t.Errorf("a repeated commit: %s", a.raw)
	}
}

// TestPushesThatRevert need the permission to revert.
func TestPushesThatRevert(t *testing.T) {
	v := newVault(t)
	const revert = `,"revert":{"tag":"one"}`
	for _, c := range []struct {
		who     string
		without []farm.Permission
		rights  []farm.Permission
		want    string // "" is none
	}{
		{
			"dev",
			[]farm.Permission{"revert"},
			[]farm.Permission{"push_tag", "delete_revert"},
			"You need the permission revert",
		},
		{"dev", nil, []farm.Permission{"push_tag", "list"}, "You need the permission delete_revert on the template " +
			first},
		{"dev", nil, []farm.Permission{"delete_revert", "list"}, "You need the permission push_tag on the template " +
			first},
		{"dev", nil, []farm.Permission{"push_tag", "delete_revert"}, ""},
	} {
		v.grant(c.without, c.rights...)
		if a, _ := v.offer(c.who, first, "r", revert); a.Message != c.want || c.want != "" && a.code != 403 {
			t.Errorf("%s without %v, with %v: %d %s, want %s", c.who, c.without, c.rights, a.code, a.Message, c.want)
		}
	}
}

// TestRightsAnswered: a caller learns its rights, and nothing about other objects.
func TestRightsAnswered(t *testing.T) {
	v := newVault(t)
	v.grant([]farm.Permission{"revert"}, "pull", "list")
	var r api.CallerRights
	for query, want := range map[string]map[string][]string{
		"": {first: {"list", "pull"}}, "?id=" + strings.ToUpper(first): {first: {"list", "pull"}}, "?id=" + second: {},
		"?id=" + none: {},
	} {
		r = api.CallerRights{}
		if err := json.Unmarshal(v.call("dev", "GET /registry/v2/rights"+query, "").Body, &r); err != nil {
			t.Fatal(err)
		}
		if !r.Enforced || !r.Managed || r.Allows("revert") || !r.Allows("delete_vm") ||
			fmt.Sprint(r.Templates) != fmt.Sprint(want) {
			t.Errorf("%s: %+v", query, r)
		}
	}
	if a := v.call("nobody knows", "GET /registry/v2/rights",
		""); string(a.Body) != `{"permissions":[],"enforced":true,"managed":true,"templates":{}}` {
		t.Errorf("of a user without rights: %s", a.Body)
	}
	s := serve(t)
	pushEmpty(t, s, id, "debian", "v1")
	if err := json.Unmarshal(send(t, s, "GET", "/registry/v2/rights", "").Body,
		&r); err != nil || r.Enforced || r.Managed || !r.Allows("revert") || !r.On(id, "pull") {
		t.Errorf("without authentication: %+v, %v", r, err)
	}
}
