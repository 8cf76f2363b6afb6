package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
)

// hostileNode are the attacks of a node of the cloud on its registry.
var hostileNode = family{name: "hostile node", site: arrangement{nodes: 4}, attacks: []attack{
	{"without an order", func(ctx context.Context, s *site, o *outcome) { s.nodeAttacks(ctx, o, noOrder) }, false},
	{"with an order for another template", func(ctx context.Context, s *site, o *outcome) {
		s.nodeAttacks(ctx, o, otherOrder)
	}, false},
	{"with a save of another template under way", func(ctx context.Context, s *site, o *outcome) {
		s.nodeAttacks(ctx, o, otherSave)
	}, false},
	{"tokens for what was not ordered", unorderedTokens, false},
	{"forged rows of the service registry", forgedRows, false},
	{"the id of a deleted template", deletedID, false},
	{"reverts by the role of CI systems", reverts, false},
}}

// member is a node whose agent is this program.
type member struct {
	caller
	s    *site
	is   api.JoinAnswer
	info api.NodeInfo
	seq  int64
	held []api.InventoryItem
}

// join makes a node of the cloud. It is in no group, so that no jobs of others come to it.
func (s *site) join(ctx context.Context, name string) (*member, error) {
	m := &member{caller: s.attacker(), s: s, info: api.NodeInfo{
		Arch: "amd64", OS: "linux", Driver: "sim", CPUs: 8, MemoryMB: 16384, DiskSize: 1 << 40, FreeDisk: 1 << 39,
	}}
	in := api.JoinRequest{Protocol: api.LinkProtocol, Token: s.joinToken, Name: name, Host: "127.0.0.1", Capacity: 9}
	if err := m.get(ctx, "POST "+s.controller+api.PathJoin, in, &m.is); err != nil {
		return nil, err
	}
	m.caller = m.with("Bearer " + m.is.Credential)
	_, err := m.poll(ctx, nil)
	return m, err
}

// poll sends the inventory of the node, and returns its orders.
func (m *member) poll(
	ctx context.Context, held []api.InventoryItem, details ...api.InventoryDetail,
) (a api.PollAnswer, err error) {
	return a, m.get(ctx, "POST "+m.s.controller+api.PathPoll+"?wait=0s", m.pollRequest(held, details...), &a)
}

// post makes a call of the node link.
func (m *member) post(ctx context.Context, path string, in any) (answer, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return answer{}, err
	}
	return m.send(ctx, "POST "+m.s.controller+path, string(raw))
}

func (m *member) pollRequest(held []api.InventoryItem, details ...api.InventoryDetail) api.PollRequest {
	return api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: m.is.NodeID, BootID: "boot", InfoHash: "i", Info: &m.info,
		HeldHash: fmt.Sprint("h", len(held)), Held: held, HasHeld: true, Details: details,
	}
}

// report reports one status of an instance.
func (m *member) report(ctx context.Context, status api.InstanceStatus) error {
	m.seq++
	in := api.Report{
		Protocol: api.LinkProtocol, NodeID: m.is.NodeID, BootID: "boot", Seq: m.seq,
		Statuses: []api.InstanceStatus{status},
	}
	return m.get(ctx, "POST "+m.s.controller+api.PathReport, in, nil)
}

// run waits for the order to start an instance and reports that its VM runs.
func (m *member) run(ctx context.Context, id string) error {
	return m.s.await(ctx, "the order to start", func() (bool, error) {
		a, err := m.poll(ctx, m.held)
		if err != nil {
			return false, err
		}
		for _, order := range a.Orders {
			if order.Kind != api.OrderStart || order.InstanceID != id {
				continue
			}
			m.held = append(m.held, api.InventoryItem{InstanceID: id, Claim: order.Claim, VMID: id})
			vm := &api.NodeVM{
				UUID: id, Name: "vm", Status: "running", CPUs: 1, MemoryMB: 256, HostIP: "127.0.0.1",
				Started: time.Now(),
			}
			return true, m.report(ctx,
				api.InstanceStatus{InstanceID: id, Claim: order.Claim, No: 1, Phase: api.PhaseScriptOK, VM: vm})
		}
		return false, nil
	})
}

