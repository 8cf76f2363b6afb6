package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestNodeTokensCarryTheirScope, of whatever size that is.
func TestNodeTokensCarryTheirScope(t *testing.T) {
	w := newWorld(t)
	passes := NewNodeTokens(w.signer, nil)
	name := strings.Repeat(`"<`, 127)
	revert := name + "r"
	save := SaveScope{ID: strings.Repeat("i", 36), Template: strings.Repeat("t",
		36), Name: name, Tag: name, Revert: &revert, Base: strings.Repeat("b", 36)}
	value, _ := passes.Open("node-1", strings.Repeat("k", MaxKeyID), NodeScope{Save: []SaveScope{save}})
	who, err := passes.Verify(value)
	if err != nil || len(who.Scope.Save) != 1 || who.Scope.Save[0].Tag != name || *who.Scope.Save[0].Revert != revert {
		t.Fatalf("the largest save: %+v, %v", who.Scope, err)
	}
	var all NodeScope
	for i := range 300 {
		id := fmt.Sprintf("%036d", i)
		all.Pull, all.Logs = append(all.Pull, id), append(all.Logs, id)
	}
	all.Save, all.Rows, all.Orders = []SaveScope{{ID: "s", Tag: "v"}}, &RowScope{Machine: "m", Host: "h"}, true
	value, _ = passes.Open("node-1", "", all)
	if who, err = passes.Verify(value); err != nil {
		t.Fatal(err)
	}
	got := who.Scope
	if len(got.Save) != 1 || *got.Rows != *all.Rows || !got.Orders || len(got.Logs) > 0 || len(got.Pull) < 40 ||
		got.Pull[0] != all.Pull[0] {
		t.Errorf("of 300 instances: %d saves, %d pulls, %d logs, %+v", len(got.Save), len(got.Pull), len(got.Logs),
			got.Rows)
	}
	if len(all.Pull) != 300 || len(all.Logs) != 300 {
		t.Error("the scope that was given was changed")
	}
}

// TestScopeOfTheReleaseBefore: a token without a scope permits nothing, and its agent requests another one.
func TestScopeOfTheReleaseBefore(t *testing.T) {
	w := newWorld(t)
	who, err := NewNodeTokens(w.signer, nil).Verify(passPrefix + w.signer.Seal(forPasses, []byte(`{"n":"node-1"}`)))
	if err != nil {
		t.Fatal(err)
	}
	rules := NewRules(Policy{Service: farm.ServiceRegistry}, Grants{})
	for _, p := range farm.AllPermissions(farm.ServiceRegistry) {
		if rules.Allows(who, p.Name) {
			t.Errorf("it has %s", p.Name)
		}
	}
	if err := who.MissingOrder("pull_vm", "pull the template"); farm.CodeOf(err) != farm.CodeUnauthenticated {
		t.Errorf("the refusal is %v", err)
	}
}

// TestWhatAScopeGives: each part of a scope grants its permissions and no others, whether
// permissions are enforced or not.
func TestWhatAScopeGives(t *testing.T) {
	for _, policy := range []Policy{
		{Service: farm.ServiceRegistry},
		{Service: farm.ServiceRegistry, Tier: farm.TierEnterprisePlus, Authorization: true},
	} {
		rules := NewRules(policy, Grants{})
		for want, scope := range map[string]NodeScope{
			"":                             {},
			" ":                            {Orders: true},
			"pull_vm download_vm":          {Pull: []string{"t"}},
			"head_push_vm push_vm pull_vm": {Save: []SaveScope{{ID: "s"}}},
			"upload_file":                  {Logs: []string{"i"}},
			"send_log":                     {Rows: &RowScope{}},
		} {
			who := Identity{Name: "n", Method: ByNode, Scope: scope}
			for _, p := range farm.AllPermissions(farm.ServiceRegistry) {
				if got := rules.Allows(who, p.Name); got != hasWord(strings.ReplaceAll(want, " ", ", "),
					string(p.Name)) {
					t.Errorf("%q: %s is %t", want, p.Name, got)
				}
			}
		}
	}
}

