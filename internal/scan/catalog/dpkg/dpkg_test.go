package dpkg

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/gem"
	"github.com/buildyard/buildyard/internal/scan/catalog/npm"
	"github.com/buildyard/buildyard/internal/scan/catalog/python"
)

const bookworm = "ID=debian\nVERSION_ID=\"12\"\n"

// status has paragraphs as dpkg writes them.
const status = `Package: python3-django
Status: install ok installed
Priority: optional
Section: python
Installed-Size: 25316
Maintainer: Debian Python Team <team@example.org>
Architecture: all
Source: python-django
Version: 3:3.2.19-1+deb12u1
Depends: python3-sqlparse, python3-tz, python3:any
Conffiles:
 /etc/django.conf 5d2a3b
Description: High-level Python web development framework
 Version: this line continues the description
 .
 Package: as does this one

Package: libssl3
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Source: openssl (3.0.11-1~deb12u2)
Version: 3.0.11-1~deb12u2+b1
Description: libraries

Package: libssl3
Status: install ok installed
Architecture: i386
Multi-Arch: same
Source: openssl
Version: 3.0.11-1~deb12u2

Package: old
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0-1

Package: half
Status: install reinstreq half-installed
Architecture: amd64
Version: 1.0-1

Package: waits
Status: install ok triggers-awaited
Architecture: amd64
Version: 2.0-1

Package: unknown
Status: purge ok not-installed
Priority: optional

Package: bare
Architecture: all
Version: 1
`

// installed returns the paragraph of a package.
func installed(name, arch string) string {
	return "Package: " + name + "\nStatus: install ok installed\nVersion: 1-1\nArchitecture: " + arch + "\n\n"
}

func line(p catalog.Package) string {
	return strings.Join([]string{
		p.Name, p.Version, p.Arch, p.Source, p.SourceVersion, p.Distribution, strings.Join(p.Locations, ","),
	}, " ")
}

