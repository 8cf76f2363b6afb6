package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// cacheJobs returns the cache jobs that the node is sent, without waiting.
func (a *agent) cacheJobs() []api.CacheJob {
	a.t.Helper()
	answer, err := a.tryPoll(api.PollRequest{Info: a.info, Held: a.held, HasHeld: true}, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	return answer.CacheJobs
}

// cacheJob returns the one cache job that is due.
func (a *agent) cacheJob(kind api.CacheJobKind) api.CacheJob {
	a.t.Helper()
	list := a.cacheJobs()
	if len(list) != 1 || list[0].Kind != kind {
		a.t.Fatalf("cache jobs = %+v, want one %s", list, kind)
	}
	return list[0]
}

// tellCacheJob reports cache jobs.
func (a *agent) tellCacheJob(statuses ...api.CacheJobStatus) {
	a.t.Helper()
	a.seq++
	_, err := a.c.Link.Report(a.t.Context(), a.cred, api.Report{
		Protocol: api.LinkProtocol, NodeID: a.id, BootID: a.boot, Seq: a.seq, CacheJobs: statuses,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
}

// reboot returns another agent on the same node.
func (a *agent) reboot() {
	time.Sleep(takeoverAfter)
	a.boot += "+"
}

// distribute requests a distribution of the older version.
func (c *cloud) distribute(edits ...func(*cachejobs.DistributeRequest)) string {
	c.t.Helper()
	ask := cachejobs.DistributeRequest{TemplateID: templateID, Tag: "v1"}
	for _, edit := range edits {
		edit(&ask)
	}
	id, err := c.CacheJobs.Distribute(c.t.Context(), ask)
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return id
}

// wantCacheJob compares the nodes of a cache job with the expected ones.
func (c *cloud) wantCacheJob(id string, want map[string]farm.CacheJobResult) farm.CacheJob {
	c.t.Helper()
	synctest.Wait()
	kind := farm.CacheJobDistribute
	if e, _, ok := c.tables.CacheJobs.Get(id); ok {
		kind = e.Kind
	}
	view, err := c.CacheJobs.Get(c.t.Context(), kind, id)
	if err != nil {
		c.t.Fatal(err)
	}
	if diff := cmp.Diff(want, view.On, cmpopts.IgnoreFields(farm.CacheJobResult{}, "EndedAt")); diff != "" {
		c.t.Errorf("cache job (-want +got):\n%s", diff)
	}
	return *view.CacheJob
}

func TestDistribution(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 1), c.join("b", 1)
		id := c.distribute()
		c.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {}, b.id: {}})
		want := api.CacheJob{
			ID: id, Kind: api.CacheJobPull, TemplateID: templateID, TemplateName: "base", Tag: "v1", Version: 0,
			ContentID: "content-0", Registry: "http://registry",
		}
		if diff := cmp.Diff(want, a.cacheJob(api.CacheJobPull)); diff != "" {
			t.Errorf("cache job (-want +got):\n%s", diff)
		}
		if again := a.cacheJobs(); len(again) != 0 {
			t.Errorf("sent again at once: %+v", again)
		}
		time.Sleep(5 * time.Second)
		a.cacheJob(api.CacheJobPull)
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobAccepted})
		time.Sleep(time.Minute)
		if again := a.cacheJobs(); len(again) != 0 {
			t.Errorf("sent again after it was taken: %+v", again)
		}
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: 0.25})
		b.cacheJob(api.CacheJobPull)
		b.tellCacheJob(api.CacheJobStatus{
			ID: id, Stage: api.CacheJobFailed, Message: "the disk is too small", Progress: 0.5,
		})
		e := c.wantCacheJob(id, map[string]farm.CacheJobResult{
			a.id: {Progress: 0.25}, b.id: {Error: "the disk is too small", Progress: 0.5},
		})
		if !e.IsOpen() {
			t.Error("it has ended while a node works on it")
		}
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone, Progress: 1})
		done := map[string]farm.CacheJobResult{
			a.id: {Done: true, Progress: 1}, b.id: {Error: "the disk is too small", Progress: 0.5},
		}
		c.wantCacheJob(id, done)
		time.Sleep(2 * time.Second)
		if e := c.wantCacheJob(id, done); e.EndReason != farm.CacheJobFinished {
			t.Errorf("ended as %q", e.EndReason)
		}
		time.Sleep(time.Minute)
		if left := append(a.cacheJobs(), b.cacheJobs()...); len(left) != 0 {
			t.Errorf("left are %+v", left)
		}
	})
}

