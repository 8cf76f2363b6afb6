package portal

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// newStubVisit returns a visit whose API has bodies by their paths, and refuses others.
func newStubVisit(t *testing.T, bodies map[string]any) *visit {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			body = nil
		}
		status := map[bool]string{true: "OK", false: "FAIL"}[ok]
		if err := json.NewEncoder(w).Encode(api.Envelope[any]{Status: status, Body: body}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	c, err := client.NewController(s.URL, client.Options{Retries: client.NoRetries})
	if err != nil {
		t.Fatal(err)
	}
	return &visit{Context: t.Context(), Controller: c}
}

// TestHasStarted: the history and the usage of the last week show that an idle cloud has started instances.
func TestHasStarted(t *testing.T) {
	idle := api.ControllerStats{Instances: map[string]int{"Terminated": 0}}
	for name, c := range map[string]struct {
		bodies map[string]any
		want   bool
	}{
		"nothing is known": {map[string]any{}, false},
		"never started": {map[string]any{
			"/api/v1/vm/history":  []api.HistoryInstance{},
			"/api/v1/stats/usage": api.UsageReport{Rows: []api.UsageRow{{}}},
		}, false},
		"history": {map[string]any{"/api/v1/vm/history": []api.HistoryInstance{{}}}, true},
		"usage": {map[string]any{
			"/api/v1/vm/history":  []api.HistoryInstance{},
			"/api/v1/stats/usage": api.UsageReport{Rows: []api.UsageRow{{}, {Starts: 1}}},
		}, true},
	} {
		if got := hasStarted(newStubVisit(t, c.bodies), &idle); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !hasStarted(newStubVisit(t, nil), &api.ControllerStats{Instances: map[string]int{"Scheduling": 1}}) {
		t.Error("an instance exists")
	}
}

// TestFailureCauses: a cause leads to the instances with the same one, and a cut list says so.
func TestFailureCauses(t *testing.T) {
	failed := func(class, tag string) api.InstanceItem {
		return api.InstanceItem{InstanceID: "i-" + class, VM: api.Instance{
			VMID: "t", Tag: tag, Failure: &api.InstanceFailure{Class: class, Summary: "Failed by " + class},
		}}
	}
	page := api.InstancePage{Total: 250, Instances: []api.InstanceItem{
		failed("disk", "v 1"), failed("disk", "v 1"), failed("memory", ""),
	}}
	var d dashboard
	if err := d.addFailures(newStubVisit(t, map[string]any{"/api/v1/vm/page": page})); err != nil {
		t.Fatal(err)
	}
	if len(d.Failures) != 2 || d.FailedCount != 250 || d.FailedCut != 3 || d.Failures[0].Count != 2 ||
		d.Failures[1].Path != "/instances/i-memory" ||
		d.Failures[0].Path != "/instances?q=state%3Aerror+template%3At+tag%3A%22v+1%22+failure%3Adisk" {
		t.Errorf("%+v", d)
	}
	page.Total = len(page.Instances)
	d = dashboard{}
	if err := d.addFailures(newStubVisit(t, map[string]any{"/api/v1/vm/page": page})); err != nil || d.FailedCut != 0 {
		t.Errorf("%v, of the newest %d", err, d.FailedCut)
	}
}

// TestRunningOf: while no node reports it is not known what runs.
func TestRunningOf(t *testing.T) {
	zero, one := 0.0, 1.0
	for name, c := range map[string]struct {
		point api.SeriesPoint
		known bool
	}{
		"idle":              {api.SeriesPoint{OfflineNodes: &zero, ActiveNodes: &one}, true},
		"nodes not counted": {api.SeriesPoint{Running: 2}, true},
		"one is lost":       {api.SeriesPoint{Running: 2, OfflineNodes: &one, ActiveNodes: &one}, true},
		"drained runs":      {api.SeriesPoint{Running: 2, OfflineNodes: &one, ActiveNodes: &zero}, true},
		"all are lost":      {api.SeriesPoint{OfflineNodes: &one, ActiveNodes: &zero}, false},
	} {
		if got := runningOf(&c.point); (got != nil) != c.known {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPhaseView: an instance that has a node is not shown as waiting.
func TestPhaseView(t *testing.T) {
	for phase, want := range map[string]string{
		"queued": "Waiting (Scheduling)", "placed": "Placed on a node (Scheduling)", "booting": "Booting (Scheduling)",
	} {
		if got := newPhaseView("Scheduling", phase).Label(); got != want {
			t.Errorf("%s: %q, want %q", phase, got, want)
		}
	}
	if got := newPhaseView("Started", "running").Label(); got != "Started" {
		t.Errorf("running: %q", got)
	}
}

// TestMostFirst: the first click on a column of failures shows the node with most of them first.
func TestMostFirst(t *testing.T) {
	for sort, want := range map[string]string{"name": "-failed", "-failed": "failed", "failed": "-failed"} {
		a := tableQuery{path: "/nodes", sort: sort}
		for _, c := range a.columns(nodeColumns) {
			if c.ID == "failed" && c.Path != "/nodes?sort="+want {
				t.Errorf("sorted by %s: the head leads to %s", sort, c.Path)
			}
			if c.ID == "failed" && strings.HasSuffix(sort, "failed") != (c.Sorted != "") {
				t.Errorf("sorted by %s: %q", sort, c.Sorted)
			}
		}
	}
}
