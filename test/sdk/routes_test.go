package sdk_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// notOurs are routes that the client has no methods for, with why; * is any end of a path.
var notOurs = map[string]string{
	"/queue/v1/*":        "what nodes say",
	"/pkg/*":             "what nodes download",
	"/registry/v2/push*": "the wire of push and pull",
	"/registry/v2/pull*": "the wire of push and pull",
	"/registry/v2/blob*": "the wire of push and pull",
	"/api/v1/openapi*":   "the description of the API",
	"/registry/openapi*": "the description of the API",
	"/api":               "a page for browsers",
	"/registry/api":      "a page for browsers",
	"/registry/log/page": "a page for browsers",
	"/api/v1/log/page":   "a page for browsers",
	"/{$}":               "a page for browsers",
	"/login*":            "pages for browsers",
	"/logout":            "for browsers",
	"/oidc/v1/callback":  "for browsers",
	"/config/v1/auth":    "what programs that log people in discover",
	"/admin/v1/api*":     "another spelling of /admin/api/v1",
	"PUT /admin/api/v1/permission/group/{groupName}": "the same as POST",
}

// calls records the calls of a client.
type calls struct {
	mu   sync.Mutex
	made map[string]bool // "METHOD /path" as requested
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.made[r.Method+" "+r.URL.Path] = true
	c.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// TestEveryRouteHasAMethod calls all of them against real services: each works, and
// no route is left out.
func TestEveryRouteHasAMethod(t *testing.T) {
	made := &calls{made: map[string]bool{}}
	r, err := client.NewRegistry(registryAt, client.Options{Transport: made})
	if err != nil {
		t.Fatal(err)
	}
	x := &tour{T: t, c: controller(t, client.Options{Transport: made}), r: r}
	x.good = nodeCalled(t, x.c, "good-0001")
	for _, visit := range []struct {
		name string
		do   func()
	}{
		{"states", x.states},
		{"nodes", x.nodes},
		{"join tokens", x.joinTokens},
		{"rollouts", x.rollouts},
		{"groups", x.groups},
		{"pools", x.pools},
		{"instances", x.instances},
		{"failures", x.failures},
		{"saves", x.saves},
		{"distributions", x.distributions},
		{"networks", x.networks},
		{"events", x.events},
		{"logs", x.logs},
		{"files", x.files},
		{"storage", x.storage},
		{"scans", x.scans},
		{"scans of nodes", x.nodeScans},
		{"vulnerabilities", x.vulnerabilities},
		{"templates", x.templates},
		{"access", func() { x.access(made) }},
	} {
		t.Run(visit.name, func(t *testing.T) {
			x.T = t
			visit.do()
		})
	}
	mux := http.NewServeMux()
	var patterns []string
	for _, route := range slices.Concat(controllerrest.Routes(), registryrest.Routes(nil),
		accessRoutes(farm.ServiceController), accessRoutes(farm.ServiceRegistry)) {
		if _, path, _ := strings.Cut(route.Pattern, " "); !left(path) && !left(route.Pattern) &&
			!slices.Contains(patterns, route.Pattern) {
			patterns = append(patterns, route.Pattern)
			mux.Handle(route.Pattern, http.NotFoundHandler())
		}
	}
	met := map[string]bool{}
	for call := range made.made {
		method, path, _ := strings.Cut(call, " ")
		_, pattern := mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
		met[pattern] = true
	}
	for _, pattern := range patterns {
		if !met[pattern] {
			t.Errorf("the client has no method for %s, or this test does not call it", pattern)
		}
	}
}

// left reports whether a route is one that the client has no method for.
func left(path string) bool {
	for other := range notOurs {
		if beginning, open := strings.CutSuffix(other, "*"); path == other ||
			open && strings.HasPrefix(path, beginning) {
			return true
		}
	}
	return false
}

// tour calls the methods of both clients.
type tour struct {
	*testing.T
	c    *client.Controller
	r    *client.Registry
	good string // a node
}

// ok fails the test at the first error.
func (x *tour) ok(errs ...error) {
	x.Helper()
	for _, err := range errs {
		if err != nil {
			x.Fatal(err)
		}
	}
}

// start starts an instance of debian on the good node and waits for it.
func (x *tour) start(r client.StartRequest) api.Instance {
	x.Helper()
	if r.TemplateID = debian; r.NodeID == "" {
		r.NodeID = x.good
	}
	ids, err := x.c.Start(x.Context(), r)
	x.ok(err)
	i, err := x.c.WaitStarted(x.Context(), ids[0], nil)
	x.ok(err)
	return i
}

// all reads a stream to its end.
func (x *tour) all(s *client.Stream, err error) string {
	x.Helper()
	x.ok(err)
	text, err := io.ReadAll(s)
	x.ok(err, s.Close())
	return string(text)
}

func (x *tour) states() {
	ctx := x.Context()
	x.ok(x.c.Live(ctx), x.c.Ready(ctx), x.r.Live(ctx), x.r.Ready(ctx))
	status, err := x.c.Status(ctx)
	x.ok(err)
	x.searches()
	series, err := x.c.Series(ctx, api.RangeDay)
	x.ok(err)
	if series.Step != 600 || len(series.Points) == 0 {
		x.Errorf("%+v", series)
	}
	stats, err := x.c.Stats(ctx)
	x.ok(err)
	disk, err := x.c.RegistryDisk(ctx)
	x.ok(err)
	same, err := x.r.Disk(ctx)
	x.ok(err)
	if status.RegistryStatus != "Running" || stats.Capacity == 0 || disk.Total == 0 || disk.Total != same.Total {
		x.Errorf("%+v %+v %+v %+v", status, stats, disk, same)
	}
	m, err := x.c.BeginMaintenance(ctx, api.BeginMaintenance{Reason: "a test", For: "1h"})
	x.ok(err)
	now, err := x.c.Maintenance(ctx)
	x.ok(err, x.c.EndMaintenance(ctx))
	if !m.On || now.Reason != "a test" {
		x.Errorf("%+v %+v", m, now)
	}
	if text := x.all(x.c.Backup(ctx)); len(text) < 1000 {
		x.Errorf("a backup of %d bytes", len(text))
	}
}

// tables requests parts of lists like tables show them. The instances that it starts do not use the template
// whose pull other tests check.
func (x *tour) tables(node string) {
	ctx := x.Context()
	ids, err := x.c.Start(ctx, client.StartRequest{TemplateID: old, Name: "row", Count: 3})
	x.ok(err)
	rows, err := x.c.InstancePage(ctx, client.PageOptions{Filter: "name:row", Sort: "-age", Skip: 1, Limit: 1})
	x.ok(err)
	if rows.Total != len(ids) || len(rows.Instances) != 1 || rows.Templates[old] == "" {
		x.Errorf("%+v", rows)
	}
	for _, id := range ids {
		x.ok(x.c.Terminate(ctx, id))
	}
	nodes, err := x.c.NodePage(ctx, client.PageOptions{Filter: "id:" + node, Sort: "name"})
	x.ok(err)
	if nodes.Total != 1 || len(nodes.Nodes) != 1 || nodes.Nodes[0].NodeID != node ||
		nodes.States[nodes.Nodes[0].State] != 1 {
		x.Errorf("%+v", nodes)
	}
	templates, err := x.c.TemplatePage(ctx, client.PageOptions{Filter: "id:" + debian, Sort: "-nodes"})
	x.ok(err)
	if templates.Total != 1 || len(templates.Templates) != 1 || templates.Templates[0].LatestTag == "" ||
		templates.Templates[0].VersionCount == 0 {
		x.Errorf("%+v", templates)
	}
	holders, err := x.c.TemplateNodes(ctx, debian)
	x.ok(err)
	if len(holders) != templates.Templates[0].Nodes {
		x.Errorf("%+v", holders)
	}
	if _, err := x.c.TemplateScan(ctx, debian, client.Version{}); !errors.Is(err, client.ErrNotFound) {
		x.Error(err)
	}
	rights, err := x.c.Rights(ctx, client.RightsQuery{Nodes: []string{node}, Template: debian})
	x.ok(err)
	if !rights.Root || !slices.Contains(rights.Permissions, "start_vm") {
		x.Errorf("%+v", rights)
	}
	if _, err := x.c.NodePage(ctx, client.PageOptions{Sort: "colour"}); !errors.Is(err, client.ErrInvalid) {
		x.Error(err)
	}
}

func (x *tour) nodes() {
	ctx := x.Context()
	id := nodeCalled(x.T, x.c, "good-0002")
	yes, no := true, false
	x.tables(id)
	x.ok(x.c.ConfigureNode(ctx, client.NodeConfig{NodeID: id, Drain: &yes, DrainReason: "a test", MaxVMCount: 7}))
	n, err := x.c.WaitDrained(ctx, id, nil)
	x.ok(err, x.c.ConfigureNode(ctx, client.NodeConfig{NodeID: id, Drain: &no}))
	if n.Drain.Reason != "a test" || n.Capacity != 7 {
		x.Errorf("%+v", n)
	}
	unknown, err := x.c.OrphanedVMs(ctx, "")
	x.ok(err)
	adopted, err := x.c.ResolveOrphanedVMs(ctx, api.OrphanDecision{Node: id, Action: "keep", DryRun: true})
	x.ok(err)
	if len(unknown)+len(adopted) != 0 {
		x.Errorf("%+v %+v", unknown, adopted)
	}
	if err := x.c.UpdateNodes(ctx, "0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22"); !errors.Is(err, client.ErrNotFound) {
		x.Errorf("the update of no node: %v", err)
	}
}

func (x *tour) groups() {
	ctx := x.Context()
	spare, err := x.c.CreateGroup(ctx, client.GroupRequest{Name: "spare"})
	x.ok(err)
	text := "for builds"
	ci, err := x.c.CreateGroup(ctx, client.GroupRequest{Name: "ci", FallbackID: spare.ID})
	x.ok(err, x.c.UpdateGroup(ctx, ci.ID, client.GroupRequest{Description: &text, FallbackID: client.NoFallback}))
	x.ok(x.c.AddNodeToGroups(ctx, x.good, ci.ID, spare.ID), x.c.RemoveNodeFromGroups(ctx, x.good, spare.ID))
	list, err := x.c.Groups(ctx, client.ListOptions{Filter: "name:ci"})
	x.ok(err)
	in, err := x.c.Nodes(ctx, client.ListOptions{Filter: "group:ci"})
	x.ok(err)
	if len(list) != 1 || list[0].Description != text || list[0].FallbackGroupID != nil || len(in) != 1 ||
		len(in[0].Groups) != 1 {
		x.Errorf("%+v %+v", list, in)
	}
	text = ""
	x.ok(x.c.UpdateGroup(ctx, ci.ID, client.GroupRequest{Description: &text}))
	if list, err := x.c.Groups(ctx, client.ListOptions{Filter: "id:" + ci.ID}); err != nil || len(list) != 1 ||
		list[0].Description != "" || list[0].Name != "ci" {
		x.Errorf("%+v %v", list, err)
	}
	x.ok(x.c.DeleteGroup(ctx, ci.ID), x.c.DeleteGroup(ctx, spare.ID))
}

func (x *tour) instances() {
	ctx := x.Context()
	i := x.start(client.StartRequest{
		Name: "first", ExternalID: "job-1", TTL: client.Duration(time.Hour), Metadata: map[string]any{"branch": "main"},
		StartupScript: []byte("true"), ScriptMonitoring: true, IdempotencyKey: client.NewKey(),
	})
	script, err := x.c.WaitScript(ctx, i.InstanceID)
	x.ok(err)
	why, err := x.c.Explain(ctx, i.InstanceID)
	x.ok(err)
	if script.ReturnCode != 0 || why.Explain.Reason == "" || why.InstanceState != "Started" {
		x.Errorf("%+v %+v", script, why)
	}
	screen, err := x.c.ConsoleOf(ctx, i.InstanceID)
	x.ok(err)
	seen, err := x.c.OpenConsole(ctx, i.InstanceID)
	x.ok(err)
	width, height, err := hvtest.View(seen, hvtest.NoPassword)
	x.ok(err)
	x.ok(seen.Close())
	if screen.NodeID != i.NodeID || width*height == 0 {
		x.Errorf("%+v, a picture of %d x %d", screen, width, height)
	}
	x.ok(x.c.Restart(ctx, client.RestartRequest{InstanceID: i.InstanceID}))
	_, err = x.c.WaitRestarted(ctx, i.InstanceID, i.VMInfo.StartDate)
	x.ok(err)
	name, forever := "second", client.Duration(0)
	x.ok(x.c.UpdateInstance(ctx, i.InstanceID,
		client.InstanceUpdate{Name: &name, TTL: &forever, Metadata: map[string]any{}}))
	for item, err := range x.c.EachInstance(ctx, client.ListOptions{ExternalID: "job-1", Limit: 1}) {
		x.ok(err)
		if item.VM.Name != name || len(item.VM.Metadata) != 0 || !item.VM.Expires.IsZero() {
			x.Errorf("%+v", item.VM)
		}
	}
	for change, err := range x.c.WatchInstances(ctx, client.InstanceWatch{}) {
		x.ok(err)
		if change.InstanceID == i.InstanceID && change.Type == client.ChangeSet &&
			change.Instance.VM.InstanceState == "Started" {
			x.ok(x.c.Terminate(ctx, i.InstanceID))
		}
		if change.InstanceID == i.InstanceID && change.Type == client.ChangeGone {
			break
		}
	}
	x.ok(x.c.WaitGone(ctx, i.InstanceID))
	past, err := x.c.HistoryInstance(ctx, i.InstanceID)
	x.ok(err)
	list, err := x.c.History(ctx, client.ListOptions{ExternalID: "job-1"})
	x.ok(err)
	if len(past.Transitions) < 4 || len(list) != 1 {
		x.Errorf("%+v %+v", past, list)
	}
}

// failures starts what fails, and reads the log that it leaves.
func (x *tour) failures() {
	ctx := x.Context()
	end := cloud.Join(fleet.Options{NamePrefix: "bad", NodeCount: 1, Sim: sim.Options{BootFailureRate: 1}})
	defer end()
	bad := nodeCalled(x.T, x.c, "bad-0001")
	ids, err := x.c.Start(ctx, client.StartRequest{TemplateID: debian, NodeID: bad})
	x.ok(err)
	_, err = x.c.WaitStarted(ctx, ids[0], nil)
	if e, ok := errors.AsType[*client.WaitError](err); !ok || e.State != "Error" || e.Reason == "" {
		x.Errorf("a start that fails: %v", err)
	}
	_, err = x.c.WaitScript(ctx, ids[0])
	if _, ok := errors.AsType[*client.WaitError](err); !ok {
		x.Errorf("the script of one: %v", err)
	}
	// Simulated nodes send no logs.
	_, err = x.r.Upload(ctx, "logs/"+ids[0]+"/start.log", strings.NewReader("it broke\n"), "")
	x.ok(err)
	list, err := x.c.VMLogs(ctx, ids[0])
	x.ok(err)
	if len(list) != 1 || list[0].Name != "start.log" || list[0].Size != 9 {
		x.Errorf("%+v", list)
	}
	if text := x.all(x.c.VMLog(ctx, ids[0], "start.log")); text != "it broke\n" {
		x.Errorf("%q", text)
	}
	if _, err := x.c.VMLog(ctx, ids[0], "end.log"); !errors.Is(err, client.ErrNotFound) {
		x.Errorf("no such log: %v", err)
	}
	x.ok(x.c.Terminate(ctx, ids[0]))
	x.ok(x.c.DeleteNode(ctx, bad))
}

func (x *tour) saves() {
	ctx := x.Context()
	i := x.start(client.StartRequest{})
	request, err := x.c.Save(ctx, client.SaveRequest{
		InstanceID: i.InstanceID, Tag: "v1", NewTemplateName: "saved", IdempotencyKey: client.NewKey(),
	})
	x.ok(err)
	s, err := x.c.WaitSaved(ctx, request, nil)
	x.ok(err)
	list, err := x.c.Saves(ctx, client.ListOptions{Filter: "state:done"})
	x.ok(err, x.c.WaitGone(ctx, i.InstanceID))
	if s.Status != "done" || len(list) == 0 {
		x.Errorf("%+v %+v", s, list)
	}
	if _, err := x.c.SaveStatus(ctx, i.InstanceID); !errors.Is(err, client.ErrNotFound) {
		x.Error(err)
	}
}

func (x *tour) distributions() {
	ctx := x.Context()
	request, err := x.c.Distribute(ctx,
		client.DistributeRequest{
			TemplateID: old, Tag: "v1", NodeIDs: []string{x.good},
			IdempotencyKey: client.NewKey(),
		})
	x.ok(err)
	d, err := x.c.WaitDistributed(ctx, request, nil)
	x.ok(err)
	list, err := x.c.Distributions(ctx, client.ListOptions{Filter: "template:old"})
	x.ok(err, x.c.CancelDistribution(ctx, request))
	if !d.Status[x.good].Status || len(list) != 1 {
		x.Errorf("%+v %+v", d, list)
	}
	removal, err := x.c.RemoveFromNodes(ctx, old, x.good)
	x.ok(err)
	r, err := x.c.WaitRemoved(ctx, removal.RequestID)
	x.ok(err)
	all, err := x.c.Removals(ctx, client.ListOptions{})
	x.ok(err)
	if s := r.Status[x.good]; !s.Status || s.Removed == 0 || len(all) != 1 {
		x.Errorf("%+v %+v", r, all)
	}
}

func (x *tour) networks() {
	ctx := x.Context()
	usb, err := x.c.USB(ctx)
	x.ok(err)
	vlans, err := x.c.VLANs(ctx)
	x.ok(err)
	if usb["phone"].Available != 2 || vlans == nil {
		x.Errorf("%+v %+v", usb, vlans)
	}
	x.ok(x.c.PurgeMACs(ctx), x.c.PopulateMACs(ctx))
	n, err := x.c.CountMACs(ctx, client.AllMACs)
	x.ok(err)
	free, err := x.c.MACAddresses(ctx, client.FreeMACs, 2, "52:54:00:00:00:0F")
	x.ok(err)
	if n != 256 || len(free) != 2 || free[0].MACAddress != "52:54:00:00:00:10" {
		x.Errorf("%d addresses, %+v", n, free)
	}
}

func (x *tour) events() {
	ctx := x.Context()
	heard := make(chan client.Event, 1)
	go func() {
		for e, err := range x.c.WatchEvents(ctx, client.EventWatch{Filter: "name:StartVM"}) {
			if err == nil {
				heard <- e
			}
			return
		}
	}()
	i := x.start(client.StartRequest{})
	for e := (client.Event{}); e.Name == ""; { // the watch may have begun after the start
		select {
		case e = <-heard:
			if e.Name != "StartVM" || e.InstanceID == "" || e.All["template_id"] != debian {
				x.Errorf("%+v", e)
			}
		case <-time.After(2 * time.Second):
			x.ok(x.c.Terminate(ctx, x.start(client.StartRequest{}).InstanceID))
		}
	}
	list, err := x.c.Events(ctx, client.EventQuery{Filter: "instance:" + i.InstanceID})
	x.ok(err, x.c.Terminate(ctx, i.InstanceID))
	if len(list) == 0 || list[0].Name != "StartVM" {
		x.Errorf("%+v", list)
	}
}

func (x *tour) logs() {
	ctx := x.Context()
	row := api.LogRow{MachineName: "m1", Service: "mine", Host: "h1", Content: "the first row"}
	taken, err := x.r.Send(ctx, []api.LogRow{row})
	x.ok(err)
	events, err := x.r.SendEvents(ctx, []map[string]any{{"name": "Mine", "time": 1}})
	x.ok(err)
	if taken.Rows != 1 || events.Rows != 1 {
		x.Errorf("%+v %+v", taken, events)
	}
	for _, l := range []client.Logs{x.c.Logs(), x.r.Logs()} {
		_, err := l.Entries(ctx, client.LogQuery{Service: "mine", Limit: 1})
		x.ok(err)
		services, err := l.Services(ctx)
		x.ok(err)
		files, err := l.Files(ctx, "mine")
		x.ok(err)
		if len(files) != 1 ||
			!slices.ContainsFunc(services, func(s api.LogService) bool { return s.Service == "mine" }) {
			x.Fatalf("%+v %+v", services, files)
		}
		for _, v := range []client.LogView{{Service: "mine"}, {Service: "mine", File: files[0].Name, Lines: 1}} {
			if text := x.all(l.View(ctx, v)); !strings.Contains(text, "the first row") {
				x.Errorf("%+v: %q", v, text)
			}
		}
		if text := x.all(l.Archive(ctx, "mine")); !strings.HasPrefix(text, "\x1f\x8b") {
			x.Errorf("an archive that begins with %.10q", text)
		}
		told := 0
		for text, err := range l.Follow(ctx, client.LogFollow{Service: "mine", Last: 1}) {
			x.ok(err)
			if told++; told == 1 {
				_, err = x.r.Send(ctx, []api.LogRow{row})
				x.ok(err)
			}
			if !strings.Contains(text, "the first row") {
				x.Errorf("%q", text)
			}
			if told == 2 {
				break
			}
		}
		if _, err := l.Files(ctx, "nobody"); !errors.Is(err, client.ErrNotFound) {
			x.Error(err)
		}
	}
}

func (x *tour) files() {
	ctx := x.Context()
	content := bytes.Repeat([]byte("0123456789"), 200_000)
	sum := sha256.Sum256(content)
	name := "tools/set up+#1 100%.bin"
	got, err := x.r.Upload(ctx, name, bytes.NewReader(content), hex.EncodeToString(sum[:]))
	x.ok(err)
	if got.Size != int64(len(content)) || got.SHA256 != hex.EncodeToString(sum[:]) || got.Name != name {
		x.Errorf("%+v", got)
	}
	// A stream of unknown length.
	_, err = x.r.Upload(ctx, name, io.MultiReader(bytes.NewReader(content)), "")
	x.ok(err)
	_, err = x.r.Upload(ctx, name, bytes.NewReader(content), strings.Repeat("0", 64))
	if !errors.Is(err, client.ErrInvalid) {
		x.Errorf("a wrong sum: %v", err)
	}
	top, err := x.c.Files(ctx, "")
	x.ok(err)
	in, err := x.r.Files(ctx, "tools")
	x.ok(err)
	if len(in) != 1 || in[0].Size != int64(len(content)) ||
		!slices.ContainsFunc(top, func(f api.StoredFile) bool { return f.Dir && f.Name == "tools" }) {
		x.Errorf("%+v %+v", top, in)
	}
	if x.all(x.c.File(ctx, name)) != string(content) || x.all(x.r.File(ctx, name)) != string(content) {
		x.Error("the file has other bytes")
	}
	for _, bad := range []string{"", "..", "../x", "/x", "a//b", "a/", "."} {
		_, err := x.c.File(ctx, bad)
		_, wrong := x.r.Upload(ctx, bad, strings.NewReader(""), "")
		if !errors.Is(err, client.ErrInvalid) || !errors.Is(wrong, client.ErrInvalid) ||
			!errors.Is(x.r.DeleteFile(ctx, bad), client.ErrInvalid) {
			x.Errorf("a file called %q: %v, %v", bad, err, wrong)
		}
	}
	x.ok(x.r.DeleteFile(ctx, name)) // and the directory, which is empty now
	_, err = x.r.File(ctx, name)
	if again := x.r.DeleteFile(ctx, "tools"); !errors.Is(err, client.ErrNotFound) ||
		!errors.Is(again, client.ErrNotFound) {
		x.Error(err, again)
	}
}

func (x *tour) storage() {
	if r, err := x.r.Rights(x.Context(), ""); err != nil || !r.Allows("pull_vm") || !r.On("any", "pull") {
		x.Errorf("rights: %+v, %v", r, err)
	}
	ctx := x.Context()
	status, err := x.r.Status(ctx)
	x.ok(err)
	names, err := x.r.Names(ctx)
	x.ok(err)
	list, err := x.r.Templates(ctx)
	x.ok(err)
	one, err := x.r.Template(ctx, debian)
	x.ok(err)
	number := 0
	config, raw, err := x.r.Config(ctx, debian, client.Version{Number: &number})
	x.ok(err)
	stats, err := x.r.Stats(ctx)
	x.ok(err)
	if status.Status != "Running" || names[debian] != "debian" || len(list) < 2 || len(one.Versions) < 2 ||
		config.CPU.Cores != 1 || len(raw) == 0 || stats.Templates == 0 {
		x.Errorf("%+v %+v %+v %+v %+v %+v", status, names, list, one, config, stats)
	}
	x.ok(x.r.SetArch(ctx, debian, "amd64"), x.r.Pause(ctx, time.Second))
	_, err = x.r.StartStorageJob(ctx, api.StorageJobRequest{Do: api.StorageJobGC, DryRun: true})
	x.ok(err)
	for u := (api.StorageJob{}); u.State != api.StorageJobDone; {
		u, err = x.r.StorageJob(ctx)
		x.ok(err)
	}
	_, err = x.r.CancelStorageJob(ctx)
	x.ok(err)
}

func (x *tour) scans() {
	ctx, latest := x.Context(), client.Version{}
	one, err := x.r.Template(ctx, debian)
	x.ok(err)
	newest := one.Versions[len(one.Versions)-1]
	scan := api.TemplateScan{
		ContentID: newest.ContentID, Report: []byte(`{"matches":[]}`),
		ScanSummary: api.ScanSummary{
			Scanner: "imagescan", Version: "1", Database: time.Unix(1e9, 0).UTC(), Scanned: time.Unix(2e9, 0).UTC(),
			Partial: true, Counts: api.ScanCounts{High: 3},
		},
	}
	x.ok(x.r.PutScan(ctx, debian, client.Version{Tag: newest.Tag, Number: &newest.Number}, scan))
	got, err := x.r.GetScan(ctx, debian, latest)
	x.ok(err)
	if got.ScanSummary != scan.ScanSummary || got.ContentID != scan.ContentID ||
		string(got.Report) != string(scan.Report) {
		x.Errorf("%+v", got)
	}
	viaController, err := x.c.Template(ctx, debian)
	x.ok(err)
	if s := viaController.Versions[newest.Number].Scan; s == nil || *s != scan.ScanSummary {
		x.Errorf("through the controller: %+v", s)
	}
	scan.ContentID = strings.Repeat("0", 64)
	if err := x.r.PutScan(ctx, debian, latest, scan); !errors.Is(err, client.ErrConflict) {
		x.Errorf("of other bytes: %v", err)
	}
	x.ok(x.r.DeleteScan(ctx, debian, latest))
	_, err = x.r.GetScan(ctx, debian, latest)
	for _, err := range []error{err, x.r.DeleteScan(ctx, debian, latest)} {
		if !errors.Is(err, client.ErrNotFound) {
			x.Errorf("without results: %v", err)
		}
	}
	if err := x.r.PutScan(ctx, debian, client.Version{Tag: "nope"}, scan); !errors.Is(err, client.ErrNoVersion) {
		x.Errorf("of no version: %v", err)
	}
}

func (x *tour) nodeScans() {
	ctx := x.Context()
	if _, err := x.c.NodeScan(ctx, x.good); !errors.Is(err, client.ErrNotFound) {
		x.Errorf("before any: %v", err)
	}
	scan := api.NodeScan{
		NodeScanSummary: api.NodeScanSummary{
			Host: "build-7", Scanner: "hostscan", Version: "1", Scanned: time.Now(),
			Counts: api.NodeScanCounts{ScanCounts: api.ScanCounts{High: 1, Packages: 1}},
		},
		Vulnerabilities: []api.HostVulnerability{{Vulnerability: api.HostFinding{ID: "CVE-2026-1"}}},
		Packages:        []api.HostPackage{},
	}
	x.ok(x.c.PutNodeScan(ctx, x.good, scan))
	got, err := x.c.NodeScan(ctx, x.good)
	x.ok(err)
	if got.NodeID != x.good || got.Counts != scan.Counts || got.Vulnerabilities[0].Vulnerability.ID != "CVE-2026-1" {
		x.Errorf("%+v", got)
	}
	list, err := x.c.NodeScans(ctx, client.ListOptions{})
	x.ok(err)
	if len(list) != 1 || list[0] != got.NodeScanSummary {
		x.Errorf("%+v", list)
	}
	scan.Scanned = scan.Scanned.Add(-time.Hour)
	if err := x.c.PutNodeScan(ctx, x.good, scan); !errors.Is(err, client.ErrConflict) {
		x.Errorf("older ones: %v", err)
	}
}

func (x *tour) templates() {
	ctx := x.Context()
	x.ok(x.c.RevertTemplate(ctx, old, client.Version{Tag: "v2"}),
		x.r.RevertTemplate(ctx, older, client.Version{Tag: "v2"}))
	for _, err := range []error{x.c.RevertTemplate(ctx, old, client.Version{Tag: "v2"}), x.r.RevertTemplate(ctx, older,
		client.Version{Tag: "v2"})} {
		if !errors.Is(err, client.ErrNoVersion) {
			x.Errorf("no such version: %v", err)
		}
	}
	one, err := x.c.Template(ctx, old)
	x.ok(err)
	list, err := x.c.Templates(ctx, client.ListOptions{Filter: "name:old*"})
	x.ok(err)
	if len(one.Versions) != 1 || len(list) != 2 {
		x.Errorf("%+v %+v", one, list)
	}
	x.ok(x.c.DeleteTemplate(ctx, old), x.r.DeleteTemplate(ctx, older))
	if _, err := x.c.Template(ctx, old); !errors.Is(err, client.ErrNotFound) {
		x.Error(err)
	}
}
