package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestRegistryTokensCarryTheirScope, of whatever size that is.
func TestRegistryTokensCarryTheirScope(t *testing.T) {
	w := newWorld(t)
	passes := NewRegistryTokens(w.signer, nil)
	name := strings.Repeat(`"<`, 127)
	revert := name + "r"
	save := SaveScope{ID: strings.Repeat("i", 36), TemplateID: strings.Repeat("t",
		36), Name: name, Tag: name, RevertTag: &revert, BaseTemplateID: strings.Repeat("b", 36)}
	value, _ := passes.Issue("node-1", strings.Repeat("k", MaxKeyID), NodeScope{Saves: []SaveScope{save}})
	who, err := passes.Verify(value)
	if err != nil || len(who.Scope.Saves) != 1 || who.Scope.Saves[0].Tag != name ||
		*who.Scope.Saves[0].RevertTag != revert {
		t.Fatalf("the largest save: %+v, %v", who.Scope, err)
	}
	var all NodeScope
	for i := range 300 {
		id := fmt.Sprintf("%036d", i)
		all.PullTemplates, all.LogInstances = append(all.PullTemplates, id), append(all.LogInstances, id)
	}
	all.Saves, all.LogRows, all.Orders = []SaveScope{{ID: "s", Tag: "v"}}, &LogRowScope{Machine: "m", Host: "h"}, true
	value, _ = passes.Issue("node-1", "", all)
	if who, err = passes.Verify(value); err != nil {
		t.Fatal(err)
	}
	got := who.Scope
	if len(got.Saves) != 1 || *got.LogRows != *all.LogRows || !got.Orders || len(got.LogInstances) > 0 ||
		len(got.PullTemplates) < 40 ||
		got.PullTemplates[0] != all.PullTemplates[0] {
		t.Errorf("of 300 instances: %d saves, %d pulls, %d logs, %+v", len(got.Saves), len(got.PullTemplates),
			len(got.LogInstances),
			got.LogRows)
	}
	if len(all.PullTemplates) != 300 || len(all.LogInstances) != 300 {
		t.Error("the scope that was given was changed")
	}
}

// TestScopeOfTheReleaseBefore: a token without a scope permits nothing, and its agent requests another one.
func TestScopeOfTheReleaseBefore(t *testing.T) {
	w := newWorld(t)
	who, err := NewRegistryTokens(w.signer, nil).Verify(registryTokenPrefix +
		w.signer.Sign(registryTokenPurpose, []byte(`{"n":"node-1"}`)))
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
			"pull_vm download_vm":          {PullTemplates: []string{"t"}},
			"head_push_vm push_vm pull_vm": {Saves: []SaveScope{{ID: "s"}}},
			"upload_file":                  {LogInstances: []string{"i"}},
			"send_log":                     {LogRows: &LogRowScope{}},
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
		PullTemplates: []string{"abc"}, LogInstances: []string{"i1", ""},
		Saves: []SaveScope{{ID: "s1", TemplateID: "t1", Tag: "v2"}, {TemplateID: "t2", RevertTag: &latest}},
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
	if save, ok := s.FindSave("s1"); !ok || save.TemplateID != "t1" || save.Reverts() || !s.Saves[1].Reverts() {
		t.Errorf("%+v, %t", save, ok)
	}
	for _, id := range []string{"", "s2"} {
		if save, ok := s.FindSave(id); ok || save.TemplateID != "" {
			t.Errorf("save %q: %+v", id, save)
		}
	}
}

// TestRightsOfNodes: on templates a node has the right to pull what its orders name, whatever rules there are.
func TestRightsOfNodes(t *testing.T) {
	who := Identity{Name: "n", Method: ByNode, Scope: NodeScope{PullTemplates: []string{"t1"}}}
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
	refusedWith(t, ForbiddenToNodes("start_vm"), farm.CodeForbidden, "which registry tokens do not have")
	refusedWith(t, ForbiddenToNodes(farm.PermRoot), farm.CodeForbidden, "Only the root user")
}
