package auth

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// plus is a policy under which permissions count.
var plus = Policy{Service: farm.ServiceController, Tier: farm.TierEnterprisePlus, Authorization: true}

func group(t testing.TB, g Grants, s farm.Service, name string, list ...farm.Permission) Grants {
	t.Helper()
	g, err := g.SetGroup(s, name, list)
	must(t, err)
	return g
}

// saving is the scope of a node on which a save is under way.
var saving = NodeScope{Saves: []SaveScope{{ID: "s1", TemplateID: "t1", Tag: "v2", BaseTemplateID: "t0"}}}

// everybody has one caller of each kind, without any grants.
var everybody = map[string]Identity{
	"root":             root,
	"key":              {Name: "ci", KeyID: "ci", Groups: []string{"dev", "ops"}, Method: ByKey},
	"certificate":      {Name: "anna", Groups: []string{"dev"}, Method: ByCertificate},
	"oidc":             {Name: "otto", Method: ByOIDC},
	"node":             {Name: "n1", Method: ByNode, Scope: saving},
	"node with a key":  {Name: "n2", KeyID: "nodes", Groups: []string{"ng"}, Method: ByNode, Scope: saving},
	"idle node":        {Name: "n3", Method: ByNode},
	"local":            {Method: ByLocal},
	"local for a user": {Name: "anna", Groups: []string{"dev"}, Method: ByLocal},
	"nobody":           {},
}

// TestWhoMayWhat tries every caller with permissions that all, one or none have, under every
// policy.
func TestWhoMayWhat(t *testing.T) {
	const p = farm.Permission("push_vm") // of the registry; a save needs it
	const q = farm.Permission("delete_vm")
	reg := plus
	reg.Service = farm.ServiceRegistry
	for _, c := range []struct {
		name   string
		grants Grants
		who    string // who has p when permissions are enforced, in addition to those who always have
	}{
		{"nothing granted", Grants{}, ""},
		{"to a name", group(t, Grants{}, reg.Service, "ci", p, q), "key"},
		{"to the second group", group(t, Grants{}, reg.Service, "ops", p, q), "key"},
		{"to a group of several", group(t, Grants{}, reg.Service, "dev", p, q), "key, certificate, local for a user"},
		{"to the key of a node", group(t, Grants{}, reg.Service, "nodes", p, q), "node with a key"},
		{"to the group of a node", group(t, Grants{}, reg.Service, "ng", p, q), "node with a key"},
		{"to the id of a node", group(t, group(t, Grants{}, reg.Service, "n1", p, q), reg.Service, "n2", p, q), ""},
		{"something else", group(t, Grants{}, reg.Service, "dev", "list_vms"), ""},
	} {
		rules := NewRules(reg, c.grants)
		off := NewRules(Policy{Service: reg.Service, Tier: farm.TierEnterprisePlus}, c.grants)
		enterprise := NewRules(Policy{Service: reg.Service, Tier: farm.TierEnterprise, Authorization: true}, c.grants)
		for name, who := range everybody {
			always := name == "root" || name == "local"
			granted := c.who != "" && hasWord(c.who, name)
			wantP := always || name == "node" || granted
			wantQ := always || granted && who.Method != ByNode
			if got := rules.Allows(who, p); got != wantP {
				t.Errorf("%s: %s has %s: %t", c.name, name, p, got)
			}
			if got := rules.Allows(who, q); got != wantQ {
				t.Errorf("%s: %s has %s: %t", c.name, name, q, got)
			}
			for _, open := range []*Rules{off, enterprise} {
				wantP, wantQ := name != "nobody" && name != "idle node", name != "nobody" && who.Method != ByNode
				if open.Allows(who, p) != wantP || open.Allows(who, q) != wantQ {
					t.Errorf("%s: where permissions do not count, %s has %t and %t", c.name, name, open.Allows(who, p),
						open.Allows(who, q))
				}
			}
			for _, any := range []*Rules{rules, off, enterprise} {
				if any.Allows(who, farm.PermRoot) != who.Root || any.Allows(who, "unknown") != who.Root ||
					any.Allows(who, "") != who.Root {
					t.Errorf("%s has what is root's", name)
				}
			}
		}
	}
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ", ") {
		if w == word {
			return true
		}
	}
	return false
}

