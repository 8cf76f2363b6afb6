package buildyard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
)

// template returns the controller's details of a template, in the list and alone.
func (y *yard) template(id string) api.TemplateDetail {
	y.t.Helper()
	var list []api.Template
	y.get("/api/v1/registry/vm", &list)
	var detail api.TemplateDetail
	y.get("/api/v1/registry/vm?id="+id, &detail)
	i := slices.IndexFunc(list, func(t api.Template) bool { return t.ID == id })
	if i < 0 {
		y.t.Fatalf("the list says %+v, without %s", list, id)
	}
	short, last := list[i], len(detail.Versions)-1
	if short.VersionCount != len(detail.Versions) || short.LatestTag != detail.Versions[last].Tag {
		y.t.Errorf("the list says %+v, the template itself %+v", short, detail)
	}
	short.LatestTag, short.VersionCount = "", 0 // in lists alone
	if short != detail.Template {
		y.t.Errorf("the list says %+v, the template itself %+v", short, detail.Template)
	}
	return detail
}

// TestTemplatesThroughTheController holds every field against what was done: a push sets
// last_push, a pull and nothing else sets last_pull, and sizes are those of layer files.
func TestTemplatesThroughTheController(t *testing.T) {
	y := newYard(t)
	y.nodes("n", 1)
	begun := time.Now().Unix()
	first := y.push("", "v1+a", y.disk(1, 2))
	got := y.template(first.ID)
	if got.Name != "debian" || got.Arch != "amd64" || got.LastPush < begun || got.LastPull != 0 || got.Size < 2<<20 ||
		got.Size > 3<<20 {
		t.Errorf("after a push: %+v", got.Template)
	}
	run := func() {
		id := y.start(first.ID, "v1+a")
		y.await("the instance to run", func() bool { return y.instance(id).InstanceState == "Started" })
	}
	run()
	pulled := y.template(first.ID)
	if pulled.LastPull < begun || pulled.Versions[0].LastPull != pulled.LastPull || pulled.LastPush != got.LastPush {
		t.Errorf("after a pull: %+v", pulled)
	}
	y.await("the second after the pull", func() bool { return time.Now().Unix() > pulled.LastPull })
	run()
	if again := y.template(first.ID); again.LastPull != pulled.LastPull {
		t.Errorf("a start of what is cached moved last_pull from %d to %d", pulled.LastPull, again.LastPull)
	}
	y.push(first.ID, "v2", y.disk(2, 1))
	both := y.template(first.ID)
	if both.LastPush <= got.LastPush || both.LastPull != pulled.LastPull || both.Size <= got.Size ||
		len(both.Versions) != 2 {
		t.Errorf("after a second push: %+v", both.Template)
	}
	for i, v := range both.Versions {
		want := api.TemplateVersion{
			Tag: []string{"v1+a", "v2"}[i], Number: i, Images: v.Images, StateFiles: []string{},
			ConfigFile: first.ID + ".yaml", Arch: "amd64",
			Size: v.Size, Increment: v.Increment, CreationDate: v.CreationDate, LastPush: v.LastPush,
			LastPull: v.LastPull, ContentID: v.ContentID,
		}
		if d := cmp.Diff(want, v); d != "" || len(v.Images) == 0 || v.Size <= 0 || v.CreationDate < begun ||
			v.LastPush < begun || len(v.ContentID) != 64 {
			t.Errorf("version %d: %+v (-want +got):\n%s", i, v, d)
		}
	}
	var short []map[string]any
	y.get("/api/v1/registry/vm?apiVer=v1", &short)
	if d := cmp.Diff([]map[string]any{{"id": first.ID, "name": "debian"}}, short); d != "" {
		t.Errorf("first version of the list (-want +got):\n%s", d)
	}

	// Instances that run, on what is cached, are no obstacle to either of these.
	change := func(path string) error { return y.api.send(t.Context(), "DELETE", path, nil, nil) }
	if err := change("/api/v1/registry/revert?id=" + first.ID); err != nil {
		t.Error(err)
	}
	if left := y.template(first.ID); len(left.Versions) != 1 || left.Versions[0].Tag != "v1+a" {
		t.Errorf("after a revert: %+v", left.Versions)
	}
	if err := change("/api/v1/registry/vm?id=" + first.ID); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/api/v1/registry/vm?id=", "/api/v1/registry/revert?id="} {
		if err := change(path + first.ID); err == nil || err.Error() != "Not found" {
			t.Errorf("%s of a template that is gone: %v", path, err)
		}
	}
	var list []api.Template
	if y.get("/api/v1/registry/vm", &list); list == nil || len(list) != 0 {
		t.Errorf("the list is %v", list)
	}
}

// TestAnInstanceShowsItsPull: progress grows from 0 to 1 with the bytes that have come.
func TestAnInstanceShowsItsPull(t *testing.T) {
	y := newYard(t)
	y.nodes("n", 1)
	const mib = 16
	v := y.push("", "v1", y.disk(3, mib))
	y.line.rate.Store(8 << 20)
	id := y.start(v.ID, "v1")
	var seen []float64
	states := map[string]bool{}
	y.await("the instance to run", func() bool {
		inst, passed := y.instance(id), float64(y.line.passed.Load())/(mib<<20)
		states[inst.InstanceState] = true
		if len(seen) == 0 || inst.Progress != seen[len(seen)-1] {
			seen = append(seen, inst.Progress)
		}
		if inst.InstanceState == "Pulling" && inst.Progress > passed+0.01 {
			t.Errorf("progress is %.2f when %.2f of the bytes have passed", inst.Progress, passed)
		}
		return inst.InstanceState == "Started"
	})
	t.Logf("progress was %.2f", seen)
	if !slices.IsSorted(seen) || seen[0] != 0 || seen[len(seen)-1] != 1 || len(seen) < 6 {
		t.Errorf("progress was %v", seen)
	}
	if len(states) != 3 || !states["Pulling"] || !states["Scheduling"] {
		t.Errorf("states were %v", states)
	}
	second := y.start(v.ID, "v1")
	y.await("another one to run", func() bool { return y.instance(second).InstanceState == "Started" })
	if got := y.instance(second).Progress; got != 1 {
		t.Errorf("progress of one that pulled nothing is %g", got)
	}
}

