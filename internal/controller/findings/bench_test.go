package findings

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// BenchmarkAffected lists what a vulnerability affects among 1,000 versions with 200 each, and 10,000 instances.
func BenchmarkAffected(b *testing.B) {
	db := recordtest.Open(b)
	f := New(db, Options{
		WithEvent: func(w store.Writer, _ func() farm.Event) store.Writer { return w }, Template: anyTemplate(1000),
	})
	for n := range 1000 {
		v := version(0)
		v.ContentID = fmt.Sprintf("%064x", n)
		for k := range 200 {
			ids := fmt.Sprintf("CVE-2026-%d,GHSA-%d", n+k, k)
			v.Vulnerabilities = append(v.Vulnerabilities, vulnerabilities(ids)...)
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
		if a := f.Affected([]string{"CVE-2026-500"}, everything); len(a.Versions) != 200 || len(a.Instances) != 2000 {
			b.Fatalf("%d versions, %d instances", len(a.Versions), len(a.Instances))
		}
	}
}