// leave removes the node from the cloud.
func (m *member) leave(ctx context.Context, o *outcome) {
	o.check(m.s.rooted.get(ctx, "DELETE "+m.s.controller+"/api/v1/node", map[string]string{"node_id": m.is.NodeID},
		nil))
}

// token asks for a registry token; purpose is JSON, "" asks as agents did before purposes were named.
func (m *member) token(ctx context.Context, purpose string) (token string, a answer, err error) {
	body := `{"protocol":1,"node_id":"` + m.is.NodeID + `"`
	if purpose != "" {
		body += `,"purpose":` + purpose
	}
	if a, err = m.send(ctx, "POST "+m.s.controller+api.PathPass, body+"}"); err != nil {
		return "", a, err
	}
	var got api.RegistryTokenResponse
	if a.code != http.StatusOK || json.Unmarshal(a.envelope().Body, &got) != nil || got.Pass == "" {
		return "", a, nil
	}
	return got.Pass, a, nil
}

// noOrder returns a token of a node without work.
func noOrder(ctx context.Context, _ *site, m *member) (string, error) {
	token, a, err := m.token(ctx, "")
	if token == "" {
		return "", fmt.Errorf("no token for a node without work: %d %s: %w", a.code, a.body, err)
	}
	return token, nil
}

// otherOrder returns the token of a node that was ordered to cache template b.
func otherOrder(ctx context.Context, s *site, m *member) (string, error) {
	in := map[string]any{"template_id": s.b, "node_ids": []string{m.is.NodeID}}
	if err := s.rooted.get(ctx, "POST "+s.controller+"/api/v1/registry/vm/distribute", in, nil); err != nil {
		return "", err
	}
	token, a, err := m.token(ctx, fmt.Sprintf(`{"pull":%q}`, s.b))
	if token == "" {
		return "", fmt.Errorf("no token for the ordered template: %d %s: %w", a.code, a.body, err)
	}
	return token, nil
}

// otherSave returns the token of a node on which an instance is saved into template b.
func otherSave(ctx context.Context, s *site, m *member) (string, error) {
	var ids []string
	if err := s.rooted.get(ctx, "POST "+s.controller+"/api/v1/vm", map[string]any{"vmid": s.b, "node_id": m.is.NodeID},
		&ids); err != nil {
		return "", err
	}
	if err := m.run(ctx, ids[0]); err != nil {
		return "", err
	}
	in := map[string]any{"id": ids[0], "target_vm_id": s.b, "tag": "v3", "suspend": false}
	if err := s.rooted.get(ctx, "POST "+s.controller+"/api/v1/image", in, nil); err != nil {
		return "", err
	}
	save := ""
	err := s.await(ctx, "the order to save", func() (bool, error) {
		a, err := m.poll(ctx, m.held)
		for _, order := range a.Orders {
			if order.Kind == api.OrderSave {
				save = order.Task
			}
		}
		return save != "", err
	})
	if err != nil {
		return "", err
	}
	token, a, err := m.token(ctx, fmt.Sprintf(`{"save":%q}`, save))
	if token == "" {
		return "", fmt.Errorf("no token for the ordered save: %d %s: %w", a.code, a.body, err)
	}
	return token, nil
}

// tryAtRegistry is one request of a node that no order covers. A and B are templates.
type tryAtRegistry struct{ request, body string }

const scanResult = `{"scanner":"x","version":"1","database":"2026-01-31T12:00:00Z","scanned":"2026-01-31T12:00:00Z",` +
	`"counts":{"critical":0,"high":0,"medium":0,"low":0,"unknown":0,"packages":0},"report":{}}`