// TestEveryPermissionAlone grants each permission alone, and all but it.
func TestEveryPermissionAlone(t *testing.T) {
	who := everybody["key"]
	for _, s := range []farm.Service{farm.ServiceController, farm.ServiceRegistry} {
		p := plus
		p.Service = s
		all := farm.AllPermissions(s)
		for i, only := range all {
			var others []farm.Permission
			for j, o := range all {
				if j != i {
					others = append(others, o.Name)
				}
			}
			with, without := NewRules(p, group(t, Grants{}, s, "dev", only.Name)),
				NewRules(p, group(t, Grants{}, s, "dev", others...))
			for j, o := range all {
				if with.Allows(who, o.Name) != (i == j) || without.Allows(who, o.Name) != (i != j) {
					t.Errorf("%s: with only, or all but, %s: %s", s, only.Name, o.Name)
				}
			}
		}
	}
}

// TestLicensesNeverWiden walks through every change of tier, with a restart in between or
// not: once something was denied, it stays denied until permissions are switched off.
func TestLicensesNeverWiden(t *testing.T) {
	tiers := append([]farm.Tier{""}, farm.Tiers...)
	for _, first := range tiers {
		for _, second := range tiers {
			for _, third := range tiers {
				walk(t, first, second, third)
			}
		}
	}
	store := NewGrantTable(Grants{Enforced: true}, nil)
	off := plus
	off.Authorization = false
	must(t, NewAuthorizer(off, store).StoreEnforcement(t.Context()))
	if store.Grants().Enforced {
		t.Error("switching permissions off is not remembered")
	}
}

// walk changes the tier of one authorizer, and restarts another one before each change.
func walk(t *testing.T, tiers ...farm.Tier) {
	t.Helper()
	who, denied := everybody["key"], false
	stays, restarts := NewGrantTable(Grants{}, nil), NewGrantTable(Grants{}, nil)
	p := plus
	p.Tier = tiers[0]
	j := NewAuthorizer(p, stays) // nothing is kept
	for _, tier := range tiers {
		j.SetTier(tier)
		denied = denied || tier == farm.TierEnterprisePlus
		if j.Rules().Allows(who, "start_vm") == denied || j.Rules().Enforced() != denied {
			t.Fatalf("%q: denied %t at %q", tiers, denied, tier)
		}
		must(t, stays.Change(t.Context(), func(g Grants) (Grants, error) { return g, nil }))
		if j.Rules().Enforced() != denied {
			t.Fatalf("%q: a change of grants at %q", tiers, tier)
		}
		p.Tier = tier
		again := NewAuthorizer(p, restarts)
		must(t, again.StoreEnforcement(t.Context()))
		if again.Rules().Allows(who, "start_vm") == denied || restarts.Grants().Enforced != denied {
			t.Fatalf("%q: after a restart at %q", tiers, tier)
		}
	}
}

func onNode(t testing.TB, g Grants, name, id string, list ...farm.Permission) Grants {
	t.Helper()
	g, err := g.SetGroupResources(farm.ServiceController, name,
		[]farm.ResourcePermission{{ID: id, Type: farm.ResourceNode, Permissions: list}})
	must(t, err)
	return g
}

func TestRightsOnResources(t *testing.T) {
	g := onNode(t, onNode(t, Grants{}, "ops", "n1", "list", "remove"), "anna", "n2", "list")
	managed := plus
	managed.Resources = true
	on, off := NewRules(managed, g), NewRules(plus, g)
	if !on.Managed() || off.Managed() {
		t.Error("managed")
	}
	for name, who := range everybody {
		free := name == "root" || name == "local"
		for _, c := range []struct {
			id   string
			p    farm.Permission
			want bool
		}{
			{"n1", "list", free || name == "key"},
			{"n1", "remove", free || name == "key"},
			{"n1", "distribute", free},
			{"n2", "list", free || who.Name == "anna"},
			{"n2", "remove", free},
			{"n3", "list", free},
			{"n1", "unknown", name == "root"},
			{"n1", "list_vms", name == "root"},
		} {
			if got := on.AllowsOn(who, farm.ResourceNode, c.id, c.p); got != c.want {
				t.Errorf("%s has %s on %s: %t", name, c.p, c.id, got)
			}
		}
		if got := off.AllowsOn(who, farm.ResourceNode, "n1",
			"distribute"); got != (name != "nobody" && who.Method != ByNode) {
			t.Errorf("%s where such rights do not count: %t", name, got)
		}
		if on.AllowsOn(who, farm.ResourceTemplate, "n1", "list") != (name == "root") {
			t.Errorf("%s has a right that this service does not have", name)
		}
	}
	if !on.GroupAllowsOn("ops", farm.ResourceNode, "n1", "remove") ||
		on.GroupAllowsOn("ops", farm.ResourceNode, "n2", "list") ||
		on.GroupAllowsOn("dev", farm.ResourceNode, "n1", "list") ||
		!off.GroupAllowsOn("dev", farm.ResourceNode, "n1", "list") ||
		off.GroupAllowsOn("ops", farm.ResourceNode, "n1", "unknown") {
		t.Error("the rights of a group")
	}
	for name, want := range map[string]bool{
		"root": true, "key": true, "certificate": true, "oidc": false, "local": true, "nobody": false, "node": false,
	} {
		if everybody[name].MayActFor("dev") != want {
			t.Errorf("%s is in dev: %t", name, !want)
		}
	}
	if !everybody["oidc"].MayActFor("otto") || everybody["nobody"].MayActFor("x") ||
		everybody["nobody"].MayActFor("") ||
		everybody["root"].MayActFor("") {
		t.Error("a user is a group of one")
	}
}

