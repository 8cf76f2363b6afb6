package controllerrest_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
)

const guardToken = "a long root token"

// newGuarded opens a cloud with authentication, and returns the session header of each given key.
func newGuarded(t *testing.T, ids ...string) (c *cloud, sessions map[string]string) {
	t.Helper()
	root, err := auth.NewRootToken(guardToken)
	if err != nil {
		t.Fatal(err)
	}
	var keys []farm.APIKey
	for _, id := range ids {
		keys = append(keys, farm.APIKey{ID: id, Generation: "g", Expires: time.Now().Add(time.Hour)})
	}
	open := auth.NewSessions(auth.NewAPIKeys(auth.NewKeyTable(keys, nil)), auth.NewSigner(auth.NewKeyRing(time.Now())),
		0)
	grants := auth.NewGrantTable(auth.Grants{}, nil)
	c = newCloudWith(t, controller.Options{}, func(o *controllerrest.Options) {
		o.Guard, err = rest.NewGuard(rest.GuardOptions{
			Identifier: &auth.Authenticator{Root: root, Sessions: open}, Logger: o.Logger,
			Authorizer: auth.NewAuthorizer(auth.Policy{Service: farm.ServiceController, Tier: farm.TierEnterprisePlus},
				grants),
		})
		if err != nil {
			t.Fatal(err)
		}
		o.AuthRoutes = authrest.Routes(authrest.Options{Service: farm.ServiceController, Grants: grants})
	})
	sessions = map[string]string{"root": "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+guardToken))}
	for _, k := range keys {
		raw, err := json.Marshal(open.Issue(k))
		if err != nil {
			t.Fatal(err)
		}
		sessions[k.ID] = "Bearer " + base64.StdEncoding.EncodeToString(raw)
	}
	return c, sessions
}

// TestRoutesWithoutCredential calls every route without a credential, and with an invalid node credential.
func TestRoutesWithoutCredential(t *testing.T) {
	c, sessions := newGuarded(t)
	// First: the address is limited after the wrong guesses below.
	if a := c.call("GET", "/admin/api/v1/permission/group", "", "Authorization", sessions["root"]); a.code != 200 {
		t.Errorf("routes of authentication: %d %s", a.code, a.Message)
	}
	if a := c.call("GET", "/pkg/manifest", "", "Authorization", sessions["root"]); a.code != 200 {
		t.Errorf("packages for root: %d %s", a.code, a.Message)
	}
	open := map[string]bool{"GET /livez": true, "GET /readyz": true}
	for _, r := range controllerrest.Routes() {
		method, path, _ := strings.Cut(
			strings.NewReplacer("{name}", "x", "{path...}", "x", "{$}", "").Replace(r.Pattern), " ")
		for name, header := range map[string][]string{
			"none": nil, "wrong": {"Authorization", "Bearer x"}, "guess": {"Authorization", "Basic cm9vdDp4"},
		} {
			a := c.call(method, path, `{"protocol":1,"node_id":"x","nodes":[]}`, header...)
			if want := !open[r.Pattern]; want != (a.code == 401 || a.code == 429) || want && a.Status != "FAIL" {
				t.Errorf("%s, %s: %d %s", r.Pattern, name, a.code, a.Message)
			}
		}
	}
}

// TestNodesKeepTheirWay: the node API authenticates nodes by their own credentials, with or without a guard.
func TestNodesKeepTheirWay(t *testing.T) {
	c, sessions := newGuarded(t)
	joined, err := c.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "n", Host: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	poll, err := json.Marshal(api.PollRequest{
		Protocol: 1, NodeID: joined.NodeID, BootID: "b", Info: &api.NodeInfo{Arch: "amd64"}, HasHeld: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for credential, want := range map[string]int{"Bearer " +
		joined.Credential: 200, "Bearer x": 401, sessions["root"]: 401} {
		if a := c.call("POST", api.PathPoll+"?wait=0s", string(poll), "Authorization", credential); a.code != want {
			t.Errorf("%.10s: %d %s", credential, a.code, a.Message)
		}
	}
	if a := c.call("GET", "/api/v1/vm", "", "Authorization", "Bearer "+joined.Credential); a.code != 401 {
		t.Errorf("a node reads the API: %d", a.code)
	}
	if !strings.Contains(c.logged(), `"route":"POST /queue/v1/poll","outcome":"unauthenticated"`) {
		t.Error("the refused poll is not in the audit")
	}
}

// TestCallersOwnWhatTheyStart: and no caller gets the response to another caller's request.
func TestCallersOwnWhatTheyStart(t *testing.T) {
	c, sessions := newGuarded(t, "ann", "ben")
	ids, asked := map[string]string{}, map[string]string{}
	for _, who := range []string{"ann", "ben", "ann"} {
		a := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`"}`, "Authorization", sessions[who],
			"Idempotency-Key", "job")
		var list []string
		a.into(t, &list)
		if before := ids[who]; before != "" && before != list[0] {
			t.Errorf("%s: %s again: %s", who, before, list[0])
		}
		ids[who] = list[0]
	}
	for _, who := range []string{"carl", "dora"} { // users of a program that calls as root
		a := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`"}`, "Authorization", sessions["root"],
			rest.UserHeader, who, "Idempotency-Key", "job")
		var list []string
		a.into(t, &list)
		if slices.Contains(slices.Collect(maps.Values(ids)), list[0]) {
			t.Errorf("%s got another's answer", who)
		}
		asked[who] = list[0]
	}
	if asked["carl"] == asked["dora"] {
		t.Error("dora got carl's answer")
	}
	if ids["ann"] == ids["ben"] {
		t.Error("ben got ann's answer")
	}
	for who, id := range ids {
		var list []struct {
			ID string `json:"instance_id"`
		}
		c.call("GET", "/api/v1/vm?filter=owner%3D"+who, "", "Authorization", sessions["root"]).into(t, &list)
		if len(list) != 1 || list[0].ID != id {
			t.Errorf("%s owns %v, want %s", who, list, id)
		}
	}
}

// TestRoutesWithSeparateEvents: changes with separate events that name the caller need no audit event. Each
// of these event names has one route.
func TestRoutesWithSeparateEvents(t *testing.T) {
	told := map[string]farm.EventName{
		"POST /api/v1/vm": farm.EventStartVM, "DELETE /api/v1/vm": farm.EventTerminateVM,
		"POST /api/v1/node/config": farm.EventConfigNode, "DELETE /api/v1/node": farm.EventDeleteNode,
		"POST /api/v1/registry/vm/distribute": farm.EventDistribute,
		"DELETE /api/v1/registry/vm":          farm.EventDeleteRegistryVM,
		"PUT /api/v1/node/scan":               farm.EventNodeScanned, // when its numbers are others than before
		"PUT " + api.PathVersionFindings:      farm.EventVulnerabilityFound,
	}
	for _, r := range controllerrest.Routes() {
		if r.OwnEvents != (told[r.Pattern] != "") {
			t.Errorf("%s: told by other events: %t", r.Pattern, r.OwnEvents)
		}
		delete(told, r.Pattern)
	}
	if len(told) > 0 {
		t.Errorf("there are no routes %v", told)
	}
}

// TestLargeReportsWithoutCredential: a large report without a node's credential is not read.
func TestLargeReportsWithoutCredential(t *testing.T) {
	c, _ := newGuarded(t)
	joined, err := c.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "n", Host: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	large := `{"protocol":1,"node_id":"` + joined.NodeID + `"` + strings.Repeat(" ", 300<<10) + `}`
	for _, path := range []string{api.PathReport, api.PathPoll + "?wait=0s"} {
		for credential, refused := range map[string]bool{joined.Credential: false, "x": true} {
			if a := c.call("POST", path, large, "Authorization", "Bearer "+credential); refused != (a.code == 401) ||
				a.code == 413 {
				t.Errorf("%s, refused %v: %d %s", path, refused, a.code, a.Message)
			}
		}
	}
	if err := c.Nodes.Delete(t.Context(), joined.NodeID); err != nil {
		t.Fatal(err)
	}
	before := c.call("POST", api.PathPoll+"?wait=0s", `{"protocol":1,"node_id":"`+joined.NodeID+`"}`, "Authorization",
		"Bearer "+joined.Credential)
	if a := c.call("POST", api.PathPoll+"?wait=0s", large, "Authorization",
		"Bearer "+joined.Credential); a.code != before.code || a.Message != before.Message {
		t.Errorf("a node that was removed: %d %s, with a small body %d %s", a.code, a.Message, before.code,
			before.Message)
	}
}