var nodeTries = []tryAtRegistry{
	{"DELETE /registry/revert?id=A&version=0", ""},
	{"DELETE /registry/revert?id=A&tag=v1", ""},
	{"DELETE /registry/revert?id=B&tag=v1", ""},
	{"DELETE /registry/vm?id=A", ""},
	{"PUT /registry/vm/arch", `{"id":"A","arch":"arm64"}`},
	{"PUT /registry/vm/arch", `{"id":"B","arch":"arm64"}`},
	{"PUT /registry/v2/vm/scan?id=A&tag=v1", scanResult},
	{"DELETE /registry/v2/vm/scan?id=A&tag=v1", ""},
	{"POST /registry/v2/push", emptyPush("A", "evil", `,"must_exist":true`)},
	{"POST /registry/v2/push", emptyPush("B", "evil", `,"must_exist":true`)},
	{"POST /registry/v2/push", emptyPush("A", "evil", `,"revert":{"tag":"v1"}`)},
	{"POST /registry/v2/push", emptyPush("B", "v3", `,"must_exist":true,"revert":{"tag":"v1"}`)},
	{"POST /registry/v2/push", emptyPush("NEW", "v1", `,"name":"evil"`)},
	{"PUT /registry/files/logs/A/boot.log", "forged"},
	{"PUT /registry/files/node-scans/x.json", "forged"},
	{"DELETE /registry/files/logs/A/boot.log", ""},
	{"GET /registry/files/logs/A/boot.log", ""},
	{"POST /log/event", `{"type":"x"}`},
	{"GET /registry/v2/vm", ""},
	{"GET /registry/vm/info?id=A", ""},
	{"GET /registry/v2/pull?id=A", ""},
	{"PUT /registry/v2/pull/trace", `{"id":"A","content_id":"00","files":{"disk":{"roots":[],"frames":[1]}}}`},
	{"POST /registry/pause", `{"seconds":3}`},
	{"GET /v1/apikey", ""},
}

// nodeAttacks tries everything that a node's token must not open.
func (s *site) nodeAttacks(
	ctx context.Context, o *outcome, order func(context.Context, *site, *member) (string, error),
) {
	m, err := s.join(ctx, "hostile-"+uuid.NewString()[:8])
	if err != nil {
		o.check(err)
		return
	}
	defer m.leave(context.WithoutCancel(ctx), o)
	token, err := order(ctx, s, m)
	if err != nil {
		o.check(err)
		return
	}
	log := s.registry + "/registry/files/logs/" + s.a + "/boot.log"
	if a, err := s.rooted.send(ctx, "PUT "+log, "another node's"); err != nil || a.code != http.StatusOK {
		o.fault("upload a log: %d %v", a.code, err)
		return
	}
	shows := m.with("Bearer " + token)
	for _, t := range nodeTries {
		as := strings.NewReplacer("id=A", "id="+s.a, "id=B", "id="+s.b, `"A"`, `"`+s.a+`"`, `"B"`, `"`+s.b+`"`, "/A/",
			"/"+s.a+"/", "NEW", uuid.NewString())
		method, path, _ := strings.Cut(as.Replace(t.request), " ")
		a, err := shows.send(ctx, method+" "+s.registry+path, as.Replace(t.body))
		o.want(t.request+" "+t.body, a, err, http.StatusUnauthorized, http.StatusForbidden)
	}
	if a, err := s.rooted.send(ctx, "GET "+log, ""); err != nil || string(a.body) != "another node's" {
		o.fault("another node's log is %.100q, %v", a.body, err)
	}
	s.untouched(ctx, o, s.a, s.b)
}

// unorderedTokens asks for tokens for what a node was not ordered to do.
func unorderedTokens(ctx context.Context, s *site, o *outcome) {
	m, err := s.join(ctx, "greedy")
	if err != nil {
		o.check(err)
		return
	}
	defer m.leave(context.WithoutCancel(ctx), o)
	for _, purpose := range []string{
		fmt.Sprintf(`{"pull":%q}`, s.a), fmt.Sprintf(`{"save":%q}`, uuid.NewString()),
		fmt.Sprintf(`{"logs":%q}`, uuid.NewString()),
		fmt.Sprintf(`{"pull":%q,"rows":true}`, s.a), `{"pull":"../../"}`, `{}`,
	} {
		_, a, err := m.token(ctx, purpose)
		o.note(a, err)
		if a.code == http.StatusOK && a.envelope().Status == "OK" {
			o.fault("a token was given for %s", purpose)
		}
	}
	body := fmt.Sprintf(`{"protocol":1,"node_id":%q}`, uuid.NewString())
	a, err := m.send(ctx, "POST "+s.controller+api.PathPass, body)
	o.want("a token in the name of another node", a, err, http.StatusUnauthorized, http.StatusForbidden)
}

