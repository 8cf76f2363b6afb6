package portal_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// pool creates a pool of debian.
func (w *world) pool(r client.PoolRequest) api.Pool {
	w.t.Helper()
	r.TemplateID = debian
	p, err := w.API.CreatePool(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// TestPools: the list and the page of a pool have the figures of the API, and other pages lead to them.
func TestPools(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.get("/pools").has(200, "No pools.", "buildyard pool create", `href="/pools/new"`, "!that you may see")
	group, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ios"})
	if err != nil {
		t.Fatal(err)
	}
	two, age := 2, int64(12*60*60)
	made := w.pool(client.PoolRequest{Name: "nightly", GroupID: group.ID, MinIdle: &two, MaxAge: &age})
	one := 1
	other := w.pool(client.PoolRequest{Name: "other", MinIdle: &one})
	w.join("mac", 1)
	ready := func() bool {
		other, err = w.API.Pool(t.Context(), other.ID)
		return err == nil && other.Ready == 1
	}
	w.await("a standby", func() (bool, error) { return ready(), err })
	w.start(client.StartRequest{TemplateID: debian, Count: 2})
	w.await("a hit, a miss and the next standby", func() (bool, error) {
		return ready() && other.Stats.Hits == 1 && other.Stats.Misses == 1, err
	})

	p, err := w.API.Pool(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	cell := func(name string, value any) string { return fmt.Sprintf(`data-l="%s">%v</td>`, name, value) }
	w.get("/pools").has(200, "2 pools", `href="/pools/`+p.ID+`"`, `href="/templates/`+debian+`"`, ">ios</a>",
		"0 of 2 ready", "1 of 1 ready", cell("Hits", 0), cell("Hits", 1), cell("Misses", 1), cell("Slot hours", "0.0"),
		cell("Time saved", format.Seconds(other.Stats.SavedSeconds)), "topics=instances,groups,pools")
	w.get("/pools?q=name:night*").has(200, "1 pool that match", "nightly", "!>other<", "filter=name%3Anight%2A")
	w.get("/pools?q=name:x").has(200, "No matching pools", "!No pools.")
	w.get("/pools?q=colour:red").has(200, "unknown field", `aria-invalid="true"`, "!No pools.")
	page := w.get("/pools/" + p.ID)
	page.has(200, "nightly", "<dt>Misses</dt><dd>0</dd>", "None now.", "buildyard pool show "+p.ID)
	w.get("/pools/"+other.ID).has(200, "<dt>Hits</dt><dd>1</dd>", "<dt>Misses</dt><dd>1</dd>",
		"<dt>Time saved</dt><dd>"+format.Seconds(other.Stats.SavedSeconds)+"</dd>", other.Standbys[0].InstanceID,
		`href="/nodes/`+other.Standbys[0].NodeID+`"`)
	page.facts(map[string]string{
		"Wanted now": "2 standbys", "Windows": "none", "Time zone": "UTC", "Maximum age": "12h",
		"Early hits": "0", "Failed": "0",
	})

	w.get("/groups").has(200, `href="/pools?q=group%3A`+group.ID+`">1</a>`)
	w.get("/pools?q=group:"+group.ID).has(200, "1 pool that match", "nightly")
	w.get("/templates/"+debian).has(200, `href="/pools?q=template%3A`+debian+`">2 pools</a>`)
	w.get("/search?q=pool").has(200, `href="/pools"`, `href="/pools/new"`)
	w.get("/pools/"+spare).has(404, "All pools", `href="/pools"`)
}

// TestPoolForms: a pool is created, changed and deleted; a form that is wrong comes back with what was typed.
func TestPoolForms(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.get("/pools/new?template_id="+debian).has(200, `value="`+debian+`" selected`, `name="min_idle" value="1"`)
	form := func(pairs ...string) url.Values {
		f := url.Values{"name": {"day"}, "template_id": {debian}, "min_idle": {"0"}}
		for i := 0; i < len(pairs); i += 2 {
			f.Set(pairs[i], pairs[i+1])
		}
		return f
	}
	for want, f := range map[string]url.Values{
		"Name required":            form("name", " "),
		"Template required":        form("template_id", ""),
		"want a whole number":      form("min_idle", "many"),
		"invalid window":           form("schedule", "always=3"),
		"begins and ends at 08:00": form("schedule", "08:00-08:00=3"),
		"Invalid maximum age":      form("max_age", "soon"),
		"at most 365d":             form("max_age", "366d"),
		"max_age":                  form("max_age", "1s"),
		"time_zone":                form("time_zone", "Moon/Base"),
		"min_idle":                 form("min_idle", "5000"),
	} {
		w.post("/pools/new", f).has(400, want, `role="alert"`, `name="name" value="`+strings.TrimSpace(f.Get("name")))
	}
	if all, err := w.API.Pools(t.Context(), client.ListOptions{}); err != nil || len(all) != 0 {
		t.Fatalf("wrong forms made pools %+v, %v", all, err)
	}

	at := w.post("/pools/new", form("schedule", "mon-fri@08:00-18:00=0\r\nsat@10:00-12:00=0", "time_zone",
		"Europe/Berlin", "max_age", "2d", "tag", "v1")).leadsTo("/pools/")
	w.get(at).has(200, "mon,tue,wed,thu,fri@08:00-18:00=0", "sat@10:00-12:00=0", "Europe/Berlin", ">2d<", ">v1<")
	w.post("/pools/new", form("tag", "v2")).has(400, "already exists", `value="day"`)

	edit := w.get(at + "/edit")
	edit.has(200, `name="max_age" value="2d"`, "mon,tue,wed,thu,fri@08:00-18:00=0\nsat@10:00-12:00=0</textarea>")
	w.post(at+"/edit", edit.form("name", "day", "tag", "", "group_id", "", "min_idle", "0", "schedule",
		"mon,tue,wed,thu,fri@08:00-18:00=0\r\nsat@10:00-12:00=0", "time_zone", "", "max_age", "")).leads(at)
	id := strings.TrimPrefix(at, "/pools/")
	p, err := w.API.Pool(t.Context(), id)
	if err != nil || p.Tag != "" || p.TimeZone != "" || p.MaxAge != 0 || len(p.Schedule) != 2 || p.Name != "day" {
		t.Errorf("changed to %+v, %v", p, err)
	}
	w.post(at+"/edit", url.Values{"name": {"day"}, "schedule": {"x"}}).has(400, "invalid window",
		"debian", ">x</textarea>")

	w.get(at+"/delete").has(200, "Its standbys end.", "Instances that were standbys continue")
	w.post(at+"/delete", url.Values{}).leads("/pools")
	w.get(at).has(404)
}

// TestTwoFormsOfAPool: a form changes only what its user has changed.
func TestTwoFormsOfAPool(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	none := 0
	p := w.pool(client.PoolRequest{Name: "day", MinIdle: &none})
	at := "/pools/" + p.ID
	fill := func(pairs ...string) url.Values {
		return also(also(w.get(at+"/edit").form(), "name", "day", "tag", "", "group_id", "", "min_idle", "0",
			"schedule", "", "time_zone", "", "max_age", ""), pairs...)
	}
	first, second := fill("max_age", "3h"), fill("schedule", "08:00-09:00=0")
	w.post(at+"/edit", first).leads(at)
	w.post(at+"/edit", second).leads(at)
	if now, err := w.API.Pool(t.Context(), p.ID); err != nil || now.MaxAge != 3*60*60 || len(now.Schedule) != 1 {
		t.Errorf("changed to %+v, %v", now, err)
	}
}

// TestHostilePool: the texts of a pool are text on every page.
func TestHostilePool(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, hostile)
	none := 0
	p := w.pool(client.PoolRequest{Name: hostile, MinIdle: &none})
	for _, path := range []string{
		"/pools", "/pools/" + p.ID, "/pools/" + p.ID + "/edit", "/pools/" + p.ID + "/delete",
		"/pools/new", "/pools?q=" + url.QueryEscape(`name:"`+hostile),
	} {
		w.get(path).has(200, "!<script>alert", "!<img src=x")
	}
	w.get("/pools").has(200, "&lt;script&gt;")
	w.post("/pools/new", url.Values{"name": {hostile}, "template_id": {debian}, "schedule": {hostile}}).has(400,
		"!<script>alert", "!<img src=x")
}
