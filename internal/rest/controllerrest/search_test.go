package controllerrest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
)

// searched returns the result of a search.
func (c *cloud) searched(query string) (out api.SearchResult) {
	c.t.Helper()
	c.call("GET", "/api/v1/search?q="+query, "").into(c.t, &out)
	return out
}

// rows returns the matches as texts: kind, name, field and rank.
func rows(r api.SearchResult) (list []string) {
	for _, m := range r.Matches {
		list = append(list, fmt.Sprintf("%s %s %s %s", m.Kind, m.Name, m.Match.Field, m.Rank))
	}
	return list
}

func TestSearch(t *testing.T) {
	keys := []farm.APIKey{{ID: "mac-builders", Groups: []string{"ci"}, Expires: time.Now().Add(time.Hour)}}
	c := newCloudWith(t, controller.Options{}, func(o *controllerrest.Options) {
		o.ListKeys = func() []farm.APIKey { return keys }
	})
	a := c.start(`,"name":"mac one","external_id":"http://ci/1","metadata":{"branch":"release/7","build":12345678}`)
	b := c.start(`,"name":"mac"`)
	if _, err := c.Nodes.Join(t.Context(), api.JoinRequest{
		Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "imac-1", Host: "10.0.7.1", Arch: "arm64",
	}); err != nil {
		t.Fatal(err)
	}
	c.call("POST", "/api/v1/group", `{"name":"macs","description":"for releases"}`)

	for query, want := range map[string][]string{
		"mac": {
			"instance mac name exact", "instance mac one name prefix", "group macs name prefix",
			"key mac-builders id prefix", "node imac-1 name substring",
		},
		"MAC%20ONE": {"instance mac one name exact"}, "http://ci/1": {"instance mac one external_id exact"},
		"release/7": {"instance mac one metadata.branch word"}, "12345678": {"instance mac one metadata.build word"},
		"10.0.7.1": {"node imac-1 host exact"}, a: {"instance mac one id exact"},
		"base": {"template base name exact", "instance mac template word", "instance mac one template word"},
		"ci":   {"instance mac one external_id word", "key mac-builders group word"}, "nothing-at-all": nil,
		"root":     {"instance mac owner word"},
		"releases": {"group macs description word"}, "one%20release": {"instance mac one name word"},
	} {
		if got := rows(c.searched(query)); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", query, got, want)
		}
	}
	got := c.searched("mac&limit=1")
	if len(got.Matches) != 4 || got.Totals["instance"] != 2 || got.Totals["template"] != 0 || len(got.Incomplete) != 0 {
		t.Errorf("with a limit: %+v", got)
	}
	if m := got.Matches[0]; m.ID != b || m.State != "Scheduling" || m.Detail != "base:v1+x" || m.Match.Text != "mac" {
		t.Errorf("an instance: %+v", m)
	}
	for query, want := range map[string]string{
		"": "q: is required", "%20": "q: is required", "a&limit=0": "limit: ", "a&limit=51": "limit: ",
		strings.Repeat("x", 201): "q: ",
	} {
		if a := c.call("GET", "/api/v1/search?q="+query, ""); a.code != 400 || !strings.HasPrefix(a.Message, want) {
			t.Errorf("%s: %d %s", query, a.code, a.Message)
		}
	}
}

// TestSearchTerminated: a terminated instance is found by what identifies it, after the others.
func TestSearchTerminated(t *testing.T) {
	c := newCloud(t)
	ended := c.start(`,"name":"job-17","external_id":"http://ci/17"`)
	want(t, "terminated", c.call("DELETE", "/api/v1/vm", `{"id":"`+ended+`"}`).Status, "OK")
	deadline := time.Now().Add(time.Minute)
	for len(c.History.List(history.Query{ID: ended, Limit: 1})) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the instance is not in the history")
		}
		time.Sleep(time.Millisecond)
	}
	running := c.start(`,"name":"job-17"`)
	for query, ids := range map[string][]string{
		"job-17": {running, ended}, "http://ci/17": {ended}, ended: {ended}, "job-18": nil,
	} {
		var got []string
		found := c.searched(url.QueryEscape(query))
		if past := min(len(ids), 1); found.Terminated != past || found.Totals["instance"] != len(ids) {
			t.Errorf("%s: %d in the history, of %d", query, found.Terminated, found.Totals["instance"])
		}
		for _, m := range found.Matches {
			got = append(got, m.ID)
			if (m.ID == ended) != (m.State == string(farm.Terminated)) {
				t.Errorf("%s: %+v", query, m)
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%s: %q, want %q", query, got, ids)
		}
	}
}

