package portal_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestInstances: the list, the page of one, and the end of one and of several.
func TestInstances(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/instances").has(200, "No instances.", "/instances/start")
	w.push(debian, "debian")
	nodes := w.join("good", 2)
	ids := w.start(client.StartRequest{
		TemplateID: debian, Name: hostile, Count: 3, Metadata: map[string]any{"branch": hostile},
	})
	list := w.get("/instances?q=state:started&sort=-age")
	list.has(200, "3 instances that match", ">Start took<", ">Owner<")
	list.has(200, "debian", "v2", `href="/instances/`+ids[0]+`"`, `aria-sort="descending"`,
		"&lt;script&gt;", "!<script>alert", "!<img src=x")
	for header, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8",
	} {
		if got := list.Header.Get(header); got != want {
			t.Errorf("%s: %q", header, got)
		}
	}
	if csp := list.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") ||
		!strings.Contains(csp, "script-src 'self'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", csp)
	}
	w.get("/instances?q=colour:red").has(200, "unknown field &#34;colour&#34;", `aria-invalid="true"`,
		"!No instance fits")
	w.get("/instances?q=name:nobody").has(200, "No matching instances")
	w.ask("GET", "/instances", nil, map[string]string{"HX-Request": "true"}).has(200, "</title><main",
		"</main><hx-partial", "!<html", "!</hx-partial>\n")
	w.get("/instances/"+ids[0]).has(200, "Started", "debian", ">Terminate</a>", nodes[0].NodeName[:4], "&lt;img src=x",
		"!<img src=x", "Raw JSON", "curl -s", "<dt>Start took</dt>")
	w.get("/instances/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22").has(404, "Not found", "Request ID <code>")
	w.get("/instances/end?chosen="+ids[0]).has(200, "Terminate 1 instance", "cannot be undone", ids[0])
	w.get("/instances/end").has(400, "No instance selected")
	if s := w.post("/instances/end", url.Values{"chosen": {ids[0]}}); s.Code != http.StatusSeeOther ||
		s.Header.Get("Location") != "/instances/"+ids[0] {
		t.Errorf("%d to %s", s.Code, s.Header.Get("Location"))
	}
	w.post("/instances/end", url.Values{"chosen": {ids[1], "no such id"}}).has(409,
		"1 failed of 2; the others: Termination requested", "Not found", `hx-post="/results/instances"`, `id="r-`+ids[1]+`"`,
		"!<script>alert", "1 instance now",
		`data-live="/live?topics=instances"`, "!hx-get=")
	w.post("/instances/end", url.Values{"all": {"1"}, "shown": {"1"}, "q": {"id:" + ids[2]}}).has(303)
	w.await("the end", func() (bool, error) {
		left, err := w.API.Instances(t.Context(), client.ListOptions{})
		return len(left) == 0, err
	})
	w.get("/instances/"+ids[0]).has(200, "Terminated", ">Timeline<", "!>Terminate</a>",
		"<b>Terminated by an anonymous caller</b>")
	w.post("/results/instances", url.Values{"chosen": {ids[1], "x"}}).has(200, "2 instances now", "Terminated", "Gone",
		"!failed of", "!<script>alert")
	w.post("/results/instances", url.Values{"chosen": {"*", "a,b"}}).has(400, "about nothing")
	w.post("/results/planets", url.Values{"chosen": {"x"}}).has(400, "about nothing")
}

// TestWhatIsChosenTwice: it is done once. What names have in them is in commands as JSON has it.
func TestWhatIsChosenTwice(t *testing.T) {
	w := newWorld(t, nil)
	w.post("/instances/end", url.Values{"chosen": {"a", "b", "a"}}).has(409, "2 failed of 2")
	w.post("/nodes/drain", url.Values{"chosen": {"a", "b", "a"}}).has(409, "2 failed of 2")
	w.get("/instances/end?chosen=%22%07").has(200, `{&#34;id&#34;:&#34;\&#34;\u0007&#34;}`)
}

// TestManyNeedTheirNumber: what ends many has to be typed, and is refused when their number is
// another one.
func TestManyNeedTheirNumber(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	if _, err := w.API.Start(t.Context(), client.StartRequest{TemplateID: debian, Count: 21}); err != nil {
		t.Fatal(err)
	}
	all := url.Values{"all": {"1"}}
	w.get("/instances/end?all=1").has(200, "21 instances", `name="typed"`, `name="shown" value="21"`)
	w.post("/instances/end", all).has(400, "does not say how many", "Nothing was terminated")
	all.Set("shown", "20")
	w.post("/instances/end", all).has(400, "fewer instances", "21 match now", "Nothing was terminated",
		`name="shown" value="21"`)
	all.Set("shown", "21")
	w.post("/instances/end", all).has(400, "Type 21 instances")
	all.Set("typed", "20 instances")
	w.post("/instances/end", all).has(400, "Type 21 instances")
	all.Set("typed", "21 instances")
	w.post("/instances/end", all).has(200, "21 done")
}

