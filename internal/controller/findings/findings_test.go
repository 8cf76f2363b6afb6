package findings

import (
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

func content(n int) string { return strings.Repeat("0", 63) + fmt.Sprint(n) }

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
	f := New(db, func(w store.Writer, event func() farm.Event) store.Writer {
		events = append(events, event())
		return w
	})
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
	if n := db.Tables.Findings.Len(); n != 0 {
		t.Errorf("%d records of versions without vulnerabilities", n)
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

func TestInvalidFindings(t *testing.T) {
	f, _, _ := open(t)
	for field, change := range map[string]func(*api.VersionFindings){
		"template_id":     func(v *api.VersionFindings) { v.TemplateID = "x" },
		"tag":             func(v *api.VersionFindings) { v.Tag = "a\nb" },
		"content_id":      func(v *api.VersionFindings) { v.ContentID = strings.Repeat("g", 64) },
		"database":        func(v *api.VersionFindings) { v.Database = time.Time{} },
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
		recordtest.Commit(t, db, store.Put(db.Tables.Scans, id,
			&record.NodeScan{Found: vulntext.EncodeSome(vulnerabilities("CVE-1", "CVE-7"))}, store.Any))
	}
	for n, state := range []farm.InstanceState{farm.Started, farm.Pulling, farm.Terminated} {
		i := &farm.Instance{
			ID: uuid.NewString(), Name: fmt.Sprint(n), State: state,
			Template: farm.TemplateRef{ID: templateID, ContentID: content(0)},
		}
		recordtest.Commit(t, db, store.Put(db.Tables.Instances, i.ID, i, store.Any))
	}
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{[]string{"cve-1"}, "[v0] [mac-03] [0 1]"},
		{[]string{"ghsa-AAAA"}, "[v0] [] [0 1]"},
		{[]string{"CVE-2", "CVE-7"}, "[v1] [mac-03] []"},
		{[]string{"CVE-3"}, "[] [] []"},
	} {
		a := f.Affected(c.ids)
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