// TestSearchShowsWhatListsShow: a caller finds nothing by a search that its lists do not show.
func TestSearchShowsWhatListsShow(t *testing.T) {
	m := newManaged(t)
	m.templates = map[string][]string{}
	get := func(who, path string, into any) {
		t.Helper()
		a := m.call("GET", path, "", "Authorization", m.sessions[who])
		if a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.code, a.Message)
		}
		a.into(t, into)
	}
	found := func(who, query string) (names []string) {
		t.Helper()
		var r api.SearchResult
		get(who, "/api/v1/search?q="+query, &r)
		for _, one := range r.Matches {
			names = append(names, one.Kind+" "+one.Name)
		}
		return names
	}
	want(t, "root, hidden", found("root", "hidden"), []string{"node hidden"})
	want(t, "root, base", found("root", "base"), []string{"template base"})
	want(t, "ann, hidden", found("ann", "hidden"), []string(nil))
	want(t, "ann, its id", found("ann", m.hidden.NodeID), []string(nil))
	want(t, "ann, seen", found("ann", "seen"), []string{"node seen"})
	want(t, "ann, base", found("ann", "base"), []string(nil))

	names := func(who string) (list []string) {
		var c api.Completion
		get(who, "/api/v1/filter/complete?resource=nodes&q=name:", &c)
		for _, v := range c.Values {
			list = append(list, v.Text)
		}
		return list
	}
	want(t, "root, names", names("root"), []string{"hidden", "open", "seen"})
	want(t, "ann, names", names("ann"), []string{"open", "seen"})
}

func TestCompleteFilter(t *testing.T) {
	c := newCloud(t)
	c.start(`,"name":"mac one"`)
	c.start(`,"name":"linux"`)
	complete := func(resource, text string) (out api.Completion) {
		c.call("GET", "/api/v1/filter/complete?resource="+resource+"&q="+url.QueryEscape(text), "").into(t, &out)
		return out
	}
	for _, row := range []struct{ resource, text, want string }{
		{"instances", "sched", "state:Scheduling 2"},
		{"instances", "linux state:", "state:Scheduling 1"},
		{"instances", "name:m", `name:"mac one" 1`},
		{"instances", "-template:b", "-template:base 2"},
		{"instances", "bas", "template:base 2"},
		{"nodes", "state:off", "state:Offline 0"},
		{"templates", "name:", "name:base 1"},
		{"templates", "arch:a", "arch:amd64 "},
	} {
		got := complete(row.resource, row.text)
		if len(got.Values) == 0 ||
			!strings.HasPrefix(fmt.Sprint(got.Values[0].Value, " ", got.Values[0].Count), row.want) {
			t.Errorf("%s %s: %+v, want %s", row.resource, row.text, got.Values, row.want)
		}
	}
	got := complete("instances", "state:started te")
	if got.Start != 14 || len(got.Values) != 0 || len(got.Fields) != 1 || got.Fields[0].Name != "template" {
		t.Errorf("a field: %+v", got)
	}
	for query, want := range map[string]string{
		"?q=x": "resource: ", "?resource=events": "resource: ", "?resource=nodes&limit=0": "limit: ",
		"?resource=nodes&q=state:x%20": "q: at 7: unknown state",
	} {
		a := c.call("GET", "/api/v1/filter/complete"+query, "")
		if a.code != 400 || !strings.HasPrefix(a.Message, want) {
			t.Errorf("%s: %d %s", query, a.code, a.Message)
		}
	}
}
