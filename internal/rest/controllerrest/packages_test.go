package controllerrest_test

import (
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/release"
)

// withPackages is a cloud with a package for linux/amd64 and one for darwin/arm64.
func withPackages(t *testing.T) *cloud {
	t.Helper()
	_, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"buildnode-linux-amd64.tar.gz", "buildnode-darwin-arm64.tar.gz"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("bytes of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := release.SignDir(secret, dir, "1.2.3-abc", ""); err != nil {
		t.Fatal(err)
	}
	return newCloudWith(t,
		controller.Options{Packages: release.NewRepository(dir, slog.New(slog.DiscardHandler)), NoNodeUpgrades: true})
}

// load requests a package.
func (c *cloud) load(name, user, password string, header ...string) (*http.Response, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+"/pkg/"+name, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if password != "" {
		req.SetBasicAuth(user, password)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, string(raw)
}

func TestPackagesAreServed(t *testing.T) {
	c := withPackages(t)
	token := c.Nodes.JoinToken()
	joined, err := c.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: token, Name: "n", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	const linux, mac = "bytes of buildnode-linux-amd64.tar.gz", "bytes of buildnode-darwin-arm64.tar.gz"
	for _, tt := range []struct {
		name, user, password string
		code                 int
		want                 string
		header               []string
	}{
		{"buildnode-linux-amd64.tar.gz", joined.NodeID, joined.Credential, 200, linux, nil},
		{"buildnode-linux-amd64.tar.gz", "", token, 200, linux, nil},
		{"buildnode-linux-amd64.tar.gz", "", "", 200, linux, []string{"Authorization", "Bearer " + token}},
		{"AnkaAgentArm.pkg", "", token, 200, mac, nil},
		{"buildnode-linux-amd64.tar.gz", "", token, 206, "buildnode", []string{"Range", "bytes=9-17"}},
		{"buildnode-linux-amd64.tar.gz", "", token, 416, "invalid range", []string{"Range", "bytes=1000-"}},
		{"buildnode-linux-amd64.tar.gz", "", token, 412, "", []string{"If-Match", `"other"`}},
		{"AnkaAgent.pkg", "", token, 404, "Agent package buildnode-darwin-amd64.tar.gz not found: put it into ", nil},
		{"nothing", "", token, 404, "Agent package not found", nil},
		{"%2e%2e%2fmanifest", "", token, 404, "Agent package not found", nil},
		{"buildnode-linux-amd64.tar.gz", "", "", 401, "Authentication Required", nil},
		{"buildnode-linux-amd64.tar.gz", joined.NodeID, "wrong", 401, "Authentication Required", nil},
		{"buildnode-linux-amd64.tar.gz", "another", joined.Credential, 401, "Authentication Required", nil},
		{"nothing", "", "", 401, "Authentication Required", nil},
		{"manifest", "", "", 401, "Authentication Required", nil},
	} {
		resp, got := c.load(tt.name, tt.user, tt.password, tt.header...)
		if resp.StatusCode != tt.code || !strings.Contains(got, tt.want) {
			t.Errorf("%s as %q with %q: %d %q, want %d %q", tt.name, tt.user, tt.header, resp.StatusCode, got, tt.code,
				tt.want)
		}
	}
	resp, _ := c.load("buildnode-linux-amd64.tar.gz", "", token)
	if tag := resp.Header.Get("ETag"); len(tag) != 66 {
		t.Errorf("ETag %q", tag)
	} else if again, _ := c.load("buildnode-linux-amd64.tar.gz", "", token, "If-None-Match",
		tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("what is known already: %d", again.StatusCode)
	}
	var list []api.AgentPackage
	c.call("GET", "/pkg/manifest", "", "Authorization", "Bearer "+token).into(t, &list)
	if len(list) != 2 || list[0].Name != "buildnode-linux-amd64.tar.gz" || list[0].Signed == "" ||
		list[1].OS != "darwin" {
		t.Errorf("%+v", list)
	}
}

func TestNodeUpdateRoute(t *testing.T) {
	c := withPackages(t)
	joined, err := c.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "n", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	info := &api.NodeInfo{OS: "linux", Arch: "amd64", AgentVersion: "1.0.0-old"}
	poll := api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: joined.NodeID, BootID: "b", InfoHash: "i",
		HeldHash: "h", Info: info, HasHeld: true,
	}
	if _, err := c.Link.Poll(t.Context(), joined.Credential, poll, 0); err != nil {
		t.Fatal(err)
	}
	node := func() api.Node {
		var list []api.Node
		c.call("GET", "/api/v1/node?id="+joined.NodeID, "").into(t, &list)
		return list[0]
	}
	if n := node(); n.Update != nil || n.State != "Active" {
		t.Errorf("%+v", n)
	}
	for body, want := range map[string]string{
		`{"node_ids":["` + joined.NodeID + `","x"]}`: "Not found",
		`{"node_ids":7}`: "node_ids: must be an array of strings",
	} {
		if a := c.call("PUT", "/api/v1/node/update", body); a.Status != "FAIL" || a.Message != want {
			t.Errorf("%s: %+v", body, a)
		}
	}
	if a := c.call("PUT", "/api/v1/node/update", ""); a.code != 200 || a.Status != "OK" || a.Message != "" ||
		a.Body != nil {
		t.Errorf("%+v", a)
	}
	if n := node(); n.State != "Updating" || n.StateReason != "its agent becomes 1.2.3-abc" || n.Update == nil ||
		n.Update.Tries != 1 || n.Update.Begun.IsZero() || !n.Update.Next.IsZero() {
		t.Errorf("%+v %+v", n, n.Update)
	}
	poll.Info, poll.HasHeld = nil, false
	answer, err := c.Link.Poll(t.Context(), joined.Credential, poll, 0)
	if err != nil || answer.Update == nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	poll.Update = &api.UpdateStatus{ID: answer.Update.ID, Stage: api.UpdateWaiting, Message: "the startup script of x"}
	if _, err := c.Link.Poll(t.Context(), joined.Credential, poll, 0); err != nil {
		t.Fatal(err)
	}
	if n := node(); n.StateReason != "its agent becomes 1.2.3-abc: the startup script of x" {
		t.Errorf("%q", n.StateReason)
	}
	poll.Update = &api.UpdateStatus{ID: answer.Update.ID, Stage: api.UpdateFailed, Message: "no room"}
	if _, err := c.Link.Poll(t.Context(), joined.Credential, poll, 0); err != nil {
		t.Fatal(err)
	}
	if n := node(); n.State != "Active" || n.Update.Failure != "no room" || n.Update.Next.IsZero() ||
		!n.Update.Begun.IsZero() {
		t.Errorf("%+v %+v", n, n.Update)
	}
}

func TestWithoutPackages(t *testing.T) {
	c := newCloud(t)
	if a := c.call("PUT", "/api/v1/node/update", "{}"); a.code != 200 || a.Status != "FAIL" ||
		a.Message != "No node agent can be updated. This controller has no agent packages" {
		t.Errorf("%+v", a)
	}
	if resp, got := c.load("AnkaAgent.pkg", "", c.Nodes.JoinToken()); resp.StatusCode != 404 ||
		!strings.Contains(got, "no agent packages") {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
}
