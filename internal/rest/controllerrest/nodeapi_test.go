package controllerrest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
)

// newJoinable opens a cloud with enforced permissions, with the keys builder, which may join nodes, and clerk,
// which may not. The header Test-CN replaces a certificate.
func newJoinable(
	t *testing.T, passes func(*farm.Node, auth.NodeScope) (string, time.Duration),
) (c *cloud, sessions map[string]string) {
	t.Helper()
	keys := []farm.APIKey{
		{ID: "builder", Generation: "g", Expires: time.Now().Add(time.Hour), Groups: []string{"builders"}},
		{ID: "clerk", Generation: "g", Expires: time.Now().Add(time.Hour)},
	}
	open := auth.NewSessions(auth.NewAPIKeys(auth.NewKeyTable(keys, nil)), auth.NewSigner(auth.NewKeyRing(time.Now())),
		0)
	grants := auth.NewGrantTable(auth.Grants{Groups: map[string][]farm.Permission{
		"builders": {"change_node_config"}, "clerk": {"list_nodes", "start_vm"}, "anna": {"list_nodes"},
	}}, nil)
	who := &auth.Authenticator{Sessions: open, Certificate: func(r *http.Request) (string, []string, bool, error) {
		cn := r.Header.Get("Test-CN")
		return cn, nil, cn != "", nil
	}}
	c = newCloudWith(t, controller.Options{}, func(o *controllerrest.Options) {
		var err error
		o.IssueRegistryToken = passes
		o.Guard,
			err = rest.NewGuard(rest.GuardOptions{Identifier: who, Logger: o.Logger, Authorizer: auth.NewAuthorizer(
			auth.Policy{Service: farm.ServiceController, Tier: farm.TierEnterprisePlus, Authorization: true}, grants)})
		if err != nil {
			t.Fatal(err)
		}
	})
	sessions = map[string]string{}
	for _, k := range keys {
		raw, err := json.Marshal(open.Issue(k))
		if err != nil {
			t.Fatal(err)
		}
		sessions[k.ID] = "Bearer " + base64.StdEncoding.EncodeToString(raw)
	}
	return c, sessions
}

// behind returns the same cloud at a port with a join policy.
func (c *cloud) behind(door rest.JoinPolicy) *cloud {
	c.t.Helper()
	server := httptest.NewUnstartedServer(c.handler)
	server.Config.BaseContext = func(net.Listener) context.Context {
		return rest.WithJoinPolicy(context.Background(), door)
	}
	server.Start()
	c.t.Cleanup(server.Close)
	return &cloud{Controller: c.Controller, t: c.t, url: server.URL, log: c.log}
}

func TestWhoMayJoin(t *testing.T) {
	c, sessions := newJoinable(t, nil)
	ports := map[rest.JoinPolicy]*cloud{
		"": c, rest.JoinByCertificate: c.behind(rest.JoinByCertificate), rest.JoinOpen: c.behind(rest.JoinOpen),
	}
	for name, who := range map[string]struct {
		token  string
		header []string
		want   [3]int // guarded, certified, open
		key    string
	}{
		"the token":     {c.Nodes.JoinToken(), nil, [3]int{200, 200, 200}, ""},
		"a wrong token": {"x", nil, [3]int{401, 401, 401}, ""},
		"nothing":       {"", nil, [3]int{401, 401, 200}, ""},
		"a key that may": {
			"", []string{"Authorization", sessions["builder"]}, [3]int{200, 200, 200}, "builder",
		},
		"a key that may not": {
			"", []string{"Authorization", sessions["clerk"]}, [3]int{403, 403, 200}, "clerk",
		},
		"a key and a wrong token":    {"x", []string{"Authorization", sessions["builder"]}, [3]int{401, 401, 401}, ""},
		"an unknown session":         {"", []string{"Authorization", "Bearer x"}, [3]int{401, 401, 200}, ""},
		"a certificate":              {"", []string{"Test-CN", "anna"}, [3]int{403, 200, 200}, ""},
		"a certificate that may":     {"", []string{"Test-CN", "builders"}, [3]int{200, 200, 200}, ""},
		"a wrong token, certificate": {"x", []string{"Test-CN", "builders"}, [3]int{401, 401, 401}, ""},
		"the token, a stale session": {
			c.Nodes.JoinToken(), []string{"Authorization", "Bearer x"}, [3]int{200, 200, 200}, "",
		},
	} {
		for i, door := range []rest.JoinPolicy{"", rest.JoinByCertificate, rest.JoinOpen} {
			body, err := json.Marshal(api.JoinRequest{
				Protocol: api.LinkProtocol, Token: who.token, Name: "n", Host: "10.0.0.1",
			})
			if err != nil {
				t.Fatal(err)
			}
			a := ports[door].call("POST", api.PathJoin, string(body), who.header...)
			if a.code != who.want[i] {
				t.Errorf("%s at %q: %d %s; want %d", name, door, a.code, a.Message, who.want[i])
			}
			if a.code == 403 && !strings.Contains(a.Message, "change_node_config") {
				t.Errorf("%s at %q: %s", name, door, a.Message)
			}
			if a.code != 200 {
				continue
			}
			var is api.JoinAnswer
			a.into(t, &is)
			if node, err := c.Link.Authenticate(is.NodeID, is.Credential); err != nil || node.KeyID != who.key {
				t.Errorf("%s at %q: %+v, %v", name, door, node, err)
			}
		}
	}
}

