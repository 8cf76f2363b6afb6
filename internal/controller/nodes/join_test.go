package nodes

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// secret returns a credential of the form that nodes get.
func secret() string { return strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "") }

// TestLostIdentity: a node whose record was lost joins again with its old identity, so that its agent
// does not consider its VMs those of an earlier identity.
func TestLostIdentity(t *testing.T) {
	n := open(t)
	join := func(id, credential string) api.JoinAnswer {
		return n.join(api.JoinRequest{Name: "n", Host: "10.0.0.1", NodeID: id, Credential: credential})
	}
	id, credential := uuid.NewString(), secret()
	if answer := join(id, credential); answer.NodeID != id || answer.Credential != credential {
		t.Errorf("joined as %+v", answer)
	}
	if answer := join(id, credential); answer.NodeID != id {
		t.Errorf("joined again as %+v", answer)
	}
	for name, other := range map[string]api.JoinAnswer{
		"another secret": join(id, secret()), "a weak secret": join(uuid.NewString(), "abc"),
		"no id": join("", secret()), "an id of another form": join("urn:uuid:"+uuid.NewString(), secret()),
	} {
		if other.NodeID == id || len(other.NodeID) != 36 || len(other.Credential) != 64 {
			t.Errorf("%s: joined as %+v", name, other)
		}
	}
	if err := n.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if answer := join(id, credential); answer.NodeID == id {
		t.Error("a node that was removed came back as the one that it was")
	}
}

// TestRejoin: a node that returns keeps what it leaves out, and what it has only kept from an earlier
// join does not replace what an operator has configured since.
func TestRejoin(t *testing.T) {
	n := open(t)
	is := n.join(api.JoinRequest{Name: "one", Host: "10.0.0.1", Capacity: 3, Groups: []string{"g"}})
	join := func(req api.JoinRequest) *farm.Node {
		t.Helper()
		req.NodeID, req.Credential = is.NodeID, is.Credential
		if answer := n.join(req); answer.NodeID != is.NodeID {
			t.Fatalf("rejoined as %+v", answer)
		}
		return n.node(is.NodeID)
	}
	if node := join(api.JoinRequest{Name: "two"}); node.Name != "two" || node.Capacity != 3 ||
		node.Host != "10.0.0.1" || !slices.Equal(node.Groups, []string{"g"}) {
		t.Errorf("after a join with a name: %+v", node)
	}
	if node := join(api.JoinRequest{Name: "two", Capacity: 5, Host: "10.0.0.9"}); node.Capacity != 5 ||
		node.Host != "10.0.0.9" {
		t.Errorf("after a join with more: %+v", node)
	}
	conf := Config{Name: new("mine"), Host: new("build1.example"), Capacity: new(7)}
	if err := n.Configure(t.Context(), is.NodeID, conf); err != nil {
		t.Fatal(err)
	}
	kept := []string{api.KeptName, api.KeptHost, api.KeptCapacity, api.KeptGroups}
	if node := join(api.JoinRequest{
		Name: "two", Host: "10.0.0.9", Capacity: 5, Groups: []string{"g"}, Kept: kept,
	}); node.Name != "mine" || node.Host != "build1.example" || node.Capacity != 7 {
		t.Errorf("after a join with what it kept: %+v", node)
	}

	n.link.busy = farm.Errorf(farm.CodeTooMany, "too often")
	join(api.JoinRequest{Name: "mine", Host: "build1.example", Kept: kept}) // which changes nothing
	_, err := n.JoinWithKey(t.Context(), api.JoinRequest{
		Protocol: api.LinkProtocol, NodeID: is.NodeID, Credential: is.Credential, Name: "other", Host: "h",
	}, "key")
	wantRefused(t, err, farm.CodeTooMany, "too often")
}

// TestJoinToken: only a node or a caller with a token is admitted.
func TestJoinToken(t *testing.T) {
	n := open(t)
	if len(n.JoinToken()) != 64 {
		t.Errorf("%q", n.JoinToken())
	}
	_, err := n.Join(t.Context(), api.JoinRequest{Protocol: api.LinkProtocol, Token: "x", Name: "n", Host: "h"})
	wantRefused(t, err, farm.CodeUnauthenticated, "wrong join token")
	is := n.join(api.JoinRequest{Name: "n", Host: "10.0.0.1"})
	for _, c := range []struct {
		user, secret string
		ok           bool
	}{
		{"", n.JoinToken(), true},
		{is.NodeID, is.Credential, true},
		{"", "x", false},
		{is.NodeID, n.JoinToken() + "x", false},
	} {
		if err := n.AuthorizeDownload(c.user, c.secret); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.user, err)
		}
	}
	if err := n.VerifyCredential(is.Credential); err != nil {
		t.Error(err)
	}
	wantRefused(t, n.VerifyCredential(n.JoinToken()), farm.CodeUnauthenticated,
		"the credential does not belong to a node")
}