// TestUnordered: an agent that cannot name a purpose receives status 401 where another order might
// help, others 403.
func TestUnordered(t *testing.T) {
	for p, code := range map[farm.Permission]farm.Code{
		"pull_vm": farm.CodeUnauthenticated, "upload_file": farm.CodeUnauthenticated, "delete_vm": farm.CodeForbidden,
	} {
		if err := (Identity{Scope: NodeScope{Orders: true}}).MissingOrder(p, "x"); farm.CodeOf(err) != code {
			t.Errorf("%s: %v", p, err)
		}
		if err := (Identity{}).MissingOrder(p, "pull x"); farm.CodeOf(err) != farm.CodeForbidden ||
			!strings.Contains(err.Error(), string(p)) {
			t.Errorf("%s with a purpose: %v", p, err)
		}
	}
}

// TestHowFarAScopeReaches: a node may pull, look up and upload what its orders name, and nothing
// else.
func TestHowFarAScopeReaches(t *testing.T) {
	latest := ""
	s := NodeScope{
		Pull: []string{"abc"}, Logs: []string{"i1", ""},
		Save: []SaveScope{{ID: "s1", Template: "t1", Tag: "v2"}, {Template: "t2", Revert: &latest}},
	}
	for id, want := range map[string]bool{"abc": true, "ABC": true, "abcd": false, "t1": false, "": false} {
		if s.MayPull(id) != want {
			t.Errorf("pull %q: %t", id, !want)
		}
	}
	for of, want := range map[[2]string]bool{
		{"t1", "v2"}: true, {"T1", "v2"}: true, {"t1", "V2"}: false, {"t2", "v2"}: false, {"t2", ""}: false,
		{"abc", "v2"}: false,
	} {
		if s.MayLookUp(of[0], of[1]) != want {
			t.Errorf("look at %q: %t", of, !want)
		}
	}
	for path, want := range map[string]bool{
		"logs/i1/x": true, "logs/i1/": false, "logs/i1": false, "logs/i1/x/y": false, "logs/i2/x": false,
		"other/i1/x": false,
		"logs":       false, "": false, "/logs/i1/x": false,
	} {
		if s.MayUpload(path) != want {
			t.Errorf("upload %q: %t", path, !want)
		}
	}
	if save, ok := s.SaveOf("s1"); !ok || save.Template != "t1" || save.Reverts() || !s.Save[1].Reverts() {
		t.Errorf("%+v, %t", save, ok)
	}
	for _, id := range []string{"", "s2"} {
		if save, ok := s.SaveOf(id); ok || save.Template != "" {
			t.Errorf("save %q: %+v", id, save)
		}
	}
}

// TestRightsOfNodes: on templates a node has the right to pull what its orders name, whatever rules there are.
func TestRightsOfNodes(t *testing.T) {
	who := Identity{Name: "n", Method: ByNode, Scope: NodeScope{Pull: []string{"t1"}}}
	for _, policy := range []Policy{
		{Service: farm.ServiceRegistry},
		{Service: farm.ServiceRegistry, Tier: farm.TierEnterprisePlus, Authorization: true, Resources: true},
	} {
		rules := NewRules(policy, Grants{})
		for _, p := range farm.ResourcePermissions(farm.ResourceTemplate) {
			for _, id := range []string{"t1", "t2"} {
				if got := rules.AllowsOn(who, farm.ResourceTemplate,
					id, p.Name); got != (id == "t1" && p.Name == "pull") {
					t.Errorf("%s on %s: %t", p.Name, id, got)
				}
			}
		}
	}
	refusedWith(t, ForbiddenToNodes("start_vm"), farm.CodeForbidden, "which node tokens do not have")
	refusedWith(t, ForbiddenToNodes(farm.PermRoot), farm.CodeForbidden, "Only the root user")
}
