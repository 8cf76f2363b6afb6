package fault

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// TestCheckPast plants what may be wrong with the records of instances that are gone.
func TestCheckPast(t *testing.T) {
	begin := time.Now()
	record := func(id string, finished time.Duration, states ...string) api.HistoryInstance {
		p := api.HistoryInstance{InstanceID: id, Finished: begin.Add(finished)}
		for i, s := range states {
			p.Transitions = append(p.Transitions, api.Transition{State: s, Time: begin.Add(time.Duration(i))})
		}
		return p
	}
	whole := record("a", 8, "Started", "Terminating", "Terminated")
	full := make([]api.HistoryInstance, 0, pastKept) // each append below makes a new one
	for i := range pastKept {
		full = append(full, record(fmt.Sprint("x", i), 9, "Terminated"))
	}
	calls := []call{create(1, 2, "x", "a"), terminate(5, 6, true, "a")}
	for name, c := range map[string]struct {
		calls      []call
		past       []api.HistoryInstance
		kind, want string
	}{
		"whole":            {calls, []api.HistoryInstance{whole}, "", ""},
		"missing":          {calls, nil, "lost: ", "has no record"},
		"nothing promised": {[]call{create(1, 2, "x")}, nil, "", ""},
		"twice":            {calls, []api.HistoryInstance{whole, whole}, "wrong: ", "has 2 records"},
		"without its end": {
			calls,
			[]api.HistoryInstance{record("a", 8, "Started")},
			"wrong: ",
			"tells no whole life",
		},
		"without its time": {
			calls,
			[]api.HistoryInstance{{InstanceID: "a", Transitions: whole.Transitions}},
			"wrong: ", "tells no whole life",
		},
		"against the edges": {
			calls,
			[]api.HistoryInstance{record("a", 8, "Terminating", "Started", "Terminated")},
			"wrong: ", "follows Terminating",
		},
		"rightly forgotten": {calls, full, "", ""},
		"acknowledged late": {
			[]call{create(1, 2, "x", "a"), terminate(5, 8, true, "a")},
			append(full, record("y", 7, "Terminated")),
			"", "",
		},
		"forgotten too soon": {
			calls, append(full, record("y", 3, "Terminated")), "lost: ", "has no record",
		},
	} {
		var f findings
		checkPast(ledgerOf(c.calls).lives, c.past, begin, &f)
		expectOne(t, name, f, c.kind, c.want)
	}
	back := whole
	back.Transitions = append([]api.Transition{}, whole.Transitions...)
	back.Transitions[2].Time = begin.Add(-1)
	if wrongPast(back) == "" {
		t.Error("a record whose times go back is taken")
	}
}

// TestPast reads page by page.
func TestPast(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, body := pastPage, ""
		if r.URL.Query().Get("after") == "i999" {
			n = 3
		}
		for i := range n {
			body += fmt.Sprintf(`,{"instance_id":"i%d"}`, i)
		}
		_, _ = fmt.Fprintf(w, `{"status":"OK","body":[%s]}`, body[1:])
	}))
	defer server.Close()
	all, err := newClient(server.URL, newHistory()).past(t.Context())
	if err != nil || len(all) != pastPage+3 {
		t.Errorf("%d records, %v", len(all), err)
	}
}