// TestJoinsAreAudited: with the caller that let the node join, or the node itself.
func TestJoinsAreAudited(t *testing.T) {
	c, sessions := newJoinable(t, nil)
	var first, second api.JoinAnswer
	c.call("POST", api.PathJoin, `{"protocol":1,"name":"n","host":"h","token":"`+c.Nodes.JoinToken()+`"}`).into(t,
		&first)
	c.call("POST", api.PathJoin, `{"protocol":1,"name":"m","host":"h"}`, "Authorization", sessions["builder"]).into(t,
		&second)
	for _, want := range []string{
		`"who":"` + first.NodeID + `","method":"node"`, `"who":"builder","method":"key","key":"builder"`,
	} {
		if !strings.Contains(c.logged(), want) {
			t.Errorf("nothing has %s", want)
		}
	}
	if strings.Contains(c.logged(), first.Credential) || strings.Contains(c.logged(), c.Nodes.JoinToken()) {
		t.Error("a secret is in the log")
	}
}

// TestHowANodeJoinedLast: the newest join counts, and the node keeps its id.
func TestHowANodeJoinedLast(t *testing.T) {
	c, sessions := newJoinable(t, nil)
	var is api.JoinAnswer
	c.call("POST", api.PathJoin, `{"protocol":1,"name":"n","host":"h"}`, "Authorization", sessions["builder"]).into(t,
		&is)
	again := func(token string, header ...string) *farm.Node {
		t.Helper()
		var now api.JoinAnswer
		c.call("POST", api.PathJoin, `{"protocol":1,"name":"n","host":"h","token":"`+token+`","node_id":"`+is.NodeID+
			`","credential":"`+is.Credential+`"}`, header...).into(t, &now)
		node, err := c.Link.Authenticate(is.NodeID, is.Credential)
		if err != nil || now.NodeID != is.NodeID || now.Credential != is.Credential {
			t.Fatalf("%+v, %v", now, err)
		}
		return node
	}
	if n := again("", "Authorization", sessions["builder"]); n.KeyID != "builder" {
		t.Errorf("with the key: %q", n.KeyID)
	}
	if n := again(c.Nodes.JoinToken()); n.KeyID != "" {
		t.Errorf("with the token: %q", n.KeyID)
	}
}

// TestRegistryTokensOfNodes: a node gets one by its own credential, made for its id and its key.
func TestRegistryTokensOfNodes(t *testing.T) {
	c, sessions := newJoinable(t, func(node *farm.Node, _ auth.NodeScope) (string, time.Duration) {
		return "pass of " + node.ID + " by " + node.KeyID, 10 * time.Minute
	})
	var is api.JoinAnswer
	c.call("POST", api.PathJoin, `{"protocol":1,"name":"n","host":"h"}`, "Authorization", sessions["builder"]).into(t,
		&is)
	ask := `{"protocol":1,"node_id":"` + is.NodeID + `"}`
	var got api.RegistryTokenResponse
	c.call("POST", api.PathPass, ask, "Authorization", "Bearer "+is.Credential).into(t, &got)
	if got.Pass != "pass of "+is.NodeID+" by builder" || got.Life != 600 {
		t.Errorf("%+v", got)
	}
	for name, header := range map[string]string{"none": "", "another": "Bearer x", "a key": sessions["builder"]} {
		if a := c.call("POST", api.PathPass, ask, "Authorization", header); a.code != 401 {
			t.Errorf("%s: %d %s", name, a.code, a.Body)
		}
	}
	if err := c.Nodes.Delete(t.Context(), is.NodeID); err != nil {
		t.Fatal(err)
	}
	if a := c.call("POST", api.PathPass, ask, "Authorization", "Bearer "+is.Credential); a.code != 401 {
		t.Errorf("a removed node: %d %s", a.code, a.Body)
	}
	plain := newCloud(t)
	plain.call("POST", api.PathJoin, `{"protocol":1,"name":"n","host":"h","token":"`+plain.Nodes.JoinToken()+
		`"}`).into(t,
		&is)
	plain.call("POST", api.PathPass, `{"protocol":1,"node_id":"`+is.NodeID+`"}`, "Authorization",
		"Bearer "+is.Credential).into(t, &got)
	if got != (api.RegistryTokenResponse{}) {
		t.Errorf("where there are none: %+v", got)
	}
	if a := plain.call("POST", api.PathJoin, `{"protocol":1,"name":"n","host":"h"}`); a.code != 401 {
		t.Errorf("nobody joins a cloud without authentication: %d", a.code)
	}
}