// TestDistributionOfRealBytes goes through the whole life of one: it shows how far nodes
// are, survives their end and that of the controller without moving bytes twice, is had by a
// node that comes late, and stays on the nodes until it is removed.
func TestDistributionOfRealBytes(t *testing.T) {
	y := newYard(t)
	endNodes := y.nodes("n", 2)
	y.nodes("late", 1)() // joins and is away again
	const mib = 12
	v := y.push("", "v1", y.disk(4, mib))
	y.line.rate.Store(6 << 20)
	id := y.distribute(map[string]any{"template_id": v.ID})
	names := map[string]string{}
	for _, n := range y.list() {
		names[n.NodeID] = n.NodeName
	}
	shown := func() map[string]api.DistributeStatus {
		byName := map[string]api.DistributeStatus{}
		for node, s := range y.distribution(id).Status {
			byName[names[node]] = s
		}
		if len(byName) != 3 {
			t.Fatalf("status is of %v", byName)
		}
		return byName
	}
	shown()
	y.await("half of it to be there",
		func() bool { return shown()["n-0001"].Progress > 0.4 && shown()["n-0002"].Progress > 0.4 })

	y.line.cut.Store(true)
	endNodes()
	y.stop()
	before := y.line.passed.Load()
	y.up()
	if got := shown(); got["n-0001"].Status || got["late-0001"].Error != "" {
		t.Errorf("after the restart: %v", got)
	}
	y.line.cut.Store(false)
	y.nodes("n", 2)
	done := api.DistributeStatus{Status: true, Progress: 1}
	y.await("it to be on both nodes", func() bool { s := shown(); return s["n-0001"] == done && s["n-0002"] == done })
	if after := y.line.passed.Load(); after > 2*mib<<20+8<<20 {
		t.Errorf("%d bytes passed, %d before the restart, of two times %d", after, before, mib<<20)
	}
	if late := shown()["late-0001"]; late != (api.DistributeStatus{}) {
		t.Errorf("the one that is away: %+v", late)
	}

	y.line.rate.Store(0)
	y.nodes("late", 1)
	y.await("it to be on the late one", func() bool { return shown()["late-0001"] == done })
	for _, n := range y.list() {
		y.await("node "+n.NodeName+" to list it", func() bool {
			var now []api.Node
			y.get("/api/v1/node?id="+n.NodeID, &now)
			return slices.Contains(now[0].Templates, api.NodeTag{UUID: v.ID, Name: "debian", Tag: "v1"})
		})
	}

	inst := y.start(v.ID, "v1")
	y.await("an instance to run", func() bool { return y.instance(inst).InstanceState == "Started" })
	var sent api.RemoveAnswer
	if err := y.api.send(t.Context(), "DELETE", "/api/v1/registry/vm/remove", map[string]any{"id": v.ID},
		&sent); err != nil || sent.RequestsSent != 3 {
		t.Fatalf("removal: %+v, %v", sent, err)
	}
	user := y.instance(inst).NodeID
	y.await("it to be removed where nothing uses it", func() bool {
		var r api.Removal
		y.get("/api/v1/registry/vm/remove?id="+sent.RequestID, &r)
		for node, s := range r.Status {
			want := api.RemoveStatus{Status: true, Removed: 1}
			if node == user {
				want = api.RemoveStatus{Error: s.Error, Kept: 1}
			}
			if s != want {
				return false
			}
		}
		return len(r.Status) == 3
	})
	if got := y.instance(inst).InstanceState; got != "Started" {
		t.Errorf("the instance on it is %s", got)
	}
}

// TestACanceledDistributionMovesNothingMore.
func TestACanceledDistributionMovesNothingMore(t *testing.T) {
	y := newYard(t)
	y.nodes("n", 1)
	v := y.push("", "v1", y.disk(5, 16))
	y.line.rate.Store(2 << 20)
	id := y.distribute(map[string]any{"template_id": v.ID, "version": 0})
	y.await("some of it to be there", func() bool {
		for _, s := range y.distribution(id).Status {
			return s.Progress > 0
		}
		return false
	})
	if err := y.api.send(t.Context(), "DELETE", "/api/v1/registry/vm/distribute", map[string]any{"id": id},
		nil); err != nil {
		t.Fatal(err)
	}
	for node, s := range y.distribution(id).Status {
		if s != (api.DistributeStatus{Error: "request canceled"}) {
			t.Errorf("%s: %+v", node, s)
		}
	}
	y.await("nothing to pass", func() bool {
		was := y.line.passed.Load()
		time.Sleep(500 * time.Millisecond)
		return y.line.passed.Load() == was
	})
	if all := y.line.passed.Load(); all > 14<<20 {
		t.Errorf("%s bytes passed in spite of the cancel", fmt.Sprint(all))
	}
}
