package controllerrest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

func filtered(text string) string { return "?filter=" + url.QueryEscape(text) }

func TestFilterInstances(t *testing.T) {
	c := newCloud(t)
	a := c.start(`,"name":"mac one","external_id":"http://ci/1"`)
	b := c.start(`,"name":"linux","vcpu":4,"metadata":{"branch":"release/7","build":1234,"signed":true}`)
	for text, want := range map[string][]string{
		"state:scheduling": {a, b}, "state:started": {}, "-state:started": {a, b}, "name:mac*": {a},
		`name:"mac one"`: {a}, "linux": {b},
		"id:" + b: {b}, "template:base tag:v1+x": {a, b}, "template:" + templateID: {a, b},
		"external_id:http://ci/*": {a}, "owner:ci": {a},
		"age<1h": {a, b}, "age>1h": {}, "cpus:4": {b}, "ram>=512MB": {a, b}, "arch:amd64 version:0": {a, b},
		// words are searched in every column
		"base": {a, b}, "v1+x": {a, b}, templateID[:8]: {a, b}, "CI/1": {a}, "release/7": {b},
		`metadata:"signed=true"`: {b},
		"metadata:build=1234":    {b}, "scheduling": {a, b}, "amd64": {a, b}, "-amd64": {}, "linux base": {b},
		"mac,release": {a, b}, "nowhere": {}, "metadata:release*": {b}, "metadata:1234": {b}, "metadata:branch": {},
		// no record has these values of open sets
		"node:x": {}, "group:x": {}, "template:x": {}, "owner:x": {}, "state:s*,error": {a, b},
		"message:*node*": {a, b}, "ip:*": {}, "ttl>0": {},
	} {
		if got := c.list(filtered(text)); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if got := c.list(filtered("state:scheduling") + "&limit=1&after=" + a); len(got) != 1 || got[0] != b {
		t.Errorf("with limit and after: %v", got)
	}
	if got := c.list(filtered("name:*") + "&external_id=http://ci/1"); len(got) != 1 || got[0] != a {
		t.Errorf("with external_id: %v", got)
	}
	for text, want := range map[string]string{
		"stat:x": "filter: at 1: unknown field \"stat\"; the fields are age, arch, ",
		"nod:x":  "filter: at 1: unknown field \"nod\"; the fields are age, arch, cpus, ",
		"state:strted": "filter: at 7: unknown state \"strted\": want one of Scheduling, Pulling, Started, Stopping, " +
			"Stopped, Terminating, Terminated, Error, Pushing; did you mean Started?",
		"-state:started,eror": "filter: at 16: unknown state \"eror\"",
		"arch:x86":            "filter: at 6: unknown arch \"x86\": want one of amd64, arm64",
		"age:x":               "filter: at 5: age takes a time",
		`name:"x`:             "filter: at 6: missing closing quote",
	} {
		if a := c.call("GET", "/api/v1/vm"+filtered(text), ""); a.code != 400 || !strings.HasPrefix(a.Message, want) {
			t.Errorf("%s: %d %s", text, a.code, a.Message)
		}
	}
}

// TestUnknownValues: every list with a state refuses one that does not exist, and names those that do.
func TestUnknownValues(t *testing.T) {
	c := newCloud(t)
	for path, want := range map[string]string{
		"/api/v1/vm": "Scheduling, ", "/api/v1/vm/page": "Scheduling, ", "/api/v1/vm/history": "Scheduling, ",
		"/api/v1/node":                   `"Drain Mode", Offline, "Inactive (Invalid License)", Active, `,
		"/api/v1/node/page":              "Offline, ",
		"/api/v1/image":                  "pending, done, error",
		"/api/v1/registry/vm/distribute": "open, finished, canceled, expired",
	} {
		a := c.call("GET", path+filtered("state:nonsense"), "")
		if a.code != 400 || !strings.HasPrefix(a.Message, `filter: at 7: unknown state "nonsense": want one of `) ||
			!strings.Contains(a.Message, want) {
			t.Errorf("%s: %d %s", path, a.code, a.Message)
		}
	}
}

// TestWordsInNodesAndTemplates: a word without a field is searched in every column of these lists, too.
func TestWordsInNodesAndTemplates(t *testing.T) {
	c := newCloud(t)
	if _, err := c.Nodes.Join(t.Context(), api.JoinRequest{
		Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: "mac-1", Host: "10.0.7.1", Arch: "arm64",
	}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path, text string
		want       int
	}{
		{"/api/v1/node", "mac", 1},
		{"/api/v1/node", "10.0.7", 1},
		{"/api/v1/node", "arm64", 1},
		{"/api/v1/node", "10.0.8", 0},
		{"/api/v1/node/page", "mac arm64", 1},
		{"/api/v1/registry/vm", "base", 1},
		{"/api/v1/registry/vm", templateID[:8], 1},
		{"/api/v1/registry/vm", "nothing", 0},
	} {
		a := c.call("GET", row.path+filtered(row.text), "")
		found := strings.Count(string(a.Body), `"mac-1"`) + strings.Count(string(a.Body), `"name":"base`)
		if a.code != 200 || found != row.want {
			t.Errorf("%s %s: %d, %d found, want %d: %s", row.path, row.text, a.code, found, row.want, a.Body)
		}
	}
}

// TestFilterOtherLists sends an invalid filter, and one that matches nothing, to every list that has a filter.
func TestFilterOtherLists(t *testing.T) {
	c := newCloud(t)
	for path, text := range map[string]string{
		"/api/v1/vm/history":  "state:started ended<1h -node:x*",
		"/api/v1/node":        "state:active vms>0 disk>4GB group:x template:y",
		"/api/v1/registry/vm": "name:nothing* size>1TB", "/api/v1/image": "state:pending template:x age>10m",
		"/api/v1/group": "name:x", "/api/v1/registry/vm/distribute": "state:open node:x age<1d nodes>1",
		"/api/v1/registry/vm/remove": "template:x",
	} {
		a := c.call("GET", path+filtered(text), "")
		if a.code != 200 || a.Status != "OK" || string(a.Body) != "[]" {
			t.Errorf("%s: %d %s %s", path, a.code, a.Message, a.Body)
		}
		if a := c.call("GET", path+"?filter=none:x", ""); a.code != 400 ||
			!strings.HasPrefix(a.Message, "filter: at 1: ") {
			t.Errorf("%s: %d %s", path, a.code, a.Message)
		}
	}
	if a := c.call("GET", "/api/v1/registry/vm"+filtered("name:b* size<1KB"), ""); !strings.Contains(string(a.Body),
		templateID) {
		t.Errorf("templates: %s", a.Body)
	}
}

func TestPagesOfNodesAndTemplates(t *testing.T) {
	c := newCloud(t)
	var ids []string
	for i := range 5 {
		answer, err := c.Nodes.Join(t.Context(), api.JoinRequest{
			Protocol: api.LinkProtocol, Token: c.Nodes.JoinToken(), Name: fmt.Sprint("n", i), Host: "10.0.0.1",
			Arch: "amd64",
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, answer.NodeID)
	}
	list := func(query string) (got []string) {
		var nodes []api.Node
		c.call("GET", "/api/v1/node"+query, "").into(t, &nodes)
		for _, n := range nodes {
			got = append(got, n.NodeID)
		}
		return got
	}
	all := list("")
	if len(all) != len(ids) {
		t.Fatal("nodes:", all)
	}
	want(t, "first", list("?limit=2"), all[:2])
	want(t, "next", list("?limit=2&after="+all[1]), all[2:4])
	want(t, "last", list("?limit=2&after="+all[3]), all[4:])
	want(t, "filtered", len(list("?filter=name:n1,n2&limit=1")), 1)
	for query, n := range map[string]int{"?limit=1": 1, "?after=" + templateID: 0, "?after=0": 1} {
		var list []api.Template
		c.call("GET", "/api/v1/registry/vm"+query, "").into(t, &list)
		want(t, "templates"+query, len(list), n)
	}
	for _, path := range []string{"/api/v1/node", "/api/v1/registry/vm"} {
		if a := c.call("GET", path+"?limit=0", ""); a.code != 400 || !strings.HasPrefix(a.Message, "limit: ") {
			t.Errorf("%s: %d %s", path, a.code, a.Message)
		}
	}
}

// tagged requests a list that the client may already have.
func (c *cloud) tagged(path, have string) (code int, tag, body string) {
	c.t.Helper()
	req, _ := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+path, nil)
	if have != "" {
		req.Header.Set("If-None-Match", have)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Error(err)
		return 0, "", ""
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return resp.StatusCode, resp.Header.Get("ETag"), string(raw)
}

func TestTagsOfInstances(t *testing.T) {
	c := newCloud(t)
	id := c.start("")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); { // the scheduler adds why it waits
		if _, _, body := c.tagged("/api/v1/vm?id="+id, ""); strings.Contains(body, "there are no nodes") {
			break
		}
	}
	for _, path := range []string{"/api/v1/vm", "/api/v1/vm?id=" + id, "/api/v1/vm?limit=5", "/api/v1/vm" +
		filtered("state:s*"), "/api/v1/node", "/api/v1/image"} {
		_, tag, _ := c.tagged(path, "")
		code, again, body := c.tagged(path, tag)
		if code != http.StatusNotModified || again != tag || body != "" {
			t.Errorf("%s: %d %s %q, had %s", path, code, again, body, tag)
		}
	}
	c.start("")
	_, first, _ := c.tagged("/api/v1/vm?limit=1", "")
	// a body may contain the same
	if _, second, _ := c.tagged("/api/v1/vm?limit=1&after="+c.list("")[0], ""); first == second {
		t.Error("two pages have one tag")
	}
	_, tag, _ := c.tagged("/api/v1/vm", "")
	c.call("PUT", "/api/v1/vm", `{"id":"`+id+`","name":"other"}`)
	if code, _, body := c.tagged("/api/v1/vm", tag); code != 200 || !strings.Contains(body, "other") {
		t.Errorf("after a change: %d %s", code, body)
	}
}

// TestTagsAreNeverWrong has readers that cache a list by its tag while writers change it: the cached list
// always has each write that was acknowledged before their request.
func TestTagsAreNeverWrong(t *testing.T) {
	c := newCloud(t)
	id := c.start("")
	var writers, readers sync.WaitGroup
	var mu sync.Mutex
	written := map[string]string{} // field -> its last value that was answered
	done := make(chan struct{})
	for _, field := range []string{"name", "external_id"} {
		writers.Go(func() {
			for i := range 150 {
				value := fmt.Sprintf("%s-%d", field, i)
				c.call("PUT", "/api/v1/vm", `{"id":"`+id+`","`+field+`":"`+value+`"}`)
				mu.Lock()
				written[field] = value
				mu.Unlock()
			}
		})
	}
	for _, path := range []string{"/api/v1/vm", "/api/v1/vm?id=" + id, "/api/v1/vm" + filtered("state:s*")} {
		readers.Go(func() {
			tag, kept, same := "", "", 0
			for {
				mu.Lock()
				name, external := written["name"], written["external_id"]
				mu.Unlock()
				code, next, body := c.tagged(path, tag)
				if code == 200 {
					tag, kept = next, body
				} else {
					same++
				}
				if number(kept, "name-") < number(name, "name-") ||
					number(kept, "external_id-") < number(external, "external_id-") {
					t.Errorf("%s: %s and %s were written, and this is kept: %s", path, name, external, kept)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// number returns the number after a word; -1: the word is missing.
func number(text, word string) int {
	_, rest, ok := strings.Cut(text, word)
	if !ok {
		return -1
	}
	n := 0
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}
