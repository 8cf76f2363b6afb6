package host

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

// A package is evaluated by the source of its owner, also where that was matched before.
func TestOwnersOfEarlierMatches(t *testing.T) {
	b, j := matchErr(t)
	j.vulnDB = vulndbtest.Open(t, vulndbtest.Content{Advisories: []vulndb.Advisory{
		{
			ID: "CVE-2024-1", Source: vulndb.DebianTracker, Ecosystem: "Debian:12", Name: "python-django",
			CVEs: []string{"CVE-2024-1"}, Ranges: []vulndb.Range{{Fixed: "3:3.2.19-1+deb12u1"}},
		},
		{
			ID: "GHSA-1", Source: vulndb.GHSA, Ecosystem: vulndb.PyPI, Name: "django", CVEs: []string{"CVE-2024-1"},
			Ranges: []vulndb.Range{{Fixed: "3.2.20"}},
		},
	}})
	owner := catalog.Package{
		Kind: catalog.Deb, Name: "python3-django", Version: "3:3.2.19-1+deb12u1", Source: "python-django",
		SourceVersion: "3:3.2.19-1+deb12u1", Distribution: "debian:12",
	}
	b.put("var/lib/dpkg/status", owner)
	if err := j.matchWaiting(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.put("usr/lib/python3/dist-packages/Django-3.2.19.egg-info", catalog.Package{
		Kind: catalog.Python, Name: "Django", Version: "3.2.19", Distribution: "debian:12", Owner: owner.OwnerName(),
	})
	if err := j.matchWaiting(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.allJudged()
	list, _, _, err := b.inventory.Findings(inventorydb.FindingCursor{}, b.Status().LastStart, 10)
	if err != nil || len(list) > 0 {
		t.Errorf("got %+v, %v", list, err)
	}
	counts := func(want int, when string) {
		t.Helper()
		if n := b.Status().Counts.OwnerDecided; n != want {
			t.Errorf("%d findings are counted as the owner's %s, want %d", n, when, want)
		}
	}
	counts(1, "after the first match")
	if err := j.matchAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(1, "after another match")
	gone := inventorydb.Batch{RemovePaths: []string{"usr/lib/python3/dist-packages/Django-3.2.19.egg-info"}}
	if _, err := b.inventory.Put(gone); err != nil {
		t.Fatal(err)
	}
	counts(0, "without the package")
}
