package findings

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/controller/vulntext"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const templateID = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"

// everything is the scope of a caller that may see all.
var everything = Scope{
	ListsVersions: true, SeesTemplate: func(string) bool { return true }, SeesNode: func(string) bool { return true },
}

func content(n int) string { return fmt.Sprintf("%064x", n) }

// anyTemplate returns a registry that has every template, with a number of versions.
func anyTemplate(versions int) func(context.Context, string) (api.TemplateDetail, error) {
	var d api.TemplateDetail
	for n := range versions {
		d.Versions = append(d.Versions, api.TemplateVersion{ContentID: content(n)})
	}
	return func(context.Context, string) (api.TemplateDetail, error) { return d, nil }
}

// vulnerabilities returns one for each list of IDs with commas between them.
func vulnerabilities(ids ...string) (list []api.FoundVulnerability) {
	for _, id := range ids {
		all := strings.Split(id, ",")
		list = append(list, api.FoundVulnerability{
			ID: all[0], Aliases: all[1:], Package: "lodash", Version: "4.17.11", Fixed: "4.17.12", Severity: "high",
		})
	}
	return list
}

func version(n int, ids ...string) api.VersionFindings {
	return api.VersionFindings{
		TemplateID: templateID, Tag: fmt.Sprintf("v%d", n), ContentID: content(n),
		Database: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Vulnerabilities: vulnerabilities(ids...),
	}
}

func open(t *testing.T) (*Findings, record.DB, *[]farm.Event) {
	db := recordtest.Open(t)
	var events []farm.Event
	f := New(db, Options{WithEvent: func(w store.Writer, event func() farm.Event) store.Writer {
		events = append(events, event())
		return w
	}, Template: anyTemplate(8)})
	return f, db, &events
}

