package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	statusPath = "var/lib/dpkg/status"
	sixFile    = "usr/lib/python3/dist-packages/six-1.16.0.dist-info/METADATA"
	localFile  = "usr/local/lib/python3/dist-packages/six-1.16.0.dist-info/METADATA"
	sixText    = "Name: six\nVersion: 1.16.0\n"
)

// owned lists the packages of Python with their owners and distributions.
func (b *bench) owned() []string {
	b.t.Helper()
	out := []string{}
	for p, err := range b.Report(Query{}).Packages() {
		if err != nil {
			b.t.Fatal(err)
		}
		if p.Kind.HasOwner() {
			for _, l := range p.Locations {
				out = append(out, fmt.Sprintf("%s %q %q", l[len(b.dir)+1:], p.Owner, p.Distribution))
			}
		}
	}
	slices.Sort(out)
	return out
}

func (b *bench) expectOwned(want ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q", want), func() bool { return slices.Equal(b.owned(), want) })
}

// dpkg writes the database as dpkg does: lists of files first.
func (b *bench) dpkg(version string, files string) {
	b.t.Helper()
	b.write("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n")
	b.write("var/lib/dpkg/info/python3-six.list", files)
	b.write(statusPath, "Package: python3-six\nStatus: install ok installed\nVersion: "+version+"\nArchitecture: all\n")
}

// TestOwnersFollowTheDatabase: owners change with the database, also of files that do not change, in a full scan, while
// changes are watched, and after some were missed.
func TestOwnersFollowTheDatabase(t *testing.T) {
	b := newBench(t, nil)
	list := "/.\n/usr\n/" + sixFile + "\n"
	b.write(sixFile, sixText)
	b.write(localFile, sixText)
	b.full()
	b.expectOwned(sixFile+` "" ""`, localFile+` "" ""`)

	b.dpkg("1.16.0-4", list)
	b.full()
	b.expectOwned(sixFile+` "deb/python3-six@1.16.0-4" "debian:12"`, localFile+` "" ""`)

	b.start()
	b.dpkg("1.16.0-5", list)
	b.expectOwned(sixFile+` "deb/python3-six@1.16.0-5" "debian:12"`, localFile+` "" ""`)
	b.write(sixFile, sixText+"License: MIT\n")
	b.until("the license", func() bool {
		for p, err := range b.Report(Query{}).Packages() {
			if err == nil && p.Owner == "deb/python3-six@1.16.0-5" && len(p.Licenses) == 1 {
				return true
			}
		}
		return false
	})
	b.dpkg("1.16.0-5", "/.\n")
	b.write(statusPath, "")
	b.expectOwned(sixFile+` "" ""`, localFile+` "" ""`)

	b.end()
	b.watch = nil // the change is not reported
	b.dpkg("1.16.0-6", list)
	b.open()
	b.expectOwned(sixFile+` "deb/python3-six@1.16.0-6" "debian:12"`, localFile+` "" ""`)
}

// TestOwnersOfFormulae: what is below a keg of Homebrew belongs to its formula, and lock files there declare nothing.
func TestOwnersOfFormulae(t *testing.T) {
	b := newBench(t, nil)
	const keg = "homebrew/Cellar/yarn/1.22.1/"
	b.write(keg+"INSTALL_RECEIPT.json", "{}")
	b.write(keg+"libexec/node_modules/ws/package.json", `{"name":"ws","version":"8.0.0"}`)
	b.write(keg+"libexec/package-lock.json", `{"packages":{"node_modules/a":{"version":"1.0.0"}}}`)
	b.full()
	b.expectOwned(keg + `libexec/node_modules/ws/package.json "brew/yarn@1.22.1" ""`)
	if err := os.RemoveAll(filepath.Join(b.dir, "homebrew")); err != nil {
		t.Fatal(err)
	}
	b.full()
	b.expectOwned()
}