// TestDistributionsAreKeptForADay: one that has ended is kept for a day and then removed
// completely, without writes in between.
func TestDistributionsAreKeptForADay(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 1)
		id := c.distribute()
		a.cacheJob(api.CacheJobPull)
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		time.Sleep(10 * time.Second)
		c.away(24*time.Hour - time.Minute)
		c.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {Done: true, Progress: 1}})
		time.Sleep(3 * time.Minute)
		if _, err := c.CacheJobs.Get(t.Context(), farm.CacheJobDistribute, id); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("it is still there: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if n := c.tables.CacheJobResults.Len(); n != 0 {
			t.Errorf("%d outcomes are left", n)
		}
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		a.cacheJob(api.CacheJobDrop)
		if n := c.tables.CacheJobResults.Len(); n != 0 {
			t.Errorf("a late status made %d outcomes", n)
		}
	})
}

// TestOfflineNodesGetItOnReturn: offline nodes get the job within a day, also from another
// controller.
func TestOfflineNodesGetItOnReturn(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 1), c.join("b", 1)
		time.Sleep(5 * time.Minute)
		id := c.distribute()
		if state := c.nodeState(a.id); state != farm.NodeOffline {
			t.Fatalf("the node is %s", state)
		}
		c.away(10 * time.Hour)
		c.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {}, b.id: {}})
		a.cacheJob(api.CacheJobPull)
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		c.away(23 * time.Hour)
		c.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {Done: true, Progress: 1}, b.id: {}})
		c.away(time.Hour)
		time.Sleep(2 * time.Minute)
		late := farm.CacheJobResult{Error: "The node did not do it before the request expired"}
		if e := c.wantCacheJob(id, map[string]farm.CacheJobResult{
			a.id: {Done: true, Progress: 1}, b.id: late,
		}); e.EndReason != farm.CacheJobExpired {
			t.Errorf("ended as %q", e.EndReason)
		}
		if left := b.cacheJobs(); len(left) != 0 {
			t.Errorf("it is still sent: %+v", left)
		}
	})
}

func (c *cloud) nodeState(id string) farm.NodeState {
	c.t.Helper()
	view, err := c.Nodes.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return view.Node.State
}

func TestCanceledDistribution(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		done, works, away := c.join("done", 1), c.join("works", 1), c.join("away", 1)
		id := c.distribute()
		done.cacheJob(api.CacheJobPull)
		done.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		works.cacheJob(api.CacheJobPull)
		works.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: 0.5})
		for range 2 { // a second time changes nothing
			if err := c.CacheJobs.Cancel(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
			c.wantCacheJob(id, map[string]farm.CacheJobResult{
				done.id: {Done: true, Progress: 1}, away.id: {Error: "request canceled"},
				works.id: {Error: "request canceled"},
			})
			time.Sleep(2 * time.Second)
		}
		works.cacheJob(api.CacheJobDrop)
		if left := append(away.cacheJobs(), done.cacheJobs()...); len(left) != 0 {
			t.Errorf("those that never heard of it, or are done, get %+v", left)
		}
		// A status that comes too late is ignored, and the node receives the stop order again.
		works.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		time.Sleep(c.opts.OrderResend)
		works.cacheJob(api.CacheJobDrop)
		e := c.wantCacheJob(id, map[string]farm.CacheJobResult{
			done.id: {Done: true, Progress: 1}, away.id: {Error: "request canceled"},
			works.id: {Error: "request canceled"},
		})
		if e.EndReason != farm.CacheJobCanceled {
			t.Errorf("ended as %q", e.EndReason)
		}
		for _, unknown := range []string{"", "x", templateID, strings.Repeat("x", 100)} {
			if err := c.CacheJobs.Cancel(t.Context(), unknown, nil); farm.CodeOf(err) != farm.CodeNotFound {
				t.Errorf("cancel of %q: %v", unknown, err)
			}
		}
	})
}

// TestNewAgentsGetOpenJobs: a new agent gets the jobs again that are not done.
func TestNewAgentsGetOpenJobs(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 1), c.join("b", 1)
		id := c.distribute()
		a.cacheJob(api.CacheJobPull)
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		b.cacheJob(api.CacheJobPull)
		b.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking})
		for _, again := range []func(){func() { a.reboot(); b.reboot() }, c.restart} {
			again()
			if left := a.cacheJobs(); len(left) != 0 {
				t.Errorf("one that is done gets %+v", left)
			}
			b.cacheJob(api.CacheJobPull)
			a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone}) // once more: its report got no response
			b.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking})
			time.Sleep(time.Minute)
			if left := append(a.cacheJobs(), b.cacheJobs()...); len(left) != 0 {
				t.Errorf("left are %+v", left)
			}
		}
	})
}

