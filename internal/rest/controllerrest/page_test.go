package controllerrest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// list returns the ids of a list of instances.
func (c *cloud) list(query string) []string {
	c.t.Helper()
	var items []api.InstanceItem
	c.call("GET", "/api/v1/vm"+query, "").into(c.t, &items)
	ids := []string{}
	for _, item := range items {
		ids = append(ids, item.InstanceID)
	}
	return ids
}

func TestInstancePages(t *testing.T) {
	c := newCloud(t)
	const job = "http://ci.example/job/1?x=a&y=b c"
	external, _ := json.Marshal(job)
	for range 3 {
		c.start(`,"external_id":` + string(external))
		c.start(`,"external_id":"other"`)
	}
	all := c.list("")
	for _, id := range all {
		c.explained(id)
	}
	want(t, "bare answer", len(all), 6)
	want(t, "one page", c.list("?limit=4"), all[:4])
	want(t, "the next page", c.list("?limit=4&after="+all[3]), all[4:])
	want(t, "after the last", c.list("?after="+all[5]), []string{})
	want(t, "a cursor in capitals", c.list("?after="+strings.ToUpper(all[3])), all[4:])
	want(t, "after one that is not there", c.list("?after=00000000-0000-0000-0000-000000000000"), all)
	want(t, "empty parameters", c.list("?after=&limit=&external_id="), all)
	want(t, "unknown job", c.list("?external_id=nobody"), []string{})
	mine := "?external_id=" + url.QueryEscape(job)
	jobs := c.list(mine)
	want(t, "of a job", len(jobs), 3)
	want(t, "of a job by page", append(c.list(mine+"&limit=2"), c.list(mine+"&limit=2&after="+jobs[1])...), jobs)
	want(t, "pages by body", c.call("GET", "/api/v1/vm", `{"limit":"1"}`), c.call("GET", "/api/v1/vm?limit=1", ""))
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=10001": "limit", "limit=-1": "limit", "limit=x": "limit", "after=x": "after",
		"external_id=a%00b": "external_id",
	} {
		if a := c.call("GET", "/api/v1/vm?"+query, ""); a.code != http.StatusBadRequest ||
			!strings.HasPrefix(a.Message, field+": ") {
			t.Errorf("%s: %d %q", query, a.code, a.Message)
		}
	}
}

// TestYoungestFirst: the portal's default view, found by an index, equals a full scan of all instances.
func TestYoungestFirst(t *testing.T) {
	c := newCloud(t)
	for _, name := range []string{"row", "row", "row", "row", "row", "row", "row", "other"} {
		c.explained(c.start(`,"name":"` + name + `"`))
	}
	for _, part := range []string{"&limit=3", "&skip=3&limit=3", "&skip=6", "&skip=99", ""} {
		var quick, whole api.InstancePage
		c.call("GET", "/api/v1/vm/page?sort=age"+part, "").into(t, &quick)
		c.call("GET", "/api/v1/vm/page?sort=age&filter="+url.QueryEscape("name:*")+part, "").into(t, &whole)
		want(t, part, quick, whole)
		if part == "" && (quick.Total != 8 || len(quick.Instances) != 8 || quick.States["Scheduling"] != 8) {
			t.Errorf("%+v", quick)
		}
	}
}

// TestPagesEncodeOnlyTheirInstances: a page that is sorted or filtered reads all instances, and encodes only those
// that it shows.
func TestPagesEncodeOnlyTheirInstances(t *testing.T) {
	for path, shown := range map[string]int64{
		"/api/v1/vm/page?sort=name&limit=2":                                        2,
		"/api/v1/vm/page?sort=name&limit=3&filter=" + url.QueryEscape("name:row*"): 3,
		"/api/v1/vm?filter=" + url.QueryEscape("name:row-7"):                       1,
		"/api/v1/vm?limit=4": 4,
	} {
		c := newCloud(t)
		for i := range 10 {
			c.start(fmt.Sprintf(`,"name":"row-%d"`, i))
		}
		if a := c.call("GET", path, ""); a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.code, a.Message)
		}
		if n := c.encoded.Load(); n != shown {
			t.Errorf("%s encoded %d instances, want %d", path, n, shown)
		}
	}
}
