package cachejobs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// open returns the cache jobs of an empty cloud, whose registry has one template.
func open(t *testing.T) *Jobs {
	db := recordtest.Open(t)
	detail := api.TemplateDetail{Template: api.Template{ID: templateID, Name: "base", Arch: "amd64"}}
	template := func(_ context.Context, id string) (api.TemplateDetail, error) {
		if id != templateID {
			return api.TemplateDetail{}, farm.NotFound()
		}
		return detail, nil
	}
	return New(db, Options{
		RegistryAddress: "http://registry", Template: template,
		Version: func(ctx context.Context, id, _ string, _ *int) (api.TemplateDetail, api.TemplateVersion, error) {
			d, err := template(ctx, id)
			return d, api.TemplateVersion{Tag: "v1", ContentID: "content"}, err
		},
		Guest: func(context.Context, string, api.TemplateVersion) (farm.TemplateRef, error) { return guest, nil },
		Group: func(ctx context.Context, id string) (*farm.Group, int64, error) {
			return record.Lookup(ctx, db.Tables.Groups, id)
		},
		Changes:  func(context.Context, any) ([]store.Change, error) { return nil, nil },
		Progress: func(string, string) float64 { return 0.5 },
		Pulling:  func() int { return 0 },
		After:    func(t time.Time) time.Time { return t },
	})
}

// guest is that of all versions.
var guest farm.TemplateRef

// addNode creates the record of a node, with its architecture and groups.
func addNode(t *testing.T, j *Jobs, arch string, groups ...string) string {
	t.Helper()
	id := uuid.NewString()
	recordtest.Commit(t, j.db,
		store.Put(j.db.Tables.Nodes, id, &farm.Node{ID: id, Groups: groups}, store.Any),
		store.Put(j.db.Tables.Infos, id, &farm.NodeInfo{NodeID: id, Arch: arch}, store.Any))
	return id
}

// addResult writes the result of a job on a node, as the node's session does.
func addResult(t *testing.T, j *Jobs, job, node string, result farm.CacheJobResult) {
	t.Helper()
	result.EndedAt = j.db.Now()
	recordtest.Commit(t, j.db,
		store.Put(j.db.Tables.CacheJobResults, record.CacheJobResultID(job, node), &result, store.IfAbsent))
}

// distribute requests a distribution that is accepted.
func distribute(t *testing.T, j *Jobs, s NodeSelector) string {
	t.Helper()
	id, err := j.Distribute(t.Context(), DistributeRequest{TemplateID: templateID, NodeSelector: s})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// prune ends and removes cache jobs, as the leader does at a time.
func prune(t *testing.T, j *Jobs, at time.Time) {
	t.Helper()
	if err := j.Prune(t.Context(), recordtest.Term(j.db), at); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, name string, err error, code farm.Code, text string) {
	t.Helper()
	if farm.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%s: %v, want %s %q", name, err, code, text)
	}
}

// TestRefusedDistributions: requests without a node, with unknown ones, and more of them than may be
// open are refused.
func TestRefusedDistributions(t *testing.T) {
	j := open(t)
	request := func(edit func(*DistributeRequest)) error {
		req := DistributeRequest{TemplateID: templateID}
		edit(&req)
		_, err := j.Distribute(t.Context(), req)
		return err
	}
	wantError(t, "no node", request(func(*DistributeRequest) {}), farm.CodeRefused,
		"no node matches the request to distribute")
	node := addNode(t, j, "amd64")
	wantError(t, "unknown node", request(func(r *DistributeRequest) { r.NodeIDs = []string{node, "x"} }),
		farm.CodeNotFound, farm.NotFoundMessage)
	wantError(t, "unknown group", request(func(r *DistributeRequest) { r.GroupIDs = []string{"x"} }), farm.CodeNotFound,
		farm.NotFoundMessage)
	forbidden := farm.Errorf(farm.CodeForbidden, "not on this node")
	wantError(t, "forbidden node", request(func(r *DistributeRequest) {
		r.NodeIDs, r.May = []string{node}, func(string) error { return forbidden }
	}), farm.CodeForbidden, "not on this node")
	for range maxOpenJobs {
		distribute(t, j, NodeSelector{})
	}
	wantError(t, "too many", request(func(*DistributeRequest) {}), farm.CodeRefused,
		"500 distributions and removals are open")
	if n := j.db.Tables.CacheJobs.Len(); n != maxOpenJobs {
		t.Errorf("%d records were made", n)
	}
}