func scan(t *testing.T, tree fstest.MapFS) *catalog.Result {
	t.Helper()
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{
		Extractors: []catalog.Extractor{
			Packages{}, python.InstalledPackages{}, npm.InstalledPackages{}, npm.LockFiles{}, gem.InstalledGems{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines returns the packages of dpkg, and those of languages with their owners.
func lines(r *catalog.Result) (debs, owned []string) {
	for _, p := range r.Packages {
		if p.Kind == catalog.Deb {
			debs = append(debs, line(p))
		} else {
			owned = append(owned, strings.TrimSpace(p.Name+" "+p.Owner+" "+p.Distribution+" "+p.Locations[0]))
		}
	}
	slices.Sort(debs)
	return debs, owned
}

func TestStatus(t *testing.T) {
	r := scan(t, catalogtest.Tree(catalogtest.Files{
		"var/lib/dpkg/status": status, "etc/os-release": bookworm, "src/testdata/var/lib/dpkg/status": status,
		"srv/chroot/var/lib/dpkg/status":     installed("a", "all"),
		"srv/chroot/usr/lib/os-release":      "ID=ubuntu\nVERSION_ID=\"22.04\"\n",
		"srv/broken/var/lib/dpkg/status":     "Package: b\nStatus: install ok installed\n\n\nPackage: c\n",
		"srv/distroless/var/lib/dpkg/status": "", "srv/blank/var/lib/dpkg/status": "\n \n",
		"srv/zeros/var/lib/dpkg/status": strings.Repeat("\x00", 100) + "\n: \n\n",
	}))
	debs, _ := lines(r)
	want := []string{
		"a 1-1 all a 1-1 ubuntu:22.04 /srv/chroot/var/lib/dpkg/status",
		"libssl3 3.0.11-1~deb12u2 i386 openssl 3.0.11-1~deb12u2 debian:12 /var/lib/dpkg/status",
		"libssl3 3.0.11-1~deb12u2+b1 amd64 openssl 3.0.11-1~deb12u2 debian:12 /var/lib/dpkg/status",
		"python3-django 3:3.2.19-1+deb12u1 all python-django 3:3.2.19-1+deb12u1 debian:12 /var/lib/dpkg/status",
		"waits 2.0-1 amd64 waits 2.0-1 debian:12 /var/lib/dpkg/status",
	}
	if diff := cmp.Diff(want, debs); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if w := r.Warnings; len(w) != 2 || w[0].Path != "/srv/broken/var/lib/dpkg/status" || w[0].InvalidContent ||
		w[1].Path != "/srv/zeros/var/lib/dpkg/status" || w[1].InvalidContent || r.Unreadable != 2 {
		t.Errorf("%v, %d not readable", w, r.Unreadable)
	}
}

// TestDistroless: images without dpkg have a file for each package, with its checksums in another one.
func TestDistroless(t *testing.T) {
	const sum = "0123456789abcdef0123456789abcdef  "
	r := scan(t, catalogtest.Tree(catalogtest.Files{
		"etc/os-release": bookworm,
		"var/lib/dpkg/status.d/base": "Package: base-files\nVersion: 12.4+deb12u5\nArchitecture: amd64\n" +
			"Maintainer: x\nDescription: y\n z\n",
		"var/lib/dpkg/status.d/base.md5sums":   sum + "usr/share/common-licenses/Apache-2.0\n",
		"var/lib/dpkg/status.d/libpython3.11":  "Package: libpython3.11\nSource: python3.11\nVersion: 3.11.2-6\n",
		"var/lib/dpkg/status.d/python3-six":    "Package: python3-six\nVersion: 1.16.0-4\nArchitecture: all\n",
		"usr/lib/python3/six.dist-info/RECORD": "",
		"var/lib/dpkg/status.d/python3-six.md5sums": sum +
			"usr/lib/python3/dist-packages/six-1.16.0.egg-info/PKG-INFO\n" +
			"broken\n",
		"usr/lib/python3/dist-packages/six-1.16.0.egg-info/PKG-INFO": "Name: six\nVersion: 1.16.0\n",
	}))
	debs, owned := lines(r)
	want := []string{
		"base-files 12.4+deb12u5 amd64 base-files 12.4+deb12u5 debian:12 /var/lib/dpkg/status.d/base",
		"libpython3.11 3.11.2-6  python3.11 3.11.2-6 debian:12 /var/lib/dpkg/status.d/libpython3.11",
		"python3-six 1.16.0-4 all python3-six 1.16.0-4 debian:12 /var/lib/dpkg/status.d/python3-six",
	}
	if diff := cmp.Diff(want, debs); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"six deb/python3-six@1.16.0-4 debian:12 /usr/lib/python3/dist-packages/six-1.16.0.egg-info/PKG-INFO",
	}, owned); diff != "" || len(r.Warnings) > 0 {
		t.Errorf("want -, got +\n%s%v", diff, r.Warnings)
	}
}

// TestOwners: links of the directories of a merged usr, diversions, and packages in a system within the tree.
func TestOwners(t *testing.T) {
	npmPackage := func(name string) string { return `{"name":"` + name + `","version":"1.0.0"}` }
	lock := func(name string) string { return `{"packages":{"node_modules/` + name + `":{"version":"1.0.0"}}}` }
	info := "var/lib/dpkg/info/"
	r := scan(t, catalogtest.Tree(catalogtest.Files{
		"etc/os-release": bookworm, "lib": "-> usr/lib", "sbin": "-> usr/sbin",
		"var/lib/dpkg/status": installed("node-merged", "all") + installed("node-diverter", "all") +
			installed("node-diverted", "all") +
			installed("libmulti", "amd64") + installed("libmulti", "i386") +
			"Package: node-removed\nStatus: deinstall ok config-files\nVersion: 1-1\nArchitecture: all\n",
		info + "node-merged.list": "/.\n/lib\n/lib/node_modules/merged/package.json\n" +
			"/usr/share/doc/x/package-lock.json",
		info + "node-diverter.list": "/usr/share/nodejs/d/package.json\n",
		info + "node-diverted.list": "/.\n/usr/share/nodejs/d/package.json\n",
		info + "node-removed.list":  "/usr/share/nodejs/free/package.json\n",
		info + "libmulti:amd64.list": "/usr/lib/ruby/specifications/multi-1.0.gemspec\n" +
			"/usr/share/nodejs/m/package.json\n",
		info + "libmulti:i386.list": "/usr/share/nodejs/m/package.json\n",
		"var/lib/dpkg/diversions": "/usr/share/nodejs/d/package.json\n" +
			"/usr/share/nodejs/d/package.old.json\nnode-diverter\n",
		// found files
		"usr/lib/node_modules/merged/package.json":      npmPackage("merged"),
		"usr/share/nodejs/d/package.json":               npmPackage("diverter"),
		"usr/share/nodejs/m/package.json":               npmPackage("m"),
		"usr/share/nodejs/free/package.json":            npmPackage("free"),
		"usr/lib/ruby/specifications/multi-1.0.gemspec": "# stub: multi 1.0 ruby lib\n",
		"usr/share/doc/x/package-lock.json":             lock("old"),
		"srv/app/package-lock.json":                     lock("old"),
		"srv/app/node_modules/merged/package.json":      npmPackage("merged"),
		"srv/c/var/lib/dpkg/status":                     installed("node-inner", "all"),
		"srv/c/" + info + "node-inner.list": "/usr/lib/node_modules/j/package.json\n" +
			"/usr/share/nodejs/i/package.json\n",
		"srv/c/usr/share/nodejs/i/package.json":                   npmPackage("i"),
		"srv/c/usr/lib/node_modules/j/package.json":               npmPackage("j"),
		"opt/brew/Cellar/yarn/1.22.1/node_modules/y/package.json": npmPackage("y"),
		"opt/brew/Cellar/yarn/1.22.1/libexec/package-lock.json":   lock("z"),
	}))
	_, owned := lines(r)
	want := []string{
		"diverter deb/node-diverter@1-1 debian:12 /usr/share/nodejs/d/package.json",
		"free /usr/share/nodejs/free/package.json",
		"i deb/node-inner@1-1  /srv/c/usr/share/nodejs/i/package.json",
		"j deb/node-inner@1-1  /srv/c/usr/lib/node_modules/j/package.json",
		"m deb/libmulti@1-1 debian:12 /usr/share/nodejs/m/package.json",
		"merged /srv/app/node_modules/merged/package.json",
		"merged deb/node-merged@1-1 debian:12 /usr/lib/node_modules/merged/package.json",
		"multi deb/libmulti@1-1 debian:12 /usr/lib/ruby/specifications/multi-1.0.gemspec",
		"old /srv/app/package-lock.json",
		"y brew/yarn@1.22.1  /opt/brew/Cellar/yarn/1.22.1/node_modules/y/package.json",
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "  ", " ")
	}
	for i := range owned {
		owned[i] = strings.Join(strings.Fields(owned[i]), " ")
	}
	if diff := cmp.Diff(want, owned); diff != "" || len(r.Warnings) > 0 {
		t.Errorf("want -, got +\n%s%v", diff, r.Warnings)
	}
}

// TestLargeDiversions: diversions that are not read are reported.
func TestLargeDiversions(t *testing.T) {
	r := scan(t, catalogtest.Tree(catalogtest.Files{
		"var/lib/dpkg/status":             installed("a", "all"),
		"var/lib/dpkg/info/a.list":        "/usr/share/nodejs/a/package.json\n",
		"var/lib/dpkg/diversions":         strings.Repeat("/a\n", maxDiversionBytes/3+1),
		"usr/share/nodejs/a/package.json": `{"name":"a","version":"1.0.0"}`,
	}))
	_, owned := lines(r)
	if len(owned) != 1 || !strings.Contains(owned[0], "deb/a@1-1") || r.Unreadable != 1 || len(r.Warnings) != 1 ||
		!strings.Contains(r.Warnings[0].Message, "diversions: the file is too large") {
		t.Errorf("%q, %d unread: %v", owned, r.Unreadable, r.Warnings)
	}
}

// TestThisMachine compares the packages of a Debian system with those that dpkg-query lists.
func TestThisMachine(t *testing.T) {
	query, err := exec.LookPath("dpkg-query")
	if err != nil {
		t.Log("This machine has no dpkg to compare with.")
		return
	}
	out, err := exec.CommandContext(t.Context(), query, "-W", "-f",
		"${db:Status-Status} ${Package} ${Version} ${Architecture} ${source:Package} ${source:Version}\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for text := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(text), "installed "); ok {
			want = append(want, text)
		}
	}
	data, err := os.ReadFile("/" + statusFile)
	if err != nil {
		t.Fatal(err)
	}
	list, err := parseStatus(data, true)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list {
		got = append(got, strings.TrimSpace(line(p)))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte(status), true)
	f.Add([]byte("Package: a\nVersion: 1\nSource: b (2)\n"), false)
	f.Add([]byte("Source: (\nSource: )\n:\n \n"), false)
	f.Fuzz(func(t *testing.T, data []byte, requireStatus bool) {
		list, _ := parseStatus(data, requireStatus)
		for _, p := range list {
			if p.Name == "" || p.Version == "" || p.Source == "" || p.SourceVersion == "" ||
				strings.Contains(p.Name, "\n") {
				t.Errorf("%+v", p)
			}
		}
	})
}

func FuzzDiversions(f *testing.F) {
	f.Add([]byte("/bin/sh\n/bin/sh.distrib\ndash\n/a\n/b\n:\n"))
	f.Add([]byte("/a\n/b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := len(parseDiversions(data)); n > len(data)/2+1 {
			t.Errorf("%d diversions in %d bytes", n, len(data))
		}
	})
}
