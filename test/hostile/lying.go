package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// lyingNode has the attacks of a node that reports false data to its controller.
var lyingNode = family{name: "lying node", site: arrangement{
	nodes: 4, settings: map[string]string{"SVC_UNKNOWN_VM_THRESHOLD": "5"},
}, attacks: []attack{
	{"a host name of 1 MB at every poll", hugeHost, true},
	{"another description at every poll", manyDescriptions, true},
	{"unprintable and endless fields", unprintable, true},
	{"other nodes' ids", otherIDs, false},
	{"old sequence numbers and foreign instances", oldNumbers, false},
	{"invented VMs", inventedVMs, false},
}}

// commits returns how many transactions the store has made.
func (s *site) commits(ctx context.Context) (int, error) {
	a, err := from(rootHost).send(ctx, "GET "+s.metrics+"/metrics", "")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(a.body)))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "buildyard_store_commit_seconds_count") {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("no count of commits among the metrics: %d", a.code)
}

// lie makes a node poll so often, each time as changed by change, and returns how many commits that
// made.
func (s *site) lie(ctx context.Context, o *outcome, polls int, change func(n int, m *member, r *api.PollRequest)) {
	m, err := s.join(ctx, "liar-"+uuid.NewString()[:8])
	if err != nil {
		o.check(err)
		return
	}
	defer m.leave(context.WithoutCancel(ctx), o)
	before, err := s.commits(ctx)
	o.check(err)
	began := time.Now()
	for n := range polls {
		r := m.pollRequest(nil)
		change(n, m, &r)
		a, err := m.post(ctx, api.PathPoll+"?wait=0s", r)
		o.note(a, err)
	}
	made, err := s.commits(ctx)
	o.check(err)
	made -= before
	if made > polls/2 {
		o.fault("%d polls made %d commits", polls, made)
	}
	o.effect("%d polls in %.1f s made %d commits", polls, time.Since(began).Seconds(), made)
	s.bounded(ctx, o, m.is.NodeID)
}

// longestField is more than any field of a node may have, in bytes.
const longestField = 4096

// bounded reports a fault when the controller's description of a node is long or not printable.
func (s *site) bounded(ctx context.Context, o *outcome, id string) {
	a, err := s.rooted.send(ctx, "GET "+s.controller+"/api/v1/node?id="+id, "")
	if err != nil || a.code != http.StatusOK {
		o.fault("the node cannot be shown: %d %v", a.code, err)
		return
	}
	if len(a.body) > 16*longestField {
		o.fault("the node is shown in %d bytes", len(a.body))
	}
	for _, bad := range []string{`\u001b`, "\x1b", `\u0000`} {
		if strings.Contains(string(a.body), bad) {
			o.fault("the node is shown with %q", bad)
		}
	}
}

const polls = 200

func hugeHost(ctx context.Context, s *site, o *outcome) {
	s.lie(ctx, o, polls/4, func(n int, _ *member, r *api.PollRequest) {
		r.Host = strings.Repeat("h", 1<<20) + strconv.Itoa(n)
	})
	if o.tried == 0 {
		return
	}
	o.refuse("bounded")
}

func manyDescriptions(ctx context.Context, s *site, o *outcome) {
	s.lie(ctx, o, polls, func(n int, m *member, r *api.PollRequest) {
		info := m.info
		info.FreeDisk, info.Hypervisor = int64(n)<<26, fmt.Sprint("8.0.", n)
		r.Info, r.InfoHash = &info, fmt.Sprint("i", n)
		r.Host = fmt.Sprintf("10.0.0.%d", n%250)
	})
	o.refuse("paced")
}

func unprintable(ctx context.Context, s *site, o *outcome) {
	evil := "\x1b[2J\x00\u202e<script>alert(1)</script>" + strings.Repeat("x", 100_000)
	s.lie(ctx, o, polls/4, func(n int, m *member, r *api.PollRequest) {
		info := m.info
		info.OS, info.Hypervisor, info.Machine, info.CPUModel, info.License, info.AgentVersion = evil, evil, evil, evil,
			evil, evil
		info.Abilities = []string{evil}
		info.Templates = []api.NodeTemplate{{ID: evil}}
		info.USB = []api.USBDevice{{Name: evil, Location: evil}}
		r.Info, r.InfoHash, r.BootID = &info, fmt.Sprint("i", n), "boot"
	})
	o.refuse("bounded")
}

