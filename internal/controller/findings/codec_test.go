package findings

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// What was encoded is found by each of its IDs, without case, and is as it was.
func TestEncode(t *testing.T) {
	list := []api.FoundVulnerability{
		{ID: "CVE-1", Aliases: []string{"GHSA-a", "GO-1"}, Package: "@a/b", Version: "1", Fixed: "2", Severity: "low"},
		{ID: "CVE-1", Package: "c", Version: "1.0 rc"},
		{ID: "CVE-2", Package: "c,CVE-9,d", Version: "1", Severity: "unknown"},
	}
	text, err := Encode(append(list, list...))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]api.FoundVulnerability{
		"cve-1": {list[1], list[0]}, "ghsa-A": list[:1], "go-1": list[:1], "CVE-2": list[2:], "CVE-": nil, "CVE-11": nil, "C": nil, "CVE-9": nil,
	} {
		if got := among(text, []string{canonical(id)}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
}

// Results of a node are kept as far as they are valid and fit, the severe ones first.
func TestEncodeSome(t *testing.T) {
	if text := EncodeSome(append(vulnerabilities("a b"), vulnerabilities("CVE-1")...)); len(Added("", text)) != 1 {
		t.Errorf("one is invalid: %q", text)
	}
	var list []api.FoundVulnerability
	for n := range api.MaxVersionFindings + 5 {
		v := api.FoundVulnerability{ID: fmt.Sprintf("CVE-%d", n), Package: strings.Repeat("<", maxText), Severity: "low"}
		list = append(list, v)
	}
	list[len(list)-1].Severity = "critical"
	text := EncodeSome(list)
	if n := len(Added("", text)); n < 100 || len(among(text, []string{list[len(list)-1].ID})) != 1 {
		t.Errorf("%d are kept", n)
	}
}

// BenchmarkAffected lists what a vulnerability affects among 1,000 versions with 200 each, and 10,000 instances.
func BenchmarkAffected(b *testing.B) {
	db := recordtest.Open(b)
	f := New(db, func(w store.Writer, _ func() farm.Event) store.Writer { return w })
	for n := range 1000 {
		v := version(0)
		v.ContentID = fmt.Sprintf("%064x", n)
		for k := range 200 {
			v.Vulnerabilities = append(v.Vulnerabilities, vulnerabilities(fmt.Sprintf("CVE-2026-%d,GHSA-%d", n+k, k))...)
		}
		if err := f.Put(b.Context(), v); err != nil {
			b.Fatal(err)
		}
	}
	for n := range 10_000 {
		i := &farm.Instance{
			ID: uuid.NewString(), State: farm.Started,
			Template: farm.TemplateRef{ID: templateID, ContentID: fmt.Sprintf("%064x", n%1000)},
		}
		recordtest.Commit(b, db, store.Put(db.Tables.Instances, i.ID, i, store.Any))
	}
	for b.Loop() {
		if a := f.Affected([]string{"CVE-2026-500"}); len(a.Versions) != 200 || len(a.Instances) != 2000 {
			b.Fatalf("%d versions, %d instances", len(a.Versions), len(a.Instances))
		}
	}
}