// forgedRows sends log rows in the name of the registry. They are taken, under the node's own name.
func forgedRows(ctx context.Context, s *site, o *outcome) {
	m, err := s.join(ctx, "forger")
	if err != nil {
		o.check(err)
		return
	}
	defer m.leave(context.WithoutCancel(ctx), o)
	token, a, err := m.token(ctx, `{"rows":true}`)
	if token == "" {
		o.fault("no token for rows: %d %s %v", a.code, a.body, err)
		return
	}
	rows := `[{"service":"registry","machine_name":"registry-host","host":"10.9.9.9","content":"forged line"},` +
		`{"service":"../../x","machine_name":"../other","host":"10.9.9.9","content":"forged line"}]`
	a, err = m.with("Bearer "+token).send(ctx, "POST "+s.registry+api.PathLog, rows)
	o.note(a, err)
	for service, own := range map[string]bool{"registry": false, "node": true} {
		text, err := s.logOf(ctx, service)
		o.check(err)
		if strings.Contains(text, "forged line") != own || strings.Contains(text, "10.9.9.9") ||
			strings.Contains(text, "registry-host") {
			o.fault("the log of the service %s has %.300q", service, text)
		}
	}
	o.refuse("rows kept under the node's own name")
}

// logOf returns the central logs of a service.
func (s *site) logOf(ctx context.Context, service string) (string, error) {
	var files []struct{ Name string }
	a, err := s.rooted.send(ctx, "GET "+s.registry+"/registry/log/files?service="+service, "")
	if err != nil || a.code != http.StatusOK || json.Unmarshal(a.envelope().Body, &files) != nil {
		return "", err // a service without logs is not known
	}
	var all strings.Builder
	for _, f := range files {
		a, err := s.rooted.send(ctx, "GET "+s.registry+"/registry/log/view?service="+service+"&file="+f.Name, "")
		if err != nil {
			return "", err
		}
		all.Write(a.body)
	}
	return all.String(), nil
}

// deletedID pushes to the ID of a deleted template as a caller who may not create or delete
// templates.
func deletedID(ctx context.Context, s *site, o *outcome) {
	id, err := s.push(ctx, "", "deleted", "v1")
	if err != nil {
		o.check(err)
		return
	}
	o.check(s.rooted.get(ctx, "DELETE "+s.registry+"/registry/vm?id="+id, nil, nil))
	pusher, err := s.keyed(ctx, "pusher", "pushers", "head_push_vm", "push_vm", "list_vms")
	if err != nil {
		o.check(err)
		return
	}
	for _, more := range []string{`,"name":"evil"`, `,"name":"deleted"`, `,"name":"evil","must_exist":true`} {
		a, err := pusher.send(ctx, "POST "+s.registry+"/registry/v2/push", emptyPush(id, "v1", more))
		o.want("a push to a deleted id"+more, a, err, http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound)
	}
	if _, err := s.tags(ctx, id); err == nil {
		o.fault("the deleted template is there again")
	}
	o.effect("the id stays deleted")
}

// reverts tries to revert with the role that is recommended for CI systems.
func reverts(ctx context.Context, s *site, o *outcome) {
	ci, err := s.keyed(ctx, "ci", "ci", "list_vms", "start_vm", "terminate_vm", "save_image", "save_revert",
		"registry_list")
	if err != nil {
		o.check(err)
		return
	}
	for _, at := range []string{
		s.registry + "/registry/revert?id=" + s.a + "&tag=v1", s.registry + "/registry/revert?id=" + s.a,
		s.registry + "/registry/vm?id=" + s.a,
		s.controller + "/api/v1/registry/revert?id=" + s.a + "&tag=v1", s.controller + "/api/v1/registry/vm?id=" + s.a,
	} {
		a, err := ci.send(ctx, "DELETE "+at, "")
		o.want("DELETE "+at, a, err, http.StatusForbidden)
	}
	s.untouched(ctx, o, s.a, s.b)
}

// keyed returns a caller from a separate address with an API key that has some permissions; none
// are all.
func (s *site) keyed(ctx context.Context, name, group string, permissions ...string) (caller, error) {
	key, err := s.key(ctx, name, group, permissions...)
	if err != nil {
		return caller{}, err
	}
	return s.attacker().as(key, s.controller, s.registry)
}