// otherIDs uses the credential of one node in the name of another.
func otherIDs(ctx context.Context, s *site, o *outcome) {
	m, err := s.join(ctx, "impostor")
	if err != nil {
		o.check(err)
		return
	}
	defer m.leave(context.WithoutCancel(ctx), o)
	var list []api.Node
	o.check(s.rooted.get(ctx, "GET "+s.controller+"/api/v1/node", nil, &list))
	for _, n := range list {
		if n.NodeID == m.is.NodeID {
			continue
		}
		poll := m.pollRequest(nil)
		poll.NodeID = n.NodeID
		report := api.Report{Protocol: api.LinkProtocol, NodeID: n.NodeID, BootID: "boot", Seq: 1 << 40}
		for path, body := range map[string]any{
			api.PathPoll + "?wait=0s": poll, api.PathReport: report,
			api.PathPass:    api.RegistryTokenRequest{Protocol: api.LinkProtocol, NodeID: n.NodeID},
			api.PathDisjoin: map[string]string{"node_id": n.NodeID},
			api.PathJoin: api.JoinRequest{
				Protocol: api.LinkProtocol, NodeID: n.NodeID, Credential: m.is.Credential, Name: "x", Host: "127.0.0.1",
			},
		} {
			a, err := m.post(ctx, path, body)
			o.want(path+" in the name of another node", a, err, http.StatusUnauthorized, http.StatusForbidden)
		}
	}
	var after []api.Node
	o.check(s.rooted.get(ctx, "GET "+s.controller+"/api/v1/node", nil, &after))
	if len(after) != len(list) {
		o.fault("%d nodes were %d before", len(after), len(list))
	}
}

// oldNumbers reports the end of an instance with an old number, and of instances of other nodes.
func oldNumbers(ctx context.Context, s *site, o *outcome) {
	m, err := s.join(ctx, "late")
	if err != nil {
		o.check(err)
		return
	}
	defer m.leave(context.WithoutCancel(ctx), o)
	var victim, own []string
	o.check(s.rooted.get(ctx, "POST "+s.controller+"/api/v1/vm", map[string]any{"vmid": s.a, "group_id": s.builds},
		&victim))
	o.check(s.rooted.get(ctx, "POST "+s.controller+"/api/v1/vm", map[string]any{"vmid": s.a, "node_id": m.is.NodeID},
		&own))
	if len(victim) == 0 || len(own) == 0 {
		return
	}
	o.check(m.run(ctx, own[0]))
	o.check(s.await(ctx, "the instance of another node",
		func() (bool, error) { return s.state(ctx, victim[0]) == "Started", nil }))
	claim := ""
	if len(m.held) > 0 {
		claim = m.held[0].Claim
	}
	lies := []api.InstanceStatus{
		{InstanceID: own[0], Claim: claim, No: 0, Phase: api.PhaseVanished},
		{InstanceID: own[0], Claim: uuid.NewString(), No: 99, Phase: api.PhaseVanished},
		{InstanceID: victim[0], Claim: claim, No: 99, Phase: api.PhaseVanished},
		{InstanceID: victim[0], Claim: uuid.NewString(), No: 1 << 60, Phase: api.PhaseFailed, Message: "a lie"},
		{InstanceID: uuid.NewString(), Claim: claim, No: 1, Phase: api.PhaseRunning},
	}
	for _, lie := range lies {
		if err := m.report(ctx, lie); err != nil {
			o.refuse("refused")
		} else {
			o.refuse("counts for nothing")
		}
	}
	for _, id := range []string{own[0], victim[0]} {
		if state := s.state(ctx, id); state != "Started" {
			o.fault("the instance %s is %s after that", id, state)
		}
		o.check(s.rooted.get(ctx, "DELETE "+s.controller+"/api/v1/vm", map[string]string{"id": id}, nil))
	}
	o.check(m.report(ctx, api.InstanceStatus{InstanceID: own[0], Claim: claim, No: 3, Phase: api.PhaseTerminated}))
}