// TestWhoMayLook: without a login each page redirects to it; a logged-in user is not asked again; a
// page of another site changes nothing.
func TestWhoMayLook(t *testing.T) {
	w := newGuarded(t)
	s := w.get("/instances?q=state:error")
	if want := "/login?return=%2Finstances%3Fq%3Dstate%3Aerror"; s.Code != http.StatusSeeOther ||
		s.Header.Get("Location") != want {
		t.Errorf("%d to %q, not %q", s.Code, s.Header.Get("Location"), want)
	}
	part := w.ask("GET", "/instances", nil, map[string]string{"HX-Request": "true"})
	if part.Code != http.StatusNoContent || !strings.HasPrefix(part.Header.Get("HX-Redirect"), "/login?") {
		t.Errorf("%d to %q", part.Code, part.Header.Get("HX-Redirect"))
	}
	w.get("/live?topics=instances").has(401)
	w.logIn()
	w.get("/instances").has(200, "No instances.", "Log out")
	for _, site := range []string{"cross-site", "same-site"} {
		w.ask("POST", "/instances/end", url.Values{"chosen": {"x"}}, map[string]string{"Sec-Fetch-Site": site}).has(403,
			"another site")
	}
}

// TestFiles: files have a name derived from their content, and are compressed where that pays.
func TestFiles(t *testing.T) {
	w := newWorld(t, nil)
	page := w.get("/instances").Text
	i := strings.Index(page, "/assets/")
	prefix := page[i : i+len("/assets/0123456789abcdef/")]
	s := w.ask("GET", prefix+"css/tokens.css", nil, map[string]string{"Accept-Encoding": "gzip"})
	if s.Code != 200 || s.Header.Get("Content-Encoding") != "gzip" ||
		!strings.Contains(s.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("%d %v", s.Code, s.Header)
	}
	w.ask("GET", prefix+"js/portal.js", nil, map[string]string{"Accept-Encoding": "identity"}).has(200, "followChanges")
	w.get(prefix+"css/portal.css").has(200, "@font-face", ".panel", "../vendor/inter/")
	w.get("/assets/0000000000000000/css/tokens.css").has(404, "reload it")
	w.get(prefix + "VERSIONS.md").has(404)
	w.get("/favicon.ico").has(200, "<svg")
}

// TestInstanceOfAGroup: the page names the group, and forwards to it.
func TestInstanceOfAGroup(t *testing.T) {
	w := newWorld(t, nil)
	node := w.join("worker", 1)[0].NodeID
	w.push(debian, "debian")
	g, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios builders"})
	if err == nil {
		err = w.API.AddNodeToGroups(t.Context(), node, g.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	id := w.start(client.StartRequest{TemplateID: debian, GroupID: g.ID})[0]
	w.get("/instances/"+id).has(200, `href="/groups?q=id%3A`+g.ID+`">ios builders</a>`)
}

// TestEndsWhatLives: "all" selects only instances that have not ended; unnamed instances are
// distinguished from each other.
func TestEndsWhatLives(t *testing.T) {
	w := newWorld(t, nil)
	w.join("worker", 1)
	w.push(debian, "debian")
	ids := w.start(client.StartRequest{TemplateID: debian, Count: 3})
	list := w.get("/instances").Text
	for _, id := range ids {
		if !strings.Contains(list, `aria-label="Select `+id[len(id)-8:]+`"`) {
			t.Errorf("%s is not told from the others", id)
		}
	}
	w.post("/instances/end", url.Values{"chosen": {ids[0]}}).has(303)
	w.await("the end", func() (bool, error) {
		page, err := w.API.InstancePage(t.Context(), client.PageOptions{Filter: "state:terminated"})
		return page.Total == 1, err
	})
	w.get("/instances/end?all=1").has(200, "Terminate 2 instances", "!"+ids[0])
	w.get("/instances/end?all=1&q=state:terminated").has(400, "left to terminate")
	const fit = "/instances?q=state:started&sort=age"
	w.get(fit).has(200, `name="back" value="/instances?q=state:started&amp;sort=age"`)
	from := url.Values{"chosen": {ids[1], ids[2]}, "back": {fit}}
	w.get("/instances/end?"+from.Encode()).has(200,
		`<a class="btn" href="/instances?q=state:started&amp;sort=age" data-close>Cancel</a>`)
	w.post("/instances/end", from).has(200, `href="/instances?q=state:started&amp;sort=age"`)
}
