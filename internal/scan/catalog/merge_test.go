package catalog

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMergeIdentity: packages of different owners, architectures, releases and sources are different packages.
func TestMergeIdentity(t *testing.T) {
	python := Package{Kind: Python, Name: "Six", Version: "1.16", Locations: []string{"/a"}}
	owned := Package{
		Kind: Python, Name: "six", Version: "1.16", Locations: []string{"/b"}, Distribution: "debian:12",
		Owner: "deb/python3-six@1.16.0-4",
	}
	deb := Package{
		Kind: Deb, Name: "libc6", Version: "2.36-9", Locations: []string{"/s"}, Arch: "amd64",
		Distribution: "debian:12", Source: "glibc", SourceVersion: "2.36-9",
	}
	i386, alone, trixie, planted := deb, deb, deb, deb
	planted.Source, planted.Locations = "aaa", []string{"/srv/job/s"}
	i386.Arch, trixie.Distribution = "i386", "debian:13"
	alone.Name, alone.Source, alone.SourceVersion = "mawk", "", ""
	again := owned
	again.Name, again.Locations = "SIX", []string{"/c"}
	var got []string
	for _, p := range Merge([]Package{planted, trixie, i386, python, owned, deb, again, alone, deb}) {
		got = append(got, fmt.Sprint(p.Kind, p.Name, p.Version, p.Arch, p.Distribution, p.Owner, p.Source,
			p.SourceVersion, p.Locations))
	}
	want := []string{
		fmt.Sprint(Python, "SIX", "1.16", "", "debian:12", owned.Owner, "", "", []string{"/b", "/c"}),
		fmt.Sprint(Python, "Six", "1.16", "", "", "", "", "", []string{"/a"}),
		fmt.Sprint(Deb, "libc6", "2.36-9", "amd64", "debian:12", "", "aaa", "2.36-9", []string{"/srv/job/s"}),
		fmt.Sprint(Deb, "libc6", "2.36-9", "amd64", "debian:12", "", "glibc", "2.36-9", []string{"/s"}),
		fmt.Sprint(Deb, "libc6", "2.36-9", "amd64", "debian:13", "", "glibc", "2.36-9", []string{"/s"}),
		fmt.Sprint(Deb, "libc6", "2.36-9", "i386", "debian:12", "", "glibc", "2.36-9", []string{"/s"}),
		fmt.Sprint(Deb, "mawk", "2.36-9", "amd64", "debian:12", "", "mawk", "2.36-9", []string{"/s"}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestPackageURLs: the expected texts follow the definitions of the types deb, rpm and apk.
func TestPackageURLs(t *testing.T) {
	for want, p := range map[string]Package{
		"pkg:deb/debian/vim@2:9.0-1%2Bdeb12u1?arch=amd64&distro=debian-12": {
			Kind: Deb, Name: "vim", Version: "2:9.0-1+deb12u1", Arch: "amd64", Distribution: "debian:12",
		},
		"pkg:rpm/rhel/openssl@1.1.1k-12.el8_9?arch=x86_64&distro=rhel-8.9&epoch=1": {
			Kind: RPM, Name: "openssl", Version: "1:1.1.1k-12.el8_9", Arch: "x86_64", Distribution: "rhel:8.9",
		},
		"pkg:apk/alpine/musl@1.2.4-r2?arch=x86_64&distro=alpine-3.18": {
			Kind: APK, Name: "musl", Version: "1.2.4-r2", Arch: "x86_64", Distribution: "alpine:3.18",
		},
		"pkg:rpm/fedora/a@1-1?distro=fedora": {Kind: RPM, Name: "a", Version: "1-1", Distribution: "fedora:"},
		"pkg:deb/a@1":                        {Kind: Deb, Name: "a", Version: "1"},
	} {
		if got := packageURL(p); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// grown is a set with one package that was found repeatedly, each time with another bundle
// identifier, license and path.
func grown(times int) *packageSet {
	s := newPackageSet(defaultLimits)
	for i := range times {
		text := fmt.Sprintf("com.example.%06d", i)
		s.add(Package{
			Kind: MacOSApp, Name: "App", Version: "1", BundleIDs: []string{text}, Licenses: []string{text, text},
			Locations: []string{text},
		})
	}
	return s
}

// The reported size of a set is that of its packages, however often they were found.
func TestRepositoryCountsWhatGrows(t *testing.T) {
	s := grown(100)
	h := s.kept.elements[0]
	if len(s.kept.elements) != 1 || s.kept.usedBytes != h.sizeBytes() || len(h.BundleIDs) != 100 ||
		len(h.Licenses) != 100 ||
		len(h.Locations) != 100 {
		t.Errorf("%d packages of %d bytes; the first has %d, and %d, %d, %d of each list",
			len(s.kept.elements), s.kept.usedBytes, h.sizeBytes(), len(h.BundleIDs), len(h.Licenses), len(h.Locations))
	}
}

// BenchmarkFoundAgain shows how the cost of a package grows with the times that it is found.
func BenchmarkFoundAgain(b *testing.B) {
	for _, times := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(times), func(b *testing.B) {
			for b.Loop() {
				grown(times)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(times), "ns/find")
		})
	}
}

// Only below a directory of Homebrew "Cellar" has kegs.
func TestKegOwner(t *testing.T) {
	for file, want := range map[string]string{
		"opt/homebrew/Cellar/yarn/1.22.1/libexec/package.json":   "brew/yarn@1.22.1",
		"usr/local/Cellar/yarn/1.22.1/package.json":              "brew/yarn@1.22.1",
		"home/linuxbrew/.linuxbrew/Cellar/openssl@3/3.0.1/lib/a": "brew/openssl@3@3.0.1",
		"Cellar/yarn/1.22.1/package.json":                        "brew/yarn@1.22.1",
		"srv/Cellar/app/2.0/package-lock.json":                   "",
		"opt/homebrew/Cellar/yarn/package.json":                  "",
	} {
		if got := KegOwner(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// TestMergeSwift: addresses of one repository are written in upper and lower case.
func TestMergeSwift(t *testing.T) {
	got := Merge([]Package{
		{Kind: Swift, Name: "github.com/apple/swift-nio", Version: "2.0.0", Locations: []string{"/b"}},
		{Kind: Swift, Name: "github.com/Apple/swift-nio", Version: "2.0.0", Locations: []string{"/a"}},
	})
	if len(got) != 1 || got[0].Name != "github.com/Apple/swift-nio" || len(got[0].Locations) != 2 {
		t.Errorf("%+v", got)
	}
}
