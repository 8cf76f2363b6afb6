package inventorydb

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// sources returns the sources of all packages, with the files that have them.
func sources(t *testing.T, l *DB) (out []string) {
	t.Helper()
	list, err := l.PackagesOfKinds([]catalog.PackageType{catalog.Deb}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		out = append(out, fmt.Sprint(p.Source, p.Locations))
	}
	slices.Sort(out)
	return out
}

// TestSourcesOfPackages: a file of a user with a package of the system and another source does not change that package,
// whichever was read first.
func TestSourcesOfPackages(t *testing.T) {
	system := catalog.Package{
		Kind: catalog.Deb, Name: "libssl3", Version: "3.0.14-1", Arch: "amd64", Distribution: "debian:12",
		Source: "openssl",
	}
	planted := system
	planted.Source = "aaa"
	files := []File{
		{Path: "srv/job/var/lib/dpkg/status", Stamp: 1, Packages: []catalog.Package{planted}},
		{Path: "var/lib/dpkg/status", Stamp: 2, Packages: []catalog.Package{system}},
	}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		l := fresh(t)
		for _, n := range order {
			put(t, l, day, files[n])
		}
		expect(t, sources(t, l), "aaa[/srv/job/var/lib/dpkg/status]", "openssl[/var/lib/dpkg/status]")
		if _, err := l.Put(Batch{RemovePaths: []string{"srv"}}); err != nil {
			t.Fatal(err)
		}
		expect(t, sources(t, l), "openssl[/var/lib/dpkg/status]")
		put(t, l, day, files[1])
		if n := l.Totals().Packages; n != 1 {
			t.Errorf("%d packages", n)
		}
	}
}

// TestFormerIdentity: packages of files that earlier versions of this program wrote keep their number and their date,
// and are removed like others.
func TestFormerIdentity(t *testing.T) {
	l := fresh(t)
	deb := catalog.Package{Kind: catalog.Deb, Name: "libssl3", Version: "3.0.14-1", Arch: "amd64", Source: "openssl"}
	status := File{Path: "var/lib/dpkg/status", Stamp: 1, Packages: []catalog.Package{deb}}
	put(t, l, day, status)
	err := l.update(func(w *tx) error { // as an earlier version wrote it
		r, err := parsePackageRecord(w.packages.Get(numberKey(1)))
		if err != nil {
			return err
		}
		if err := w.names.Delete(r.identity()); err != nil {
			return err
		}
		return w.names.Put(r.formerIdentity(), numberKey(1))
	})
	if err != nil {
		t.Fatal(err)
	}
	status.Stamp = 2
	if c := put(t, l, day.Add(time.Hour), status); len(c.NewIDs)+len(c.Removed) > 0 {
		t.Errorf("%+v", c)
	}
	other := deb
	other.Source = "aaa"
	put(t, l, day, File{Path: "srv/job/var/lib/dpkg/status", Stamp: 1, Packages: []catalog.Package{other}})
	expect(t, sources(t, l), "aaa[/srv/job/var/lib/dpkg/status]", "openssl[/var/lib/dpkg/status]")
	if _, err := l.Put(Batch{RemovePaths: []string{"var"}}); err != nil {
		t.Fatal(err)
	}
	expect(t, sources(t, l), "aaa[/srv/job/var/lib/dpkg/status]")
}
