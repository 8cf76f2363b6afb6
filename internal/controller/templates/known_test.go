package templates

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestKnownTemplatesFollowTheRegistry: what nodes have cached becomes known without a start, and a
// deleted template is removed, whichever client deletes it.
func TestKnownTemplatesFollowTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRegistry()
		templates := open(t, r, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go templates.Run(ctx)
		known := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if n := templates.db.Tables.KnownTemplates.Len(); n != want {
				t.Errorf("%d templates are known %s, want %d", n, when, want)
			}
		}
		time.Sleep(2 * refreshInterval)
		known(0, "before a node or a caller needs one")

		info := &farm.NodeInfo{NodeID: "one", Templates: []farm.NodeTemplate{{ID: templateID}}}
		if err := templates.db.Store.Commit(t.Context(),
			store.Put(templates.db.Tables.Infos, "one", info, store.Any)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * refreshInterval)
		known(1, "after a node has cached it")

		before := templates.db.Tables.KnownTemplates.Snapshot().Serial()
		for range 3 {
			if _, err := templates.Get(t.Context(), templateID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if after := templates.db.Tables.KnownTemplates.Snapshot().Serial(); after != before {
			t.Error("reads that found nothing new wrote a record")
		}

		r.setDeleted(true)
		_, _, err := templates.Resolve(t.Context(), templateID, "", nil)
		if text(err) != "VM not in the registry" {
			t.Errorf("a start of a deleted template: %v", err)
		}
		known(0, "after the registry had deleted it")
		r.setDeleted(false)
		if _, _, err := templates.Resolve(t.Context(), templateID, "", nil); err != nil {
			t.Error(err)
		}
		known(1, "after it was pushed again")
		if err := templates.Delete(t.Context(), templateID); err != nil {
			t.Fatal(err)
		}
		known(0, "after it was deleted here")
	})
}

// TestKnownTemplateIsBounded: of many or large versions the newest are stored.
func TestKnownTemplateIsBounded(t *testing.T) {
	r := newFakeRegistry()
	templates := open(t, r, nil)
	d := r.detail
	d.Versions = nil
	for n := range 3 * maxKnownVersions {
		d.Versions = append(d.Versions,
			api.TemplateVersion{Tag: fmt.Sprint("t", n), Number: n, ContentID: fmt.Sprint("c", n)})
	}
	check := func(want, last int) {
		t.Helper()
		if err := templates.known.store(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		k, _, _ := templates.db.Tables.KnownTemplates.Get(d.ID)
		if len(k.Versions) != want || k.Versions[want-1].Version != last {
			t.Errorf("%d versions are stored, want %d: %+v", len(k.Versions), want, k.Versions[len(k.Versions)-1])
		}
	}
	check(maxKnownVersions, 3*maxKnownVersions-1)
	for i := range d.Versions {
		d.Versions[i].Tag = strings.Repeat("x", maxKnownBytes/5)
	}
	check(4, 3*maxKnownVersions-1)
}