// TestCacheJobsOfAnEarlierLife: a node has to drop its cache jobs that have no record, or that
// ended while no controller ran.
func TestCacheJobsOfAnEarlierLife(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 1), c.join("b", 1)
		id := c.distribute(func(ask *cachejobs.DistributeRequest) { ask.NodeIDs = []string{b.id} })
		for _, strange := range []string{record.NewID(), id} {
			a.tellCacheJob(api.CacheJobStatus{ID: strange, Stage: api.CacheJobDone})
			if o := a.cacheJob(api.CacheJobDrop); o.ID != strange {
				t.Errorf("dropped is %+v", o)
			}
			a.tellCacheJob(api.CacheJobStatus{ID: strange, Stage: api.CacheJobDropped})
		}
		a.tellCacheJob(api.CacheJobStatus{ID: "", Stage: api.CacheJobDone})
		if left := a.cacheJobs(); len(left) != 0 {
			t.Errorf("left are %+v", left)
		}
		c.wantCacheJob(id, map[string]farm.CacheJobResult{b.id: {}})
		// A cache job that was dropped by mistake is sent again.
		b.cacheJob(api.CacheJobPull)
		b.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking})
		b.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDropped})
		b.cacheJob(api.CacheJobPull)
	})
}

func TestDistributionToSomeNodes(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b, arm := c.join("a", 1), c.join("b", 1), c.join("arm", 1)
		arm.info = &api.NodeInfo{Arch: "arm64", Driver: "sim"}
		arm.boot += "+"
		time.Sleep(takeoverAfter)
		arm.contact()
		group := &farm.Group{ID: record.NewID(), Name: "g"}
		if err := c.store.Commit(t.Context(), store.Put(c.tables.Groups, group.ID, group, store.IfAbsent)); err != nil {
			t.Fatal(err)
		}
		node := must(c, a.id).Clone()
		node.Groups, node.Drain = []string{group.ID}, true
		c.putNode(node)
		for name, tt := range map[string]struct {
			edit func(*cachejobs.DistributeRequest)
			want map[string]farm.CacheJobResult
		}{
			"named, twice": {
				func(ask *cachejobs.DistributeRequest) { ask.NodeIDs = []string{b.id, a.id, b.id} },
				map[string]farm.CacheJobResult{a.id: {}, b.id: {}},
			},
			"of a group, drained": {func(ask *cachejobs.DistributeRequest) {
				ask.GroupIDs = []string{group.ID}
			}, map[string]farm.CacheJobResult{a.id: {}}},
			"named, of a group": {
				func(ask *cachejobs.DistributeRequest) {
					ask.GroupIDs, ask.NodeIDs = []string{group.ID}, []string{a.id, b.id}
				},
				map[string]farm.CacheJobResult{a.id: {}},
			},
			"another architecture": {
				func(ask *cachejobs.DistributeRequest) { ask.NodeIDs = []string{arm.id, b.id} },
				map[string]farm.CacheJobResult{b.id: {}, arm.id: {Error: "The template is for amd64, the node is not"}},
			},
		} {
			t.Log(name)
			id := c.distribute(tt.edit)
			c.wantCacheJob(id, tt.want)
			if left := arm.cacheJobs(); len(left) != 0 {
				t.Errorf("a node of another architecture gets %+v", left)
			}
			if err := c.CacheJobs.Cancel(t.Context(), id, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// must returns a node's record.
func must(c *cloud, id string) *farm.Node {
	c.t.Helper()
	view, err := c.Nodes.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return view.Node
}

// TestDistributionsOfUnknownVersions: what the registry does not have, or cannot say, is refused.
func TestDistributionsOfUnknownVersions(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		seven, one := 7, 1
		c.join("a", 1)
		wants := func(code farm.Code, message string, edit func(*cachejobs.DistributeRequest)) {
			t.Helper()
			req := cachejobs.DistributeRequest{TemplateID: templateID}
			edit(&req)
			_, err := c.CacheJobs.Distribute(t.Context(), req)
			if farm.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), message) {
				t.Errorf("%+v: %v, want %q", req, err, message)
			}
		}
		wants(farm.CodeNotFound, farm.NotFoundMessage,
			func(d *cachejobs.DistributeRequest) { d.TemplateID = record.NewID() })
		wants(farm.CodeNotFound, farm.NotFoundMessage, func(d *cachejobs.DistributeRequest) { d.TemplateID = "base" })
		wants(farm.CodeRefused, "No such tag v9 +x", func(d *cachejobs.DistributeRequest) { d.Tag = "v9 +x" })
		wants(farm.CodeRefused, "No such tag 7", func(d *cachejobs.DistributeRequest) { d.Version = &seven })
		wants(farm.CodeRefused, "tag v1 is version 0, not 1",
			func(d *cachejobs.DistributeRequest) { d.Tag, d.Version = "v1", &one })
		wants(farm.CodeNotFound, farm.NotFoundMessage,
			func(d *cachejobs.DistributeRequest) { d.GroupIDs = []string{"x"} })
		c.shelf.setDown(true)
		wants(farm.CodeUnavailable, "The registry cannot be reached; try again",
			func(*cachejobs.DistributeRequest) {})
	})
}