// Put stores what was found, and an event names only what was not found before.
func TestPut(t *testing.T) {
	f, db, events := open(t)
	put := func(v api.VersionFindings) {
		t.Helper()
		if err := f.Put(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	put(version(1, "CVE-2", "CVE-1", "CVE-2"))
	put(version(1, "CVE-1", "CVE-2"))
	put(version(1, "CVE-1", "CVE-3,GHSA-3"))
	put(version(1, "CVE-1", "GHSA-3"))
	var found []any
	for _, e := range *events {
		found = append(found, e.Extra["vulnerabilities"], e.Extra["count"])
	}
	if want := []any{[]string{"CVE-1", "CVE-2"}, 2, []string{"CVE-3"}, 1}; !reflect.DeepEqual(found, want) {
		t.Errorf("events %v, want %v", found, want)
	}
	older := version(1, "CVE-9")
	older.Database = older.Database.Add(-time.Hour)
	if err := f.Put(t.Context(), older); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("of an older database: %v", err)
	}
	if n := db.Tables.Findings.Len(); n != 1 {
		t.Errorf("%d records", n)
	}
	put(version(1))
	put(version(2))
	if n := db.Tables.Findings.Len(); n != 2 {
		t.Errorf("%d records of versions without vulnerabilities", n)
	}
}

// A scan that did not read the whole version only adds to what is known.
func TestPutPartial(t *testing.T) {
	f, db, _ := open(t)
	for _, c := range []struct {
		ids     []string
		partial bool
		want    string
	}{
		{[]string{"CVE-1"}, true, "CVE-1 true"},
		{[]string{"CVE-2", "CVE-3"}, false, "CVE-2 CVE-3 false"},
		{nil, true, "CVE-2 CVE-3 false"},
		{[]string{"CVE-4", "CVE-3"}, true, "CVE-2 CVE-3 CVE-4 false"},
		{[]string{"CVE-3"}, false, "CVE-3 false"},
	} {
		v := version(1, c.ids...)
		v.Partial = c.partial
		if err := f.Put(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		r, _, _ := db.Tables.Findings.Get(key(templateID, v.ContentID))
		if r == nil {
			t.Fatalf("%v: no record", c.ids)
		}
		if got := fmt.Sprint(strings.Join(vulntext.Added("", r.Found), " "), " ", r.Partial); got != c.want {
			t.Errorf("after %v (partial: %t): %s, want %s", c.ids, c.partial, got, c.want)
		}
	}
}

// The listing has the sum of each report, also of one that found nothing.
func TestReported(t *testing.T) {
	f, _, _ := open(t)
	want := map[string]string{}
	for n, ids := range [][]string{{"CVE-1"}, nil} {
		v := version(n, ids...)
		if err := f.Put(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		v.Database = v.Database.Add(time.Hour)
		want[v.ContentID] = v.Sum()
	}
	got := map[string]string{}
	for _, v := range f.Reported(everything.SeesTemplate) {
		got[v.ContentID] = v.Sum
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if list := f.Reported(func(string) bool { return false }); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

// Remove removes the findings in some contents of a template, or in all.
func TestRemove(t *testing.T) {
	f, db, _ := open(t)
	for n := range 3 {
		if err := f.Put(t.Context(), version(n, "CVE-1")); err != nil {
			t.Fatal(err)
		}
	}
	other := version(0, "CVE-1")
	other.TemplateID = uuid.NewString()
	if err := f.Put(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		contents []string
		want     int
	}{{[]string{}, 4}, {[]string{content(1), content(7)}, 3}, {nil, 1}} {
		if err := f.Remove(t.Context(), templateID, c.contents); err != nil {
			t.Fatal(err)
		}
		if n := db.Tables.Findings.Len(); n != c.want {
			t.Errorf("%d records after %v, want %d", n, c.contents, c.want)
		}
	}
}

// What is found in a removed version stays, and is marked, as long as an instance or a node has it.
func TestRemovedInUse(t *testing.T) {
	f, db, _ := open(t)
	node, inst := uuid.NewString(), uuid.NewString()
	commit := func(c store.Change) {
		t.Helper()
		recordtest.Commit(t, db, c)
	}
	instance := func(state farm.InstanceState) {
		commit(store.Put(db.Tables.Instances, inst, &farm.Instance{
			ID: inst, State: state, Template: farm.TemplateRef{ID: templateID, ContentID: content(0)},
		}, store.Any))
	}
	instance(farm.Started)
	commit(store.Put(db.Tables.Infos, node, &farm.NodeInfo{
		NodeID: node, Templates: []farm.NodeTemplate{{ID: strings.ToUpper(templateID), ContentID: content(1)}},
	}, store.Any))
	expect := func(what, want string) {
		t.Helper()
		var got []string
		a := f.Affected([]string{"CVE-1"}, everything)
		for _, v := range a.Versions {
			got = append(got, fmt.Sprint(v.Tag, " ", v.Removed))
		}
		slices.Sort(got)
		if got := fmt.Sprint(got, len(a.Instances)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	for n := range 3 {
		if err := f.Put(t.Context(), version(n, "CVE-1")); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Remove(t.Context(), templateID, nil); err != nil {
		t.Fatal(err)
	}
	expect("removed", "[v0 true v1 true] 1")
	f.opts.Template = anyTemplate(1) // the registry has content 0 again: it is not removed, whatever a scanner says
	for n, marked := range []bool{true, true, true} {
		v := version(n, "CVE-1")
		v.Removed = marked
		if err := f.Put(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	expect("reported again", "[v0 false v1 true] 1")
	if err := f.Remove(t.Context(), templateID, []string{content(0)}); err != nil {
		t.Fatal(err)
	}
	prune := func() {
		t.Helper()
		if err := f.Prune(t.Context(), recordtest.Term(db), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	prune()
	expect("in use", "[v0 true v1 true] 1")
	commit(store.Put(db.Tables.KnownTemplates, templateID, &record.KnownTemplate{
		Versions: []farm.TemplateRef{{ContentID: content(1)}}, Changed: time.Now().Add(time.Minute),
	}, store.Any))
	instance(farm.Terminated)
	prune()
	expect("pushed again", "[v1 false] 0")
}

// A report about a version that does not exist is refused, but not one about what is known or in use.
func TestPutUnknown(t *testing.T) {
	f, db, _ := open(t)
	var unreachable error
	f.opts.Template = func(_ context.Context, id string) (api.TemplateDetail, error) {
		if id != templateID {
			return api.TemplateDetail{}, farm.NotFound()
		}
		return api.TemplateDetail{Versions: []api.TemplateVersion{{ContentID: content(1)}}}, unreachable
	}
	other := version(1)
	other.TemplateID = uuid.NewString()
	expect := func(v api.VersionFindings, want farm.Code) {
		t.Helper()
		if err := f.Put(t.Context(), v); farm.CodeOf(err) != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	expect(other, farm.CodeNotFound)
	expect(version(2), farm.CodeInvalid)
	expect(version(1), "")
	unreachable = errors.New("no route")
	expect(version(1), "")
	expect(version(2), farm.CodeUnavailable)
	i := &farm.Instance{ID: uuid.NewString(), Template: farm.TemplateRef{ID: templateID, ContentID: content(2)}}
	recordtest.Commit(t, db, store.Put(db.Tables.Instances, i.ID, i, store.Any),
		store.Put(db.Tables.KnownTemplates, templateID, &record.KnownTemplate{
			Versions: []farm.TemplateRef{{ContentID: content(3)}},
		}, store.Any))
	expect(version(2), "")
	expect(version(3), "")
	expect(version(4), farm.CodeUnavailable)
}

// A database from the future is refused, and one that is stored does not shut out others.
func TestDatabaseAhead(t *testing.T) {
	f, db, _ := open(t)
	now := time.Now().UTC()
	for ahead, code := range map[time.Duration]farm.Code{
		maxAhead - time.Hour: "", maxAhead + time.Hour: farm.CodeInvalid, 10 * 365 * 24 * time.Hour: farm.CodeInvalid,
	} {
		v := version(1, "CVE-1")
		v.Database = now.Add(ahead)
		if err := f.Put(t.Context(), v); farm.CodeOf(err) != code {
			t.Errorf("%s ahead: %v", ahead, err)
		}
	}
	v := version(2, "CVE-2")
	recordtest.Commit(t, db, store.Put(db.Tables.Findings, key(templateID, v.ContentID), &record.VersionFindings{
		TemplateID: templateID, Tag: v.Tag, ContentID: v.ContentID, Found: "CVE-1\ta\t1\t\t\n",
		Database: now.AddDate(10, 0, 0),
	}, store.IfAbsent))
	if err := f.Put(t.Context(), v); err != nil {
		t.Error(err)
	}
}

func TestInvalidFindings(t *testing.T) {
	f, _, _ := open(t)
	for field, change := range map[string]func(*api.VersionFindings){
		"template_id":     func(v *api.VersionFindings) { v.TemplateID = "x" },
		"tag":             func(v *api.VersionFindings) { v.Tag = "a\nb" },
		"content_id":      func(v *api.VersionFindings) { v.ContentID = strings.Repeat("g", 64) },
		"database":        func(v *api.VersionFindings) { v.Database = time.Time{} },
		"database ":       func(v *api.VersionFindings) { v.Database = time.Now().AddDate(10, 0, 0) },
		"vulnerabilities": func(v *api.VersionFindings) { v.Vulnerabilities[0].ID = "CVE 1" },
		"vulnerabilities ": func(v *api.VersionFindings) {
			v.Vulnerabilities = make([]api.FoundVulnerability, api.MaxVersionFindings+1)
		},
		"vulnerabilities  ":   func(v *api.VersionFindings) { v.Vulnerabilities[0].Aliases = []string{"a,b"} },
		"vulnerabilities   ":  func(v *api.VersionFindings) { v.Vulnerabilities[0].Package = "a\tb" },
		"vulnerabilities    ": func(v *api.VersionFindings) { v.Vulnerabilities[0].Severity = "bad" },
	} {
		v := version(1, "CVE-1")
		change(&v)
		if err := f.Put(t.Context(), v); farm.CodeOf(err) != farm.CodeInvalid ||
			!strings.HasPrefix(err.Error(), strings.TrimSpace(field)) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Versions, nodes and instances are listed for a vulnerability, and none for another one.
func TestAffected(t *testing.T) {
	f, db, _ := open(t)
	for n, ids := range [][]string{{"CVE-1,GHSA-aaaa"}, {"CVE-2"}} {
		if err := f.Put(t.Context(), version(n, ids...)); err != nil {
			t.Fatal(err)
		}
	}
	node, gone := uuid.NewString(), uuid.NewString()
	recordtest.Commit(t, db, store.Put(db.Tables.Nodes, node, &farm.Node{ID: node, Name: "mac-03"}, store.Any))
	for _, id := range []string{node, gone} {
		scan := &record.NodeScan{}
		scan.Found, _ = vulntext.EncodeSome(vulnerabilities("CVE-1", "CVE-7"))
		recordtest.Commit(t, db, store.Put(db.Tables.Scans, id, scan, store.Any))
	}
	for n, state := range []farm.InstanceState{farm.Started, farm.Pulling, farm.Terminated} {
		i := &farm.Instance{
			ID: uuid.NewString(), Name: fmt.Sprint(n), State: state,
			Template: farm.TemplateRef{ID: templateID, ContentID: content(0)},
		}
		recordtest.Commit(t, db, store.Put(db.Tables.Instances, i.ID, i, store.Any))
	}
	standby := &farm.Instance{
		ID: uuid.NewString(), State: farm.Started, Pool: "p",
		Template: farm.TemplateRef{ID: templateID, ContentID: content(0)},
	}
	recordtest.Commit(t, db, store.Put(db.Tables.Instances, standby.ID, standby, store.Any))
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{[]string{"cve-1"}, "[v0] [mac-03] [0 1]"},
		{[]string{"ghsa-AAAA"}, "[v0] [] [0 1]"},
		{[]string{"CVE-2", "CVE-7"}, "[v1] [mac-03] []"},
		{[]string{"CVE-3"}, "[] [] []"},
	} {
		a := f.Affected(c.ids, everything)
		var versions, nodes, instances []string
		for _, v := range a.Versions {
			versions = append(versions, v.Tag)
		}
		for _, n := range a.Nodes {
			nodes = append(nodes, n.NodeName)
		}
		for _, i := range a.Instances {
			instances = append(instances, i.Name)
		}
		slices.Sort(instances)
		if got := fmt.Sprint(versions, nodes, instances); got != c.want {
			t.Errorf("%v: %s, want %s", c.ids, got, c.want)
		}
	}
}

// What may be affected though it is not listed is counted, as far as the caller may see it.
func TestGaps(t *testing.T) {
	f, db, _ := open(t)
	cut := version(0, "CVE-1")
	cut.Truncated = true
	part := version(1, "CVE-2")
	part.Partial = true
	for _, v := range []api.VersionFindings{cut, part} {
		if err := f.Put(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	node := uuid.NewString()
	recordtest.Commit(t, db, store.Put(db.Tables.Nodes, node, &farm.Node{ID: node}, store.Any),
		store.Put(db.Tables.Scans, node, &record.NodeScan{Truncated: true}, store.Any))
	no := func(string) bool { return false }
	for _, c := range []struct {
		see  Scope
		want api.AffectedGaps
	}{
		{everything, api.AffectedGaps{PartialVersions: 1, TruncatedVersions: 1, TruncatedNodes: 1}},
		{
			Scope{SeesTemplate: everything.SeesTemplate, SeesNode: everything.SeesNode},
			api.AffectedGaps{TruncatedNodes: 1},
		},
		{Scope{ListsVersions: true, SeesTemplate: no, SeesNode: no}, api.AffectedGaps{}},
	} {
		if got := f.Affected([]string{"CVE-1"}, c.see).Gaps; got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
	if a := f.Affected([]string{"CVE-1"}, everything); len(a.Versions) != 1 || !a.Versions[0].Truncated {
		t.Errorf("%+v", a.Versions)
	}
}

// A caller that may not list versions does not learn from instances what is in them.
func TestScope(t *testing.T) {
	f, db, _ := open(t)
	if err := f.Put(t.Context(), version(0, "CVE-1")); err != nil {
		t.Fatal(err)
	}
	i := &farm.Instance{ID: uuid.NewString(), Template: farm.TemplateRef{ID: templateID, ContentID: content(0)}}
	recordtest.Commit(t, db, store.Put(db.Tables.Instances, i.ID, i, store.Any))
	for lists, want := range map[bool]int{true: 1, false: 0} {
		see := everything
		see.ListsVersions = lists
		if a := f.Affected([]string{"CVE-1"}, see); len(a.Versions) != want || len(a.Instances) != want {
			t.Errorf("lists versions: %t: %+v", lists, a)
		}
	}
}

// Versions in use without a report, and their instances, are counted; a report that found nothing is one.
func TestUnscanned(t *testing.T) {
	f, db, _ := open(t)
	if err := f.Put(t.Context(), version(0)); err != nil {
		t.Fatal(err)
	}
	for n, i := range []farm.Instance{
		{State: farm.Started}, {State: farm.Started}, {State: farm.Pulling}, {State: farm.Terminated}, {Pool: "p"},
	} {
		i.ID = uuid.NewString()
		i.Template = farm.TemplateRef{ID: templateID, ContentID: content(min(n, 4) / 2 * 2)}
		recordtest.Commit(t, db, store.Put(db.Tables.Instances, i.ID, &i, store.Any))
	}
	node := uuid.NewString()
	recordtest.Commit(t, db, store.Put(db.Tables.Infos, node, &farm.NodeInfo{Templates: []farm.NodeTemplate{
		{ID: templateID, ContentID: content(0)},
		{ID: templateID, ContentID: content(2)},
		{ID: templateID, ContentID: content(6)},
	}}, store.Any))
	hidden := everything
	hidden.SeesTemplate = func(string) bool { return false }
	for _, c := range []struct {
		see  Scope
		want api.AffectedGaps
	}{
		{everything, api.AffectedGaps{UnscannedVersions: 3, UnscannedInstances: 1}},
		{hidden, api.AffectedGaps{}},
		{Scope{SeesNode: everything.SeesNode}, api.AffectedGaps{}},
	} {
		if got := f.Affected([]string{"CVE-1"}, c.see).Gaps; got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}

// All tags of an affected content are listed.
func TestTags(t *testing.T) {
	f, db, _ := open(t)
	for n := range 2 {
		if err := f.Put(t.Context(), version(n, "CVE-1")); err != nil {
			t.Fatal(err)
		}
	}
	recordtest.Commit(t, db, store.Put(db.Tables.KnownTemplates, templateID, &record.KnownTemplate{
		Versions: []farm.TemplateRef{
			{Tag: "v0", ContentID: content(0)},
			{Tag: "v5", ContentID: content(5)},
			{Tag: "stable", ContentID: content(0)},
		},
	}, store.Any))
	var got []string
	for _, v := range f.Affected([]string{"CVE-1"}, everything).Versions {
		got = append(got, fmt.Sprint(v.Tag, v.Tags))
	}
	slices.Sort(got)
	if want := []string{"v0[v0 stable]", "v1[v1]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPrune(t *testing.T) {
	f, db, _ := open(t)
	if err := f.Put(t.Context(), version(1, "CVE-1")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{0, 1}, {retention + time.Hour, 0}} {
		if err := f.Prune(t.Context(), recordtest.Term(db), time.Now().Add(c.age)); err != nil {
			t.Fatal(err)
		}
		if n := db.Tables.Findings.Len(); n != c.want {
			t.Errorf("%d records after %s, want %d", n, c.age, c.want)
		}
	}
}