func TestGrantsAreChecked(t *testing.T) {
	const c = farm.ServiceController
	long := strings.Repeat("x", 257)
	for words, do := range map[string]func() (Grants, error){
		"group: must be":           func() (Grants, error) { return Grants{}.SetGroup(c, "", nil) },
		"group: must be printable": func() (Grants, error) { return Grants{}.SetGroup(c, long, nil) },
		"group: the permissions of root cannot be changed": func() (Grants, error) {
			return Grants{}.SetGroup(c, "ROOT", nil)
		},
		`unknown permission "pull_vm"`: func() (Grants, error) {
			return Grants{}.SetGroup(c, "a", []farm.Permission{"pull_vm"})
		},
		`unknown permission "root"`: func() (Grants, error) {
			return Grants{}.SetGroup(c, "a", []farm.Permission{farm.PermRoot})
		},
		"id: must be the ID": func() (Grants, error) {
			return resources(farm.ResourcePermission{Type: "node"})
		},
		"id: must be the ID of": func() (Grants, error) {
			return resources(farm.ResourcePermission{ID: "a\n", Type: "node"})
		},
		"id: must be the ID of a": func() (Grants, error) {
			return resources(farm.ResourcePermission{ID: strings.Repeat("x", maxResourceID+1), Type: "node"})
		},
		"id_type: must be id": func() (Grants, error) {
			return resources(farm.ResourcePermission{ID: "a", IDType: "name", Type: "node"})
		},
		"type: unknown resource type: at the controller": func() (Grants, error) {
			return resources(farm.ResourcePermission{ID: "a", Type: "template"})
		},
		"id: resource a occurs twice": func() (Grants, error) {
			r := farm.ResourcePermission{ID: "a", Type: "node"}
			return resources(r, r)
		},
		`unknown permission "pull" on a node`: func() (Grants, error) {
			return resources(farm.ResourcePermission{ID: "a", Type: "node", Permissions: []farm.Permission{"pull"}})
		},
		"one permission group (10000) reached": func() (Grants, error) {
			return resources(make([]farm.ResourcePermission, MaxGroupResources+1)...)
		},
		"group: must be ": func() (Grants, error) { return Grants{}.SetGroupResources(c, " a", nil) },
	} {
		if g, err := do(); err == nil || !strings.Contains(err.Error(), words) || g.Groups != nil ||
			g.Resources != nil {
			t.Errorf("want ...%s..., got %v, %+v", words, err, g)
		}
	}
	g := group(t, Grants{}, c, "a", "list_vms", "list_vms")
	g = onNode(t, g, "a", "n1", "list", "list")
	if len(g.Groups["a"]) != 1 || len(g.Resources["a"][0].Permissions) != 1 || g.Resources["a"][0].IDType != "id" {
		t.Errorf("%+v", g)
	}
	must(t, g.Check(c))
	if err := g.Check(farm.ServiceRegistry); err == nil {
		t.Error("the grants of another service")
	}
	was := g
	g = group(t, g, c, "b", "start_vm")
	if _, changed := was.Groups["b"]; changed {
		t.Error("grants were changed in place")
	}
	gone, err := g.DeleteGroup("a")
	if err != nil || len(gone.Groups) != 1 || len(gone.Resources) != 0 || len(g.Groups) != 2 {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := gone.DeleteGroup("a"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Error(err)
	}
	for i := range MaxGrantGroups - 2 {
		g.Groups[fmt.Sprint(i)] = nil
	}
	_, err = g.SetGroup(c, "more", nil)
	refusedWith(t, err, farm.CodeRefused, "permission group limit (1000)")
	if _, err = g.SetGroup(c, "a", nil); err != nil {
		t.Error(err)
	}
}

func resources(list ...farm.ResourcePermission) (Grants, error) {
	return Grants{}.SetGroupResources(farm.ServiceController, "a", list)
}

func TestAllResourcesAreBounded(t *testing.T) {
	list := make([]farm.ResourcePermission, MaxGroupResources)
	for i := range list {
		list[i] = farm.ResourcePermission{ID: fmt.Sprint(i), Type: farm.ResourceNode}
	}
	var g Grants
	var err error
	for i := range MaxResources / MaxGroupResources {
		g, err = g.SetGroupResources(farm.ServiceController, fmt.Sprint(i), list)
		must(t, err)
	}
	_, err = g.SetGroupResources(farm.ServiceController, "more", list[:1])
	refusedWith(t, err, farm.CodeRefused, "(100000) reached")
	if _, err = g.SetGroupResources(farm.ServiceController, "0", list); err != nil {
		t.Error(err)
	}
}

func TestForbiddenNamesThePermission(t *testing.T) {
	refusedWith(t, Forbidden("start_vm"), farm.CodeForbidden, "the permission start_vm")
	refusedWith(t, Forbidden(farm.PermRoot), farm.CodeForbidden, "Only the root user")
	refusedWith(t, ForbiddenOn(farm.ResourceNode, "n1", "list"), farm.CodeForbidden, "list on the node n1")
}

// TestChangesApplyImmediately asks while grants change; the race detector watches.
func TestChangesApplyImmediately(t *testing.T) {
	store := NewGrantTable(Grants{}, nil)
	j := NewAuthorizer(plus, store)
	who := everybody["key"]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				j.Rules().Allows(who, "start_vm")
			}
		})
	}
	for i := range 100 {
		want := i%2 == 0
		must(t, store.Change(t.Context(), func(g Grants) (Grants, error) {
			if want {
				return g.SetGroup(plus.Service, "dev", []farm.Permission{"start_vm"})
			}
			return g.DeleteGroup("dev")
		}))
		if j.Rules().Allows(who, "start_vm") != want {
			t.Fatal("a change does not count")
		}
	}
	wg.Wait()
}