// TestManyNodesFinishing: each costs one small write, however many there are; the record of the job
// is written when it is created and when it ends.
func TestManyNodesFinishing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var nodes []*agent
		for i := range 1000 {
			nodes = append(nodes, c.join(fmt.Sprint(i), 1))
		}
		id := c.distribute()
		_, asked, _ := c.tables.CacheJobs.Get(id)
		var written int
		stop := c.store.Subscribe(func(events []store.Event) {
			for _, e := range events {
				if e.Kind == record.KindCacheJobResult || e.Kind == record.KindCacheJob {
					written++
				}
			}
		})
		defer stop()
		for _, a := range nodes {
			if len(a.cacheJobs()) != 1 {
				t.Fatal("a node has no cache job")
			}
			for i := range 10 {
				a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: float64(i) / 10})
			}
			for range 3 { // reported again, since the response was lost
				a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
			}
			if _, rev, _ := c.tables.CacheJobs.Get(id); rev != asked && a != nodes[999] {
				t.Fatal("the record of the request was written again")
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		e, _, _ := c.tables.CacheJobs.Get(id)
		if e.IsOpen() || written != 1001 {
			t.Errorf("open %v after %d writes, want 1000 and one for the end", e.IsOpen(), written)
		}
	})
}

// TestRemovedNodesHoldUpNothing: a distribution does not wait for a removed node.
func TestRemovedNodesHoldUpNothing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 1), c.join("b", 1)
		id := c.distribute()
		if err := c.Nodes.Delete(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		gone := farm.CacheJobResult{Error: "The node was removed from the cloud"}
		c.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {}, b.id: gone})
		a.cacheJob(api.CacheJobPull)
		a.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		time.Sleep(2 * time.Second)
		if e := c.wantCacheJob(id, map[string]farm.CacheJobResult{
			a.id: {Done: true, Progress: 1}, b.id: gone,
		}); e.EndReason != farm.CacheJobFinished {
			t.Errorf("ended as %q", e.EndReason)
		}
		last := c.distribute()
		if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if e := c.wantCacheJob(last, map[string]farm.CacheJobResult{a.id: gone}); e.IsOpen() {
			t.Error("it waits for a node that was removed")
		}
	})
}

// have makes a node report that it has a version of the template.
func (a *agent) have(template string) {
	a.info = &api.NodeInfo{
		Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim",
		Templates: []api.NodeTemplate{{ID: strings.ToUpper(template), Name: "base", Tag: "v1", ContentID: "content-0"}},
	}
	a.contact()
}

