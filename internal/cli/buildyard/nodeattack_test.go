package buildyard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/transfer"
)

// handNode is a node whose agent is the test: it does what it likes with its credential.
type handNode struct {
	t          *testing.T
	controller string
	registry   string
	link       *nodeapi.Client
	is         api.JoinAnswer
}

// joinByHand makes a node of a cloud.
func joinByHand(t *testing.T, s *ControllerService, registry, name string) *handNode {
	t.Helper()
	n := &handNode{t: t, controller: s.URL(), registry: registry}
	raw, _ := json.Marshal(api.JoinRequest{
		Protocol: api.LinkProtocol, Token: s.JoinToken(), Name: name, Host: "10.1.1.1", Capacity: 9,
	})
	if code, body := n.send("POST "+n.controller+api.PathJoin, "", string(raw)); code != 200 ||
		n.into(body, &n.is) != nil {
		t.Fatalf("join: %d %s", code, body)
	}
	var err error
	if n.link, err = nodeapi.New(n.controller, nil, n.is.Credential); err != nil {
		t.Fatal(err)
	}
	n.poll()
	return n
}

// send makes a request with a Bearer value.
func (n *handNode) send(what, bearer, body string) (code int, answer string) {
	n.t.Helper()
	method, url, _ := strings.Cut(what, " ")
	r, err := http.NewRequestWithContext(n.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// into decodes the body of an envelope.
func (n *handNode) into(answer string, out any) error {
	var e api.Envelope[json.RawMessage]
	if err := json.Unmarshal([]byte(answer), &e); err != nil {
		return err
	}
	if e.Status != api.StatusOK {
		return fmt.Errorf("%s", e.Message)
	}
	return json.Unmarshal(e.Body, out)
}

// token asks for a token with what is put into the request; "" when it is refused.
func (n *handNode) token(more string) (token, refusal string) {
	n.t.Helper()
	code, body := n.send("POST "+n.controller+api.PathPass, n.is.Credential,
		`{"protocol":1,"node_id":"`+n.is.NodeID+`"`+more+`}`)
	var got api.RegistryTokenResponse
	if err := n.into(body, &got); err != nil || code != 200 {
		return "", fmt.Sprintf("%d %s", code, strings.TrimSpace(body))
	}
	return got.Pass, ""
}

// poll describes the node, which holds nothing.
func (n *handNode) poll() {
	n.t.Helper()
	_, err := n.link.Poll(n.t.Context(), 0, api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: n.is.NodeID, BootID: "boot", InfoHash: "i", HeldHash: "h", HasHeld: true,
		Info: &api.NodeInfo{Arch: "amd64", Driver: "sim", CPUs: 64, MemoryMB: 65536},
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// attacked is a cloud with templates that a node is after.
type attacked struct {
	t     *testing.T
	s     *ControllerService
	root  *client.Controller
	store *transfer.Client // the registry as root
	a, b  string           // ids of templates with the tags v1 and v2
	url   string           // of the registry
}

func newAttacked(t *testing.T, more map[string]string) *attacked {
	t.Helper()
	s, stop := startController(t, t.TempDir(), true, withAccess(more))
	t.Cleanup(stop)
	c := &attacked{t: t, s: s, root: asRoot(t, s.URL()), url: s.registry.URL()}
	var err error
	if c.store, err = transfer.New(transfer.Options{BaseURL: c.url, Authorize: func(r *http.Request) error {
		r.SetBasicAuth("root", rootToken)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, registry: c.store}
	c.a, c.b = y.push("", "v1", y.disk(1, 1)).ID, y.push("", "v1", y.disk(2, 1)).ID
	y.push(c.a, "v2", y.disk(3, 1))
	y.push(c.b, "v2", y.disk(4, 1))
	return c
}

// tags returns the tags of a template.
func (c *attacked) tags(id string) (tags []string) {
	c.t.Helper()
	detail, err := c.store.TemplateDetail(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range detail.Versions {
		tags = append(tags, v.Tag)
	}
	return tags
}

// logOf returns what the central log of a service has.
func (c *attacked) logOf(service string) string {
	c.t.Helper()
	files := []struct{ Name string }{}
	n := &handNode{t: c.t}
	r, _ := http.NewRequestWithContext(c.t.Context(), "GET", c.url+"/registry/log/files?service="+service, nil)
	r.SetBasicAuth("root", rootToken)
	text := func(r *http.Request) string {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			c.t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		return string(raw)
	}
	if n.into(text(r), &files) != nil {
		return ""
	}
	var all bytes.Buffer
	for _, f := range files {
		r, _ := http.NewRequestWithContext(c.t.Context(), "GET", c.url+"/registry/log/view?service="+service+"&file="+
			f.Name, nil)
		r.SetBasicAuth("root", rootToken)
		all.WriteString(text(r))
	}
	return all.String()
}

// pushBody is a push of nothing but a configuration.
func pushBody(id, tag, more string) string {
	return `{"id":"` + id + `","tag":"` + tag + `","arch":"amd64","config":{"hard_drives":[]},"files":[]` + more + `}`
}

// TestANodeWithoutWork tries with the token that any node could ask for, before purposes were named, what an
// attacker did with it.
func TestANodeWithoutWork(t *testing.T) {
	c := newAttacked(t, nil)
	n := joinByHand(t, c.s, c.url, "idle")
	token, refusal := n.token("")
	if token == "" {
		t.Fatal(refusal)
	}
	scan := `{"scanner":"x","version":"1","database":"2026-01-31T12:00:00Z","scanned":"2026-01-31T12:00:00Z","counts":{"critical":0,"high":0,"medium":0,"low":0,"unknown":0,"packages":0},"report":{}}`
	if err := c.store.UploadFile(t.Context(), "logs/"+c.b+"/boot.log", []byte("another node's")); err != nil {
		t.Fatal(err)
	}
	for _, attack := range []struct {
		name, request, body string
		codes               []int
	}{
		{"revert every tag", "DELETE /registry/revert?id=A&version=0", "", []int{403}},
		{"delete the template", "DELETE /registry/vm?id=A", "", []int{403}},
		{"set its arch", "PUT /registry/vm/arch", `{"id":"A","arch":"arm64"}`, []int{403}},
		{"overwrite the results of a scan", "PUT /registry/v2/vm/scan?id=A&tag=v1", scan, []int{403}},
		{"remove the results of a scan", "DELETE /registry/v2/vm/scan?id=A&tag=v1", "", []int{403}},
		{"push a tag", "POST /registry/v2/push", pushBody("A", "evil", `,"must_exist":true`), []int{401, 403}},
		{"push with a revert", "POST /registry/v2/push", pushBody("A", "evil",
			`,"revert":{"tag":"v1"}`), []int{401, 403}},
		{"push a template", "POST /registry/v2/push", pushBody(uuid.NewString(), "v1",
			`,"name":"evil"`), []int{401, 403}},
		{"overwrite another node's log", "PUT /registry/files/logs/B/boot.log", "forged", []int{401, 403}},
		{"write where nodes' scans are", "PUT /registry/files/node-scans/x.json", "forged", []int{401, 403}},
		{"delete another node's log", "DELETE /registry/files/logs/B/boot.log", "", []int{403}},
		{"read files", "GET /registry/files/logs/B/boot.log", "", []int{403}},
		{"append an event", "POST /log/event", `{"type":"x"}`, []int{403}},
		{"list the templates", "GET /registry/v2/vm", "", []int{403}},
		{"read a configuration", "GET /registry/vm/info?id=A", "", []int{403}},
		{"pull what it was not told to hold", "GET /registry/v2/pull?id=A", "", []int{401, 403}},
		{"pause the registry", "POST /registry/pause", `{"seconds":3}`, []int{403}},
		{"read keys", "GET /v1/apikey", "", []int{403}},
	} {
		as := strings.NewReplacer("id=A", "id="+c.a, `"A"`, `"`+c.a+`"`, "/B/", "/"+c.b+"/")
		code, body := n.send(strings.Replace(as.Replace(attack.request), " ", " "+c.url, 1), token,
			as.Replace(attack.body))
		if !slices.Contains(attack.codes, code) {
			t.Errorf("%s: %d %s", attack.name, code, body)
		}
	}
	if tags := c.tags(c.a); !slices.Equal(tags, []string{"v1", "v2"}) {
		t.Errorf("the template has %v", tags)
	}
	if detail, err := c.store.TemplateDetail(t.Context(), c.a); err != nil || detail.Arch != "amd64" ||
		detail.Versions[0].Scan != nil {
		t.Errorf("the template was changed: %+v, %v", detail, err)
	}
	if all, err := c.store.ListTemplates(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("templates: %+v, %v", all, err)
	}
	if raw, err := c.store.DownloadFile(t.Context(), "logs/"+c.b+"/boot.log", 1<<10); err != nil ||
		string(raw) != "another node's" {
		t.Errorf("another node's log: %q, %v", raw, err)
	}
}

// TestANodesRowsAreItsOwn: the origin of a node's rows is that of its token, whatever the node
// sends.
func TestANodesRowsAreItsOwn(t *testing.T) {
	c := newAttacked(t, nil)
	n := joinByHand(t, c.s, c.url, "liar")
	token, refusal := n.token("")
	if token == "" {
		t.Fatal(refusal)
	}
	rows := `[{"service":"registry","machine_name":"registry-host","host":"10.9.9.9","content":"forged line"},{"service":"node","machine_name":"other","host":"10.9.9.9","content":"second line"}]`
	if code, body := n.send("POST "+c.url+api.PathLog, token, rows); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if text := c.logOf("registry"); strings.Contains(text, "forged") {
		t.Errorf("the log of the registry has %s", text)
	}
	text := c.logOf("node")
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "liar") || !strings.Contains(line, "10.1.1.1") ||
			strings.Contains(line, "10.9.9.9") || strings.Contains(line, "other") {
			t.Errorf("a row says %s", line)
		}
	}
	if strings.Count(text, "line") != 2 {
		t.Errorf("the log of the nodes has %q", text)
	}
}