// state returns the state of an instance; "" when it is not known.
func (s *site) state(ctx context.Context, id string) string {
	var inst api.Instance
	if s.rooted.get(ctx, "GET "+s.controller+"/api/v1/vm?id="+id, nil, &inst) != nil {
		return ""
	}
	return inst.InstanceState
}

// Orphaned VMs are removed after so long and so many reports; see CONTRACT, section 5.
const (
	orphanAge   = 150 * time.Second
	orphanPolls = 5 * time.Second
)

// inventedVMs has one node report many VMs that no record has. An orphaned VM of another node goes all the same.
func inventedVMs(ctx context.Context, s *site, o *outcome) {
	liar, err := s.join(ctx, "inventor")
	if err != nil {
		o.check(err)
		return
	}
	defer liar.leave(context.WithoutCancel(ctx), o)
	honest, err := s.join(ctx, "honest")
	if err != nil {
		o.check(err)
		return
	}
	defer honest.leave(context.WithoutCancel(ctx), o)
	var ids []string
	o.check(s.rooted.get(ctx, "POST "+s.controller+"/api/v1/vm",
		map[string]any{"vmid": s.a, "node_id": honest.is.NodeID, "count": 5}, &ids))
	for _, id := range ids {
		o.check(honest.run(ctx, id))
	}
	var invented []api.InventoryItem
	for range 50 {
		invented = append(invented, api.InventoryItem{VMID: uuid.NewString()})
	}
	orphan := api.InventoryItem{VMID: uuid.NewString()}
	honest.held = append(honest.held, orphan)
	began, removed := time.Now(), false
	for time.Since(began) < 2*orphanAge && !removed && ctx.Err() == nil {
		gone, err := liar.orders(ctx, invented)
		o.check(err)
		if len(gone) > 0 {
			o.fault("%d invented VMs are ordered away, as if the node had them", len(gone))
			break
		}
		o.refuse("invented VMs undecided")
		if gone, err = honest.orders(ctx, honest.held); err != nil {
			o.check(err)
			break
		}
		for _, id := range gone {
			removed = removed || id == orphan.VMID
			if id != orphan.VMID {
				o.fault("the VM %s of another node is ordered away", id)
			}
		}
		rig.Pause(ctx, orphanPolls)
	}
	if took := time.Since(began); !removed {
		o.fault("an orphaned VM of another node is not removed after %.0f s beside 50 invented ones", took.Seconds())
	} else {
		o.effect("an orphaned VM of another node was removed after %.0f s", took.Seconds())
	}
	for _, id := range ids {
		o.check(s.rooted.get(ctx, "DELETE "+s.controller+"/api/v1/vm", map[string]string{"id": id}, nil))
		o.check(honest.report(ctx,
			api.InstanceStatus{InstanceID: id, Claim: honest.claim(id), No: 9, Phase: api.PhaseTerminated}))
	}
}

// claim returns the claim under which the node holds an instance.
func (m *member) claim(id string) string {
	for _, h := range m.held {
		if h.InstanceID == id {
			return h.Claim
		}
	}
	return ""
}

// orders sends the inventory of the node, describes the requested VMs, and returns those that it is
// ordered to remove.
func (m *member) orders(ctx context.Context, held []api.InventoryItem) (gone []string, err error) {
	a, err := m.poll(ctx, held)
	if err != nil {
		return nil, err
	}
	if len(a.Describe) > 0 {
		var details []api.InventoryDetail
		for _, id := range a.Describe {
			details = append(details, api.InventoryDetail{ID: id, Status: api.InstanceStatus{Phase: api.PhaseRunning}})
		}
		if a, err = m.poll(ctx, held, details...); err != nil {
			return nil, err
		}
	}
	for _, order := range a.Orders {
		if order.Kind == api.OrderTerminate {
			gone = append(gone, order.InstanceID)
		}
	}
	return gone, nil
}