func TestRemoveFromNodes(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b, got := c.join("a", 1), c.join("b", 1), c.join("got", 1)
		first := c.distribute(func(ask *cachejobs.DistributeRequest) { ask.NodeIDs = []string{got.id} })
		got.cacheJob(api.CacheJobPull)
		got.tellCacheJob(api.CacheJobStatus{ID: first, Stage: api.CacheJobDone})
		time.Sleep(2 * time.Second)
		a.have(templateID)
		remove := func(template string, nodes ...string) *farm.CacheJob {
			t.Helper()
			e, err := c.CacheJobs.Remove(t.Context(), strings.ToUpper(template), cachejobs.NodeSelector{NodeIDs: nodes})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return e
		}
		e := remove(templateID)
		if want := sorted(a.id, got.id); !slices.Equal(e.Nodes, want) {
			t.Errorf("asked are %v, want %v", e.Nodes, want)
		}
		if again := remove(templateID); again.ID != e.ID {
			t.Error("a repeated request made a second one")
		}
		if left := b.cacheJobs(); len(left) != 0 {
			t.Errorf("a node without it gets %+v", left)
		}
		if o := a.cacheJob(api.CacheJobRemove); o.ID != e.ID || o.TemplateID != templateID || o.ContentID != "" {
			t.Errorf("cache job = %+v", o)
		}
		got.cacheJob(api.CacheJobRemove)
		a.tellCacheJob(api.CacheJobStatus{ID: e.ID, Stage: api.CacheJobDone, Removed: 2})
		got.tellCacheJob(api.CacheJobStatus{
			ID: e.ID, Stage: api.CacheJobFailed, Removed: 1, Kept: 1, Message: "1 of its versions stay: in use",
		})
		time.Sleep(2 * time.Second)
		end := c.wantCacheJob(e.ID, map[string]farm.CacheJobResult{
			a.id:   {Done: true, Progress: 1, RemovedVersions: 2},
			got.id: {Error: "1 of its versions stay: in use", RemovedVersions: 1, KeptVersions: 1},
		})
		if end.EndReason != farm.CacheJobFinished {
			t.Errorf("ended as %q", end.EndReason)
		}
		if left := append(a.cacheJobs(), got.cacheJobs()...); len(left) != 0 {
			t.Errorf("left are %+v", left)
		}
		if named := remove(templateID, b.id); !slices.Equal(named.Nodes, []string{b.id}) || named.ID == e.ID {
			t.Errorf("named is %+v", named)
		}
		if err := c.CacheJobs.Cancel(t.Context(), e.ID, nil); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("a removal was cancelled as a distribution: %v", err)
		}
		if list := c.CacheJobs.List(farm.CacheJobDistribute, "", 10, nil); len(list) != 1 || list[0].ID != first {
			t.Errorf("%d distributions are listed", len(list))
		}
	})
}

func sorted(ids ...string) []string {
	slices.Sort(ids)
	return ids
}

// TestRemovalsOfUnknownTemplates: a template that neither the registry nor a node has is not found.
func TestRemovalsOfUnknownTemplates(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 1)
		gone := record.NewID()
		if _, err := c.CacheJobs.Remove(t.Context(), gone,
			cachejobs.NodeSelector{}); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("removal: %v", err)
		}
		a.have(gone) // deleted from the registry, and still on a node
		c.shelf.setDown(true)
		e, err := c.CacheJobs.Remove(t.Context(), gone, cachejobs.NodeSelector{})
		if err != nil || len(e.Nodes) != 1 {
			t.Errorf("of one that the registry does not have: %+v, %v", e, err)
		}
	})
}

func TestDeleteAndRevert(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		one, nine := 1, 9
		o := c.started(c.join("a", 1)) // an instance of it does not prevent that
		for name, tt := range map[string]struct {
			do   func() error
			want string // requested from the registry, or the error
		}{
			"delete": {func() error {
				return c.Templates.Delete(t.Context(), strings.ToUpper(templateID))
			}, "delete"},
			"latest": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "", nil)
			}, "revert v2 1 content-1"},
			"tag": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "v1", nil)
			}, "revert v1 0 content-0"},
			"number": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "", &one)
			}, "revert v2 1 content-1"},
			"tag, number": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "v2", &one)
			}, "revert v2 1 content-1"},
			"disagreeing": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "v1", &one)
			}, "tag v1 is version 0, not 1: use only one of tag and version"},
			"unknown tag": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "v9", nil)
			}, "No such tag v9"},
			"unknown no": {func() error {
				return c.Templates.Revert(t.Context(), templateID, "", &nine)
			}, "No such tag 9"},
			"unknown id": {func() error {
				return c.Templates.Revert(t.Context(), record.NewID(), "v9", nil)
			}, "Not found"},
			"deleted id":   {func() error { return c.Templates.Delete(t.Context(), record.NewID()) }, "Not found"},
			"deleted name": {func() error { return c.Templates.Delete(t.Context(), "base") }, "Not found"},
		} {
			c.shelf.mu.Lock()
			c.shelf.changed = nil
			c.shelf.mu.Unlock()
			err := tt.do()
			got := strings.Join(c.shelf.changed, ", ")
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
		c.wantState(o.InstanceID, farm.Started)
		c.shelf.setDown(true)
		if err := c.Templates.Delete(t.Context(), templateID); farm.CodeOf(err) != farm.CodeUnavailable {
			t.Errorf("with the registry away: %v", err)
		}
	})
}
