package controllerrest_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
)

// open is the node that the group ci may list and start on, seen one that it may only list, and hidden one that
// it cannot see.
type managed struct {
	*cloud
	open, seen, hidden api.JoinAnswer
	grants             *auth.GrantTable
	judge              *auth.Authorizer
	sessions           map[string]string
	templates          map[string][]string // rights of callers at the registry
}

// opened are permits by rules, as the program has them.
type opened struct{ judge *auth.Authorizer }

func (o opened) Starters() map[string][]string {
	return o.judge.Rules().Holders(farm.ResourceNode, "create_instance")
}

func (o opened) Watch(changed func()) { o.judge.Watch(changed) }

// newManaged opens a cloud where rights on single nodes count, with a key ann of the group ci,
// which has every permission but those.
func newManaged(t *testing.T) *managed {
	t.Helper()
	root, err := auth.NewRootToken(guardToken)
	if err != nil {
		t.Fatal(err)
	}
	m := &managed{
		sessions: map[string]string{}, templates: map[string][]string{templateID: {"list", "pull", "save_image"}},
	}
	m.grants = auth.NewGrantTable(auth.Grants{}, nil)
	m.judge = auth.NewAuthorizer(auth.Policy{
		Service: farm.ServiceController, Tier: farm.TierEnterprisePlus, Authorization: true, Resources: true,
	}, m.grants)
	key := farm.APIKey{ID: "ann", Generation: "g", Groups: []string{"ci"}, Expires: time.Now().Add(time.Hour)}
	sessions := auth.NewSessions(auth.NewAPIKeys(auth.NewKeyTable([]farm.APIKey{key}, nil)),
		auth.NewSigner(auth.NewKeyRing(time.Now())), 0)
	options := controller.Options{
		Events: events.Options{Machine: "host", Push: nobody{}}, Permits: opened{m.judge},
		Rights: func(ctx context.Context, _ string) (*api.CallerRights, error) {
			if rest.CallerOf(ctx).Unlimited() {
				return nil, nil // everything
			}
			return &api.CallerRights{
				Enforced: true, Managed: true,
				Permissions: []string{"list_vms", "revert", "delete_vm"}, Templates: m.templates,
			}, nil
		},
	}
	m.cloud = newCloudWith(t, options, func(o *controllerrest.Options) {
		o.Guard, err = rest.NewGuard(rest.GuardOptions{
			Identifier: &auth.Authenticator{Root: root, Sessions: sessions}, Authorizer: m.judge, Logger: o.Logger,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	raw, err := json.Marshal(sessions.Issue(key))
	if err != nil {
		t.Fatal(err)
	}
	m.sessions["ann"] = "Bearer " + base64.StdEncoding.EncodeToString(raw)
	m.sessions["root"] = "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+guardToken))
	m.open, m.seen, m.hidden = m.memberNode("open"), m.memberNode("seen"), m.memberNode("hidden")
	for _, n := range []api.JoinAnswer{m.open, m.seen, m.hidden} {
		info := &api.NodeInfo{
			Arch: "amd64", Driver: "sim", VLANs: []int{7},
			Templates: []api.NodeTemplate{{ID: templateID, Name: "base", Tag: "v1+x"}},
		}
		if n == m.hidden {
			info.VLANs, info.USB = []int{8}, []api.USBDevice{{Name: "phone", Location: "1-1"}}
		}
		m.polled(n, info, 0)
	}
	m.grant("ci", "")
	return m
}

// grant sets every permission of a group, the right to list nodes, and one more right on the open node; "":
// only create_instance.
func (m *managed) grant(group string, more farm.Permission) {
	m.t.Helper()
	var all []farm.Permission
	for _, p := range farm.AllPermissions(farm.ServiceController) {
		all = append(all, p.Name)
	}
	rights := []farm.Permission{"list", "create_instance"}
	if more != "" {
		rights = append(rights, more)
	}
	err := m.grants.Change(m.t.Context(), func(g auth.Grants) (auth.Grants, error) {
		g, err := g.SetGroup(farm.ServiceController, group, all)
		if err != nil {
			return g, err
		}
		return g.SetGroupResources(farm.ServiceController, group, []farm.ResourcePermission{
			{ID: strings.ToUpper(m.open.NodeID), Type: farm.ResourceNode, Permissions: rights},
			{ID: m.seen.NodeID, Type: farm.ResourceNode, Permissions: []farm.Permission{"list"}},
		})
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// as makes a request as a user: their code and message, with the names of nodes for their ids.
func (m *managed) as(who, request, body string) (answer, string) {
	m.t.Helper()
	ids := strings.NewReplacer("OPEN", m.open.NodeID, "SEEN", m.seen.NodeID, "HIDDEN", m.hidden.NodeID, "TEMPLATE",
		templateID)
	method, path, _ := strings.Cut(request, " ")
	a := m.call(method, ids.Replace(path), ids.Replace(body), "Authorization", m.sessions[who])
	message := strings.NewReplacer(m.open.NodeID, "OPEN", m.seen.NodeID, "SEEN", m.hidden.NodeID, "HIDDEN", templateID,
		"TEMPLATE").Replace(a.Message)
	return a, fmt.Sprintf("%d %s", a.code, message)
}

const (
	hidden      = "200 Not found"
	needs       = "403 You need the permission %s on the node %s"
	groupNeeds  = "403 The permission group ci needs the permission %s on the node %s"
	distributes = `{"template_id":"TEMPLATE","group":"ci","node_ids":[`
)

// TestRightsOnNodes: each route for a node requires its right on that node, and a node that may not be listed
// is not found.
func TestRightsOnNodes(t *testing.T) {
	m := newManaged(t)
	for _, c := range []struct {
		request, body string // NODE is replaced by the node
		right         farm.Permission
		group         bool   // it is the permission group that needs it
		done          string // when all is well, after what has no right
	}{
		{"POST /api/v1/node/config", `{"node_id":"NODE","max_vm_count":3}`, "change_config", false, "200 "},
		{"POST /api/v1/node/group", `{"node_ids":["NODE"],"group_ids":["x"]}`, "change_config", false, "200 Not found"},
		{
			"DELETE /api/v1/node/group", `{"node_ids":["NODE"],"group_ids":["x"]}`, "change_config", false,
			"200 Not found",
		},
		{"POST /api/v1/node/adopt", `{"node":"NODE","action":"keep"}`, "change_config", false, "200 "},
		{
			"PUT /api/v1/node/update", `{"node_ids":["NODE"]}`, "force_upgrade", false,
			"200 Agent of node open cannot be updated. This controller has no agent packages",
		},
		{"DELETE /api/v1/registry/vm/remove?id=TEMPLATE", `{"node_ids":["NODE"]}`, "delete_template", false, "200 "},
		{"POST /api/v1/registry/vm/distribute", distributes + `"NODE"]}`, "distribute", true, "200 "},
		{"POST /api/v1/vm", `{"vmid":"TEMPLATE","group":"ci","node_id":"NODE"}`, "create_instance", true, "200 "},
		{"DELETE /api/v1/node", `{"node_id":"NODE"}`, "remove", false, "200 "},
	} {
		on := func(node string) string {
			_, got := m.as("ann", c.request, strings.ReplaceAll(c.body, "NODE", node))
			return got
		}
		refusal := needs
		if c.group {
			refusal = groupNeeds
		}
		m.grant("ci", "")
		want := map[string]string{"HIDDEN": hidden, "SEEN": fmt.Sprintf(refusal, c.right,
			"SEEN"), "OPEN": fmt.Sprintf(refusal, c.right, "OPEN"), "00000000-0000-4000-8000-00000000000f": hidden}
		if c.right == "create_instance" {
			delete(want, "OPEN")
		}
		for node, want := range want {
			if want == hidden && c.right == "create_instance" { // a start names a missing node
				want = "200 Node " + node + " not found"
			}
			if got := on(node); got != want {
				t.Errorf("%s %s, %s: %s, want %s", c.request, c.body, node, got, want)
			}
		}
		m.grant("ci", c.right)
		if got := on("OPEN"); got != c.done {
			t.Errorf("%s %s with the right: %s, want %s", c.request, c.body, got, c.done)
		}
	}
}

// TestNodesShown: lists have what may be listed, and no answer counts or names the rest.
func TestNodesShown(t *testing.T) {
	m := newManaged(t)
	var nodes []api.Node
	list := func(who, query string) (names []string) {
		a, _ := m.as(who, "GET /api/v1/node"+query, "")
		nodes = nil
		a.into(t, &nodes)
		for _, n := range nodes {
			names = append(names, n.NodeName)
		}
		slices.Sort(names)
		return names
	}
	for query, want := range map[string]string{
		"": "[open seen]", "?filter=name%3Dhidden": "[]", "?id=SEEN": "[seen]", "?limit=3": "[open seen]",
	} {
		if got := fmt.Sprint(list("ann", query)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := fmt.Sprint(list("root", "")); got != "[hidden open seen]" {
		t.Errorf("root sees %s", got)
	}
	a := m.call("GET", "/api/v1/node", "", "Authorization", m.sessions["root"], rest.UserHeader, "ben",
		rest.GroupHeader, "ci")
	if a.into(t, &nodes); len(nodes) != 2 { // root for a user sees what the user sees
		t.Errorf("root for a user: %d nodes", len(nodes))
	}
	list("ann", "?id=OPEN")
	if len(nodes[0].Templates) != 1 {
		t.Errorf("templates of a node: %v", nodes[0].Templates)
	}
	m.templates = map[string][]string{templateID: {"pull"}}
	if list("ann", "?id=OPEN"); len(nodes[0].Templates) != 0 {
		t.Errorf("templates that may not be listed: %v", nodes[0].Templates)
	}
	if _, got := m.as("ann", "GET /api/v1/node?id=HIDDEN", ""); got != hidden {
		t.Errorf("a hidden node: %s", got)
	}
	for path, want := range map[string]string{
		"/api/v1/vlan": `[]`, "/api/v1/usb": `{"phone":{"available":1,"busy":0}}`,
	} {
		if a, _ := m.as("root", "GET "+path, ""); string(a.Body) != want {
			t.Errorf("root, %s: %s %s", path, a.Message, a.Body)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/vlan": `["7"]`, "/api/v1/node/adopt?node=hidden": "[]",
		"/api/v1/node/adopt?node=nobody": "[]", "/api/v1/usb": "{}",
	} {
		if a, _ := m.as("ann", "GET "+path, ""); a.Status != "OK" || string(a.Body) != want {
			t.Errorf("%s: %s %s", path, a.Message, a.Body)
		}
	}
}

// TestActingGroups: where resource rights apply, a caller that starts or distributes names the group that it
// acts for.
func TestActingGroups(t *testing.T) {
	m := newManaged(t)
	m.grant("ci", "distribute")
	for _, path := range []string{"POST /api/v1/vm", "POST /api/v1/registry/vm/distribute"} {
		for fields, want := range map[string]string{
			``: "400 group: is required: the name of the permission group for which the " +
				"request is made",
			`,"group":""`: "400 group: is required: the name of the permission group for which the " +
				"request is made",
			`,"group":"ci","group_id":"x"`: "400 group_id: cannot be used while resource rights " +
				"are enforced; use group",
			`,"group":"ops"`: "403 You are not a member of the permission group ops",
			`,"group":"ci"`:  "200 ",
		} {
			if _, got := m.as("ann", path, `{"vmid":"TEMPLATE","template_id":"TEMPLATE"`+fields+`}`); got != want {
				t.Errorf("%s %s: %s, want %s", path, fields, got, want)
			}
		}
	}
	if _, got := m.as("root", "POST /api/v1/vm", `{"vmid":"TEMPLATE"}`); !strings.HasPrefix(got,
		"400 group: is required") {
		t.Errorf("root without a group: %s", got)
	}
	m.templates = nil
	if _, got := m.as("ann", "POST /api/v1/vm",
		`{"vmid":"TEMPLATE","group":"ci"}`); got != "200 VM not in the registry" {
		t.Errorf("a hidden template: %s", got)
	}
	if _, got := m.as("root", "POST /api/v1/vm", `{"vmid":"TEMPLATE","group":"ci"}`); got != "200 " {
		t.Errorf("root: %s", got)
	}
}

// soon waits until an asynchronous effect is visible, or a long timeout.
func soon(is func() bool) {
	for end := time.Now().Add(time.Minute); !is() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// TestStartsFollowTheRights: instances go to nodes that are open to their group, and the reasons
// of waiting name no others.
func TestStartsFollowTheRights(t *testing.T) {
	m := newManaged(t)
	start := func() string {
		a, _ := m.as("ann", "POST /api/v1/vm", `{"vmid":"TEMPLATE","group":"ci"}`)
		var ids []string
		a.into(t, &ids)
		return ids[0]
	}
	var vm struct {
		NodeID  string          `json:"node_id"`
		GroupID *string         `json:"group_id"`
		Message string          `json:"message"`
		Explain api.Explanation `json:"explain"`
	}
	show := func(id string) {
		a, _ := m.as("ann", "GET /api/v1/vm?explain=1&id="+id, "")
		a.into(t, &vm)
	}
	for range 2 { // as many as the node has capacity for
		id := start()
		soon(func() bool { show(id); return vm.NodeID != "" })
		if vm.NodeID != m.open.NodeID || vm.GroupID == nil || *vm.GroupID != "" {
			t.Errorf("placed on %q in group %v", vm.NodeID, vm.GroupID)
		}
		vm.NodeID = ""
	}
	waits := start()
	soon(func() bool { show(waits); return vm.Message != "" })
	if vm.Message != "no node that is open to the permission group ci has a free slot (1 node: 1 full)" ||
		len(vm.Explain.Nodes) != 2 {
		t.Errorf("waits because %q; %+v", vm.Message, vm.Explain)
	}
	for _, n := range vm.Explain.Nodes {
		if n.NodeName == "seen" && n.Reason != "is not open to the permission group ci" {
			t.Errorf("%+v", n)
		}
	}
	if err := m.grants.Change(t.Context(),
		func(g auth.Grants) (auth.Grants, error) { return g.DeleteGroup("ci") }); err != nil {
		t.Fatal(err)
	}
	soon(func() bool {
		inst, err := m.Instances.Get(t.Context(), waits)
		return err != nil || inst.Message != vm.Message
	})
	if inst, err := m.Instances.Get(t.Context(), waits); err != nil ||
		inst.Message != "no node is open to the permission group ci" {
		t.Errorf("after the change: %q, %v", inst.Message, err)
	}
	for tier := range map[farm.Tier]bool{farm.TierBasic: true, farm.TierEnterprise: true} { // a license opens nothing
		m.judge.SetTier(tier)
		if inst, _ := m.Instances.Get(t.Context(), waits); !inst.AwaitsPlacement() {
			t.Errorf("%s: placed on %s", tier, inst.NodeName)
		}
	}
}

// TestHoldersFollowTheRights: the holders of slots are named only to callers that may list their instances.
func TestHoldersFollowTheRights(t *testing.T) {
	m := newManaged(t)
	names := func() (names []string) {
		var list []api.Node
		soon(func() bool {
			a, _ := m.as("ann", "GET /api/v1/node?id="+m.open.NodeID, "")
			a.into(t, &list)
			return len(list) == 1 && len(list[0].Slots.Holders) == 1
		})
		for _, h := range list[0].Slots.Holders {
			names = append(names, h.Use, h.Name)
		}
		return names
	}
	m.as("ann", "POST /api/v1/vm", `{"vmid":"TEMPLATE","group":"ci","name":"build-7"}`)
	if got := names(); !slices.Equal(got, []string{"other", "build-7"}) {
		t.Errorf("the holders are %q", got)
	}
	m.templates = map[string][]string{}
	if got := names(); !slices.Equal(got, []string{"other", ""}) {
		t.Errorf("without the right to list the template the holders are %q", got)
	}
}

// TestOrphanedHoldersFollowTheRights: an orphaned VM that holds a slot is named only to callers that may list those.
func TestOrphanedHoldersFollowTheRights(t *testing.T) {
	m := newManaged(t)
	const vm = "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22"
	if _, err := m.Link.Poll(t.Context(), m.open.Credential, api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: m.open.NodeID, BootID: "boot", InfoHash: "i", HeldHash: "held",
		HasHeld: true, Held: []api.InventoryItem{{InstanceID: vm, Claim: "c", VMID: vm}},
	}, 0); err != nil {
		t.Fatal(err)
	}
	holder := func() api.SlotHolder {
		var list []api.Node
		a, _ := m.as("ann", "GET /api/v1/node?id="+m.open.NodeID, "")
		a.into(t, &list)
		if len(list) != 1 || len(list[0].Slots.Holders) != 1 {
			t.Fatalf("nodes: %+v", list)
		}
		return list[0].Slots.Holders[0]
	}
	if h := holder(); h.Use != api.SlotOrphaned || h.InstanceID != vm || h.VMID != vm {
		t.Errorf("the holder is %+v", h)
	}
	err := m.grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
		return g.SetGroup(farm.ServiceController, "ci", []farm.Permission{"list_nodes", "list_vms"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if h := holder(); h.Use != api.SlotOrphaned || h.InstanceID+h.VMID+h.Name != "" || h.Since.IsZero() {
		t.Errorf("without change_node_config the holder is %+v", h)
	}
}

// TestStatisticsNeedTheListPermission: statistics name groups, nodes, owners and templates only to callers that may
// list those.
func TestStatisticsNeedTheListPermission(t *testing.T) {
	m := newManaged(t)
	const at = "GET /api/v1/stats/"
	for query, permission := range map[string]farm.Permission{
		"series": "", "series?by=group": "get_groups", "series?by=node&node_id=OPEN": "list_nodes",
		"series?node_id=OPEN": "list_nodes", "usage": "get_groups", "usage?by=group": "get_groups",
		"usage?by=owner": "list_vms", "usage?by=template": "registry_list",
	} {
		for _, more := range []farm.Permission{"", permission} {
			err := m.grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
				return g.SetGroup(farm.ServiceController, "ci",
					[]farm.Permission{"view_logs", cmp.Or(more, "view_logs")})
			})
			if err != nil {
				t.Fatal(err)
			}
			want := "200 "
			if more != permission {
				want = "403 You need the permission " + string(permission)
			}
			if _, got := m.as("ann", at+query, ""); got != want {
				t.Errorf("%s with %q: %s, want %s", query, more, got, want)
			}
		}
	}
}

// TestCacheJobsFollowTheRights: all nodes means those with the right, and of other callers' requests only nodes
// that may be listed are shown.
func TestCacheJobsFollowTheRights(t *testing.T) {
	m := newManaged(t)
	const at = "/api/v1/registry/vm/distribute"
	if _, got := m.as("ann", "POST "+at, distributes+`]}`); got != "200 no node matches the request to distribute" {
		t.Errorf("without rights: %s", got)
	}
	m.grant("ci", "distribute")
	ask := func(who, body string) string {
		a, _ := m.as(who, "POST "+at, body)
		var made api.DistributeAnswer
		a.into(t, &made)
		return made.RequestID
	}
	nodes := func(who, id string) []string {
		a, _ := m.as(who, "GET "+at+"?id="+id, "")
		var d api.Distribution
		a.into(t, &d)
		names := []string{}
		for id := range d.Status {
			names = append(names,
				map[string]string{m.open.NodeID: "open", m.seen.NodeID: "seen", m.hidden.NodeID: "hidden"}[id])
		}
		slices.Sort(names)
		return names
	}
	own := ask("ann", `{"template_id":"TEMPLATE","group":"ci"}`)
	if got := fmt.Sprint(nodes("root", own)); got != "[open]" {
		t.Errorf("distributed to %s", got)
	}
	if err := m.grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
		return g.SetGroupResources(farm.ServiceController, "ops", []farm.ResourcePermission{
			{ID: m.hidden.NodeID, Type: farm.ResourceNode, Permissions: []farm.Permission{"distribute"}},
			{ID: m.seen.NodeID, Type: farm.ResourceNode, Permissions: []farm.Permission{"distribute"}},
		})
	}); err != nil {
		t.Fatal(err)
	}
	others := ask("root", `{"template_id":"TEMPLATE","group":"ops"}`)
	if got := fmt.Sprint(nodes("ann", others), nodes("root", others)); got != "[seen] [hidden seen]" {
		t.Errorf("shown are %s", got)
	}
	for query, want := range map[string]int{
		"?filter=node%3DHIDDEN": 0, "?filter=node%3DSEEN": 1, "?filter=nodes%3E1": 0, "": 2,
	} {
		var list []api.Distribution
		a, _ := m.as("ann", "GET "+at+query, "")
		if a.into(t, &list); len(list) != want {
			t.Errorf("%s: %d, want %d", query, len(list), want)
		}
	}
	if _, got := m.as("ann", "DELETE "+at+"?id="+others, ""); got != fmt.Sprintf(needs, "distribute", "SEEN") &&
		got != hidden {
		t.Errorf("cancelled another group's: %s", got)
	}
	if _, got := m.as("ann", "DELETE "+at+"?id="+own, ""); got != "200 " {
		t.Errorf("cancelled the own one: %s", got)
	}
	var removed api.RemoveAnswer
	m.grant("ci", "delete_template")
	a, _ := m.as("ann", "DELETE /api/v1/registry/vm/remove?id=TEMPLATE", "")
	if a.into(t, &removed); !slices.Equal(removed.NodeIDs, []string{m.open.NodeID}) {
		t.Errorf("removed from %v", removed.NodeIDs)
	}
}

// TestEventsFollowTheRights: events of a node are visible to callers that may list it.
func TestEventsFollowTheRights(t *testing.T) {
	m := newManaged(t)
	for _, n := range []string{"SEEN", "HIDDEN"} {
		if _, got := m.as("root", "POST /api/v1/node/config", `{"node_id":"`+n+`","max_vm_count":3}`); got != "200 " {
			t.Fatal(got)
		}
	}
	nodes := func(who, query string) (ids []string) {
		a, _ := m.as(who, "GET /api/v1/events"+query, "")
		var list []struct {
			Node string `json:"node_id"`
		}
		a.into(t, &list)
		for _, e := range list {
			ids = append(ids, e.Node)
		}
		return ids
	}
	soon(func() bool { return len(nodes("root", "")) == 2 })
	for query, want := range map[string][]string{
		"": {m.seen.NodeID}, "?filter=node%3Dhidden": nil, "?filter=node%3Dseen": {m.seen.NodeID},
	} {
		if got := nodes("ann", query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if got := nodes("root", ""); len(got) != 2 {
		t.Errorf("root: %v", got)
	}
}

// TestGroupIsUnknownWithoutManagement: without resource rights the parameter is ignored, and a start refuses
// it.
func TestGroupIsUnknownWithoutManagement(t *testing.T) {
	c, sessions := newGuarded(t, "ann")
	for path, id := range map[string]string{"/api/v1/vm": "vmid", distributePath: "template_id"} {
		a := c.call("POST", path, `{"`+id+`":"`+templateID+`","group":"ci"}`, "Authorization", sessions["ann"])
		if a.code != 200 || a.Status != "FAIL" || !strings.Contains(a.Message, "SVC_ENABLE_RESOURCE_MANAGEMENT") {
			t.Errorf("%s: %d %s", path, a.code, a.Message)
		}
	}
}

// TestOwnRights: a caller learns its rights, here, with nodes and at the registry with a template. Objects that
// it may not list look like missing ones.
func TestOwnRights(t *testing.T) {
	m := newManaged(t)
	var got api.Rights
	ask := func(who string) {
		t.Helper()
		a, _ := m.as(who,
			"GET /api/v1/rights?nodes=OPEN,SEEN,HIDDEN,00000000-0000-4000-8000-00000000000f&template=TEMPLATE", "")
		got = api.Rights{}
		a.into(t, &got)
	}
	ask("ann")
	if got.Root || !got.Enforced || !got.Managed || fmt.Sprint(got.Groups) != "[ann ci]" ||
		!slices.Contains(got.Permissions, "start_vm") {
		t.Errorf("%+v", got)
	}
	want := map[string][]string{m.open.NodeID: {"list", "create_instance"}, m.seen.NodeID: {"list"}}
	for id, rights := range got.Nodes {
		slices.Sort(rights)
		slices.Sort(want[id])
		if !slices.Equal(rights, want[id]) {
			t.Errorf("%s: %v", id, rights)
		}
	}
	if len(got.Nodes) != len(want) || got.Registry == nil || !got.Registry.On(templateID, "pull") ||
		got.Registry.On(templateID, "delete_revert") {
		t.Errorf("%+v, %+v", got.Nodes, got.Registry)
	}
	if ask("root"); !got.Root || got.Registry != nil || len(got.Groups) != 0 {
		t.Errorf("root: %+v", got)
	}
	if _, said := m.as("ann", "GET /api/v1/rights?nodes="+strings.Repeat("x,", 1001), ""); !strings.HasPrefix(said,
		"400 nodes: must name at most") {
		t.Error(said)
	}
}