// TestGrantsThatAreNotSaved have not changed.
func TestGrantsThatAreNotSaved(t *testing.T) {
	errDisk := errors.New("disk full")
	store := NewGrantTable(Grants{}, func(Grants) error { return errDisk })
	told := 0
	store.Watch(func() { told++ })
	for _, err := range []error{errDisk, farm.NotFound()} {
		got := store.Change(t.Context(), func(g Grants) (Grants, error) {
			if !errors.Is(err, errDisk) {
				return g, err
			}
			return g.SetGroup(plus.Service, "dev", nil)
		})
		if !errors.Is(got, err) || store.Grants().Groups != nil || told != 0 {
			t.Errorf("%v, %+v, told %d", got, store.Grants(), told)
		}
	}
	if err := NewAuthorizer(plus, store).StoreEnforcement(t.Context()); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

// TestNothingIsAllocated: permissions are asked for in every request, and once a row of a list.
func TestNothingIsAllocated(t *testing.T) {
	managed := plus
	managed.Resources = true
	rules := NewRules(managed, onNode(t, group(t, Grants{}, plus.Service, "ops", "start_vm"), "ops", "n1", "list"))
	who := everybody["key"]
	if n := testing.AllocsPerRun(100, func() {
		if !rules.Allows(who, "start_vm") || !rules.AllowsOn(who, farm.ResourceNode, "n1", "list") {
			t.Error("denied")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestHolders: which groups have a right where, and that the watchers of the rules are notified of
// every change, of a license too.
func TestHolders(t *testing.T) {
	const upper, lower = "ABCD", "abcd"
	table := NewGrantTable(Grants{}, nil)
	judge := NewAuthorizer(Policy{
		Service: farm.ServiceController, Tier: farm.TierEnterprisePlus, Authorization: true,
		Resources: true,
	}, table)
	heard := 0
	var seen map[string][]string
	judge.Watch(func() {
		heard++
		seen = judge.Rules().Holders(farm.ResourceNode, "create_instance") // as it is after the change
	})
	grant := func(group, id string, rights ...farm.Permission) {
		must(t, table.Change(t.Context(), func(g Grants) (Grants, error) {
			return g.SetGroupResources(farm.ServiceController, group,
				[]farm.ResourcePermission{{ID: id, Type: farm.ResourceNode, Permissions: rights}})
		}))
	}
	grant("b", lower, "create_instance")
	grant("a", upper, "create_instance", "list")
	grant("c", lower, "list")
	if got := fmt.Sprint(seen); got != "map[abcd:[a b]]" || heard != 3 {
		t.Errorf("%s after %d changes", got, heard)
	}
	who := Identity{Name: "u", Groups: []string{"a"}, Method: ByKey}
	for _, id := range []string{upper, lower} {
		if r := judge.Rules(); !r.AllowsOn(who, farm.ResourceNode, id, "list") ||
			!r.GroupAllowsOn("a", farm.ResourceNode, id, "list") ||
			r.GroupAllowsOn("b", farm.ResourceNode, id, "list") {
			t.Errorf("rights on %s", id)
		}
	}
	if judge.SetTier(farm.TierBasic); heard != 4 || !judge.Rules().Managed() || fmt.Sprint(seen) != "map[abcd:[a b]]" {
		t.Errorf("after the licence: %v, %d", seen, heard)
	}
}

// TestGroupsWithRightsAreBounded, however few rights each has.
func TestGroupsWithRightsAreBounded(t *testing.T) {
	var g Grants
	list := []farm.ResourcePermission{{ID: "n1", Type: farm.ResourceNode}}
	for i := range MaxGrantGroups {
		if g.Resources = withKey(g.Resources, fmt.Sprint(i), list); i != MaxGrantGroups-2 {
			continue
		}
		if _, err := g.SetGroupResources(farm.ServiceController, "the last", list); err != nil {
			t.Error(err)
		}
	}
	_, err := g.SetGroupResources(farm.ServiceController, "more", list)
	refusedWith(t, err, farm.CodeRefused, "limit of permission groups with resource rights (1000)")
	if _, err = g.SetGroupResources(farm.ServiceController, "0", list); err != nil {
		t.Error(err)
	}
}

// TestRightsEndWithTheirResource, in whatever case its id was granted.
func TestRightsEndWithTheirResource(t *testing.T) {
	g := Grants{Resources: map[string][]farm.ResourcePermission{
		"a": {{ID: "T1", Type: farm.ResourceTemplate}, {ID: "t2", Type: farm.ResourceTemplate}},
		"b": {{ID: "t1", Type: farm.ResourceNode}},
	}}
	left, changed := g.WithoutResources(farm.ResourceTemplate, []string{"t1", "t3"})
	if !changed || len(left.Resources["a"]) != 1 || left.Resources["a"][0].ID != "t2" || len(left.Resources["b"]) != 1 {
		t.Errorf("changed %t, left %+v", changed, left.Resources)
	}
	if len(g.Resources["a"]) != 2 {
		t.Error("grants were changed in place")
	}
	if _, changed = g.WithoutResources(farm.ResourceTemplate, []string{"t3"}); changed {
		t.Error("nothing was there, and something changed")
	}
}

// TestLatch: that permissions have counted is to be stored when it is new, and when they are switched off.
func TestLatch(t *testing.T) {
	basic, off := plus, plus
	basic.Tier, off.Authorization = farm.TierBasic, false
	for name, c := range map[string]struct {
		policy            Policy
		was, now, changed bool
	}{
		"they count":            {plus, false, true, true},
		"they still count":      {plus, true, true, false},
		"the licence has ended": {basic, true, true, false},
		"the tier has them not": {basic, false, false, false},
		"they are switched off": {off, true, false, true},
		"they have been off":    {off, false, false, false},
	} {
		if g, changed := c.policy.Latch(Grants{Enforced: c.was}); g.Enforced != c.now || changed != c.changed {
			t.Errorf("%s: %t, to be stored %t", name, g.Enforced, changed)
		}
	}
}