// TestViewOfDistribution: a node shows its result, else its progress, and a node of another
// architecture gets no order.
func TestViewOfDistribution(t *testing.T) {
	j := open(t)
	done, works, other := addNode(t, j, "amd64"), addNode(t, j, "amd64"), addNode(t, j, "arm64")
	id := distribute(t, j, NodeSelector{})
	addResult(t, j, id, done, farm.CacheJobResult{Done: true, Progress: 1})
	view, err := j.Get(t.Context(), farm.CacheJobDistribute, id)
	if err != nil || !view.On[done].Done || view.On[works].Progress != 0.5 || view.On[other].Error == "" ||
		view.HasWorkFor(other) {
		t.Errorf("%+v, %v", view, err)
	}
	_, err = j.Get(t.Context(), farm.CacheJobRemove, id)
	wantError(t, "another kind", err, farm.CodeNotFound, farm.NotFoundMessage)
}

// TestDistributionByGuest: nodes get only versions whose guests they run.
func TestDistributionByGuest(t *testing.T) {
	const macOnly, noRaw, noArchive = "The node runs macOS guests only",
		"The node does not run macOS guests from raw disks", "The node does not run macOS guests from archives of anka"
	for _, tt := range []struct {
		guest                     farm.TemplateRef
		tart, anka, pc, both, old string
	}{
		{farm.TemplateRef{OS: "macos"}, "", noRaw, noRaw, "", noRaw},
		{farm.TemplateRef{OS: "macos", AnkaImage: true}, noArchive, "", noArchive, noArchive, noArchive},
		{farm.TemplateRef{OS: "linux"}, macOnly, macOnly, "", "", ""},
		{farm.TemplateRef{}, macOnly, macOnly, "", "", ""},
	} {
		j := open(t)
		guest = tt.guest
		t.Cleanup(func() { guest = farm.TemplateRef{} })
		announce := func(abilities ...string) string {
			id := addNode(t, j, "amd64")
			recordtest.Commit(t, j.db, store.Put(j.db.Tables.Infos, id,
				&farm.NodeInfo{NodeID: id, Arch: "amd64", Abilities: abilities}, store.Any))
			return id
		}
		nodes := map[string]string{
			announce("macos"): tt.tart, announce("anka-images", "macos"): tt.anka, announce("pc"): tt.pc,
			announce("macos", "pc"): tt.both, announce("bridge"): tt.old,
		}
		view, err := j.Get(t.Context(), farm.CacheJobDistribute, distribute(t, j, NodeSelector{}))
		if err != nil {
			t.Fatal(err)
		}
		for node, message := range nodes {
			if view.On[node].Error != message || view.HasWorkFor(node) != (message == "") {
				t.Errorf("a template of %+v: %+v, want %q", tt.guest, view.On[node], message)
			}
		}
	}
}

// TestEndOfDistributions: a distribution waits for its nodes that exist, for a day after the last
// result, and is kept for a day more.
func TestEndOfDistributions(t *testing.T) {
	j := open(t)
	one, two := addNode(t, j, "amd64"), addNode(t, j, "amd64")
	finishes, expires := distribute(t, j, NodeSelector{}), distribute(t, j, NodeSelector{NodeIDs: []string{one}})
	now := time.Now()
	end := func(id string) farm.CacheJobEndReason {
		t.Helper()
		job, _, ok := j.db.Tables.CacheJobs.Get(id)
		if !ok {
			return "removed"
		}
		return job.EndReason
	}
	prune(t, j, now)
	if end(finishes) != "" || end(expires) != "" {
		t.Errorf("ended as %q and %q", end(finishes), end(expires))
	}
	addResult(t, j, finishes, one, farm.CacheJobResult{Done: true})
	recordtest.Commit(t, j.db, store.Delete(j.db.Tables.Nodes, two, store.Any))
	prune(t, j, now)
	if end(finishes) != farm.CacheJobFinished || end(expires) != "" {
		t.Errorf("ended as %q and %q", end(finishes), end(expires))
	}
	prune(t, j, now.Add(maxWait))
	if end(expires) != farm.CacheJobExpired {
		t.Errorf("ended as %q", end(expires))
	}
	prune(t, j, now.Add(keepEnded+time.Second))
	if end(finishes) != "removed" || end(expires) == "removed" {
		t.Errorf("ended as %q and %q", end(finishes), end(expires))
	}
	prune(t, j, now.Add(keepEnded+time.Second))
	if n := j.db.Tables.CacheJobResults.Len(); n != 0 {
		t.Errorf("%d results are left", n)
	}
}

