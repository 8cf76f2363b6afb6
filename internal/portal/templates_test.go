package portal_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// form is the values of a form that a page holds: its hidden fields and those that are given.
func (s shown) form(pairs ...string) url.Values {
	f := url.Values{}
	for _, part := range strings.Split(s.Text, `<input type="hidden"`)[1:] {
		tag, _, _ := strings.Cut(part, ">")
		name, value := attribute(tag, "name"), attribute(tag, "value")
		f.Add(name, value)
	}
	for i := 0; i < len(pairs); i += 2 {
		f.Add(pairs[i], pairs[i+1])
	}
	return f
}

func attribute(tag, name string) string {
	_, rest, _ := strings.Cut(tag, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&#43;", "+", "&amp;",
		"&").Replace(value)
}

// leadsTo checks the redirect of a submitted form, and returns it.
func (s shown) leadsTo(prefix string) string {
	s.t.Helper()
	to := s.Header.Get("Location")
	if s.Code != 303 || !strings.HasPrefix(to, prefix) {
		s.t.Errorf("%d to %q: %.600s", s.Code, to, s.main())
	}
	return to
}

// TestTemplates: the list, one, its scan; what is hostile is text.
func TestTemplates(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/templates").has(200, "No templates.", "buildnode registry -r &#39;"+w.RegistryURL(), "push my-image")
	w.push(debian, hostile)
	w.push(spare, "spare")
	w.get("/templates").has(200, "2 templates", "v2", "spare", "&lt;script&gt;", "!<script>alert",
		`href="/templates/`+debian+`"`)
	w.get("/templates?q=name:spare&sort=-pushed").has(200, "1 template that match", "spare", `aria-sort="descending"`,
		"!"+debian)
	w.get("/templates?q=colour:red").has(200, "unknown field", `aria-invalid="true"`)
	w.get("/templates?q=name:nobody").has(200, "No matching templates")
	w.get("/templates/"+debian).has(200, "2 tags", "No node has cached the template yet", "not scanned", "none now",
		"&lt;img src=x", "!<img src=x")
	w.get("/templates/7b0e1f0a-1111-4222-8333-444455556666").has(404, "Not found")
	w.get("/templates/"+spare+"/scan?tag=v1").has(404, "No scan results", "imagescan")

	store, err := client.NewRegistry(w.RegistryURL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report := `{"matches":[{"vulnerability":{"id":"CVE-1 <b>","severity":"high","base-score":7.5},"artifact":{"name":"<i>openssl","version":"3"}}]}`
	scan := api.TemplateScan{
		ScanSummary: api.ScanSummary{Scanner: "<u>scan", Version: "1", Database: time.Unix(1e9,
			0), Scanned: time.Unix(2e9, 0), Counts: api.ScanCounts{High: 1, Packages: 7}, Partial: true},
		Report: []byte(report),
	}
	if err := store.PutScan(t.Context(), spare, client.Version{Tag: "v1"}, scan); err != nil {
		t.Fatal(err)
	}
	w.get("/templates/"+spare).has(200, "1 high", "&lt;u&gt;scan 1", "/templates/"+spare+"/scan?tag=v1")
	w.get("/templates/"+spare+"/scan?tag=v1").has(200, "CVE-1 &lt;b&gt;", "&lt;i&gt;openssl",
		"incomplete; see the report", "!CVE-1 <b>", "!<i>openssl")
}

// TestDistribute: to all nodes, to some, to none; its progress; and its cancellation.
func TestDistribute(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	at := "/templates/" + debian
	nodes := w.join("good", 2)
	form := w.get(at + "/distribute?tag=v1")
	form.has(200, `<option value="v1" selected>v1 (`, "latest, ", "All nodes", "curl -s", "<b>0 of 2 nodes</b> have v1",
		"2 nodes pull up to", ">Prefetch to 2 nodes<", "!good-0001")
	send := func(values ...string) shown { return w.post(at+"/distribute", form.form(values...)) }
	send("tag", "v1", "to", "groups").has(400, "Choose one or more groups")
	send("tag", "v1", "to", "filter").has(400, "Write a name or a filter")
	send("tag", "v1", "to", "filter", "filter", "name:bad*").has(409, "o node")
	send("tag", "v1", "to", "filter", "filter", "colour:red").has(400, "unknown field")
	send("tag", "v1", "to", "filter", "filter", "colour:red", "preview", "1").has(200, "unknown field", ">Prefetch<")
	send("tag", "v1", "to", "filter", "filter", "0002", "preview", "1").has(200, "1 match", ">good-0002</a>",
		"1 node pulls up to", ">Prefetch to 1 node<")
	group, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.API.AddNodeToGroups(t.Context(), nodes[1].NodeID, group.ID); err != nil {
		t.Fatal(err)
	}
	send("tag", "v1", "to", "groups", "group", group.ID, "preview", "1").has(200, "<b>0 of 1 node</b>",
		`value="`+group.ID+`" checked`)
	one := send("tag", "v1", "to", "filter", "filter", "id:"+nodes[0].NodeID).leadsTo(at + "/distributions/")
	done := func(path, of string) {
		w.await("the distribution", func() (bool, error) {
			return strings.Contains(w.get(path).Text, of), nil
		})
	}
	done(one, "<dd>1 <small>of 1 node<")
	w.get(one).has(200, "Distribution of debian", nodes[0].NodeName, "Done", "!Cancel distribution")
	done(at, `id="h-`+nodes[0].NodeID) // a node reports its cache a moment later
	w.get(at).has(200, "1 node<", nodes[0].NodeName, `id="h-`+nodes[0].NodeID, "!"+nodes[1].NodeName)
	w.get("/templates?sort=-nodes").has(200, `>1</a>`)
	send("tag", "v1", "to", "missing", "preview", "1").has(200, "<b>0 of 1 node</b>", ">Prefetch to 1 node<")
	// The first node has only v1, so that v2 is missing on both.
	send("tag", "v2", "to", "missing", "preview", "1").has(200, "<b>0 of 2 nodes</b>", ">Prefetch to 2 nodes<",
		`id="lack">2<`)
	pick := func(node int) string {
		return `value="` + nodes[node].NodeID + `" id="pick-` + nodes[node].NodeID + `"`
	}
	send("tag", "v1", "to", "nodes", "preview", "1").has(200, "Select one or more nodes.", pick(0)+">", pick(1)+">")
	send("tag", "v1", "to", "nodes", "preview", "1", "node", nodes[1].NodeID, "find", nodes[0].NodeName).has(200,
		pick(0)+">", pick(1)+" checked>", ">1 selected<", "<b>0 of 1 node</b>", ">Prefetch to 1 node<")
	send("tag", "v1", "to", "nodes", "preview", "1", "find", "colour:red").has(200, "unknown field", "!"+pick(0))
	send("tag", "v1", "to", "nodes").has(400, "Select one or more nodes.")
	send("tag", "v1", "to", "all", "preview", "1").has(200, "<b>1 of 2 nodes</b> has v1")
	all := w.post(at+"/distribute", w.get(at+"/distribute").form("tag", "v1", "to", "all")).leadsTo(at +
		"/distributions/")
	done(all, "<dd>2 <small>of 2 nodes<")
	w.get(at+"/distributions/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22").has(404, "Not found")
	w.get(all+"/cancel").has(200, "Cancel the distribution of v1")
	w.post(all+"/cancel", url.Values{}).leadsTo(all)

	done(at, `id="h-`+nodes[1].NodeID)
	w.get(at+"/remove").has(200, "2 nodes remove all tags from their caches")
	w.post(at+"/remove", url.Values{}).has(200, "2 nodes requested")
	w.await("the removal", func() (bool, error) {
		return strings.Contains(w.get(at).Text, "No node has cached the template yet"), nil
	})
}

// TestRevertAndDelete: what goes is shown before, nothing else goes, and what is in use has to
// be typed.
func TestRevertAndDelete(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	at := "/templates/" + debian
	w.join("good", 1)
	w.start(client.StartRequest{TemplateID: debian, Name: "uses-it"})

	w.await("that the node tells what it holds",
		func() (bool, error) { return strings.Contains(w.get(at).Text, `id="h-`), nil })
	form := w.get(at + "/revert?tag=v2")
	form.has(200, "Delete 1 tag", "uses-it", "1 live instance</a> (1 Started)", "1 node caches",
		">v1</b> becomes the latest",
		"Type <b>debian</b>")
	w.get(at+"/revert?tag=v1").has(200, "deletes every tag", "Delete 2 tags")
	w.get(at+"/revert?tag=v9").has(404, "Tag v9 not found")
	w.post(at+"/revert?tag=v2", form.form()).has(400, "Type the name")
	w.post(at+"/revert?tag=v1", form.form("typed", "debian")).has(409, "have changed since")
	w.post(at+"/revert?tag=v2", form.form("typed", "debian")).leadsTo(at)
	w.get(at).has(200, "1 tag,", "!>v2<", "not in the registry")

	form = w.get(at + "/delete")
	form.has(200, "Delete debian", "1 live instance", "cannot be undone")
	w.post(at+"/delete", form.form("typed", "debia")).has(400, "Type the name")
	w.post(at+"/delete", form.form("typed", "debian", "nodes", "1")).leadsTo("/templates")
	w.get(at).has(404, "Not found")
	w.get(at+"/delete").has(404, "Not found")
}

// TestTemplatesOfWhoMayLess: what is missing is named, and the rest is there.
func TestTemplatesOfWhoMayLess(t *testing.T) {
	w := newGuarded(t)
	w.get("/templates").leadsTo("/login?return=")
	w.logIn()
	w.get("/templates").has(200, "No templates.", "--token-file")
	w.get("/templates/"+debian).has(404, "Not found")
}