// TestOldestEndedJobsArePruned: the number of jobs is bounded, and the oldest that have ended are
// removed first.
func TestOldestEndedJobsArePruned(t *testing.T) {
	j := open(t)
	addNode(t, j, "amd64")
	var ids []string
	for len(ids) < maxJobs+10 {
		id := distribute(t, j, NodeSelector{})
		for range 2 { // a second time changes nothing
			if err := j.Cancel(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
		}
		ids = append(ids, id)
	}
	prune(t, j, time.Now())
	list := j.List(farm.CacheJobDistribute, "", math.MaxInt, nil)
	if len(list) != maxJobs || list[0].ID != ids[10] {
		t.Fatalf("%d are kept", len(list))
	}
	page := j.List(farm.CacheJobDistribute, list[4].ID, 3, nil)
	if len(page) != 3 || page[0].ID != list[5].ID || page[0].ID != ids[15] {
		t.Errorf("page begins with %s", page[0].ID)
	}
}

// TestRefusedCancels: removals, unknown jobs and those on nodes of others are not canceled.
func TestRefusedCancels(t *testing.T) {
	j := open(t)
	node := addNode(t, j, "amd64")
	id := distribute(t, j, NodeSelector{})
	removal, err := j.Remove(t.Context(), templateID, NodeSelector{NodeIDs: []string{node}})
	if err != nil {
		t.Fatal(err)
	}
	for _, unknown := range []string{"", "x", templateID, strings.Repeat("x", 100), removal.ID} {
		wantError(t, unknown, j.Cancel(t.Context(), unknown, nil), farm.CodeNotFound, farm.NotFoundMessage)
	}
	err = j.Cancel(t.Context(), id, func(string) error { return farm.Errorf(farm.CodeForbidden, "not yours") })
	wantError(t, "of another caller", err, farm.CodeForbidden, "not yours")
}

// TestRemovals: a removal without named nodes is for those that may have the template, and a repeated
// one creates no second job.
func TestRemovals(t *testing.T) {
	j := open(t)
	reports, starts, got, none := addNode(t, j, "amd64"), addNode(t, j, "amd64"), addNode(t, j, "amd64"),
		addNode(t, j, "amd64")
	for _, unknown := range []string{"", "base", uuid.NewString()} {
		_, err := j.Remove(t.Context(), unknown, NodeSelector{})
		wantError(t, unknown, err, farm.CodeNotFound, farm.NotFoundMessage)
	}
	_, err := j.Remove(t.Context(), templateID, NodeSelector{NodeIDs: []string{"x"}})
	wantError(t, "unknown node", err, farm.CodeNotFound, farm.NotFoundMessage)
	job, err := j.Remove(t.Context(), templateID, NodeSelector{})
	if err != nil || job.ID != "" || len(job.Nodes) != 0 {
		t.Errorf("of one that no node has: %+v, %v", job, err)
	}

	addResult(t, j, distribute(t, j, NodeSelector{NodeIDs: []string{got, none}}), got, farm.CacheJobResult{Done: true})
	inst := &farm.Instance{ID: "instance", NodeID: starts, Template: farm.TemplateRef{ID: templateID}}
	info := &farm.NodeInfo{NodeID: reports, Templates: []farm.NodeTemplate{{ID: strings.ToUpper(templateID)}}}
	recordtest.Commit(t, j.db, store.Put(j.db.Tables.Instances, inst.ID, inst, store.Any),
		store.Put(j.db.Tables.Infos, reports, info, store.Any))
	want := []string{reports, starts, got}
	slices.Sort(want)
	job, err = j.Remove(t.Context(), strings.ToUpper(templateID), NodeSelector{})
	if err != nil || !slices.Equal(job.Nodes, want) || job.Template.ID != templateID {
		t.Fatalf("%+v, %v", job, err)
	}
	if again, err := j.Remove(t.Context(), templateID, NodeSelector{}); err != nil || again.ID != job.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
}
