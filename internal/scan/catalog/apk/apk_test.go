package apk

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/npm"
	"github.com/buildyard/buildyard/internal/scan/catalog/python"
)

// installed has packages as apk writes them.
const installed = `C:Q1qKcZ+j23xssAXmgQhkOO8dHnbWw=
P:musl
V:1.2.5-r0
A:x86_64
S:407278
I:667648
T:the musl c library (libc) implementation
U:https://musl.libc.org/
L:MIT
o:musl
m:Timo Teras <timo@example.org>
t:1709848866
c:ec2d91f8b4a5a1f3e7d8a6b0c3e2f1a0b9c8d7e6
p:so:libc.musl-x86_64.so.1=1
F:lib
R:ld-musl-x86_64.so.1
a:0:0:755
Z:Q1xx0gQPRoFZHlAyWiCWCMIIDaAi0=

C:Q17mim+wL35iMEtCiwQEovweL8NT0=
P:libcrypto3
V:3.3.2-r1
A:x86_64
L:Apache-2.0
o:openssl
F:usr
F:usr/lib
R:libcrypto.so.3
M:0:0:755

P:py3-six
V:1.16.0-r9
A:noarch
o:py3-six
F:usr/lib/python3.12/site-packages/six-1.16.0-py3.12.egg-info
R:PKG-INFO
F:
R:at-the-root

P:npm
V:10.9.1-r0
A:noarch
F:usr/lib/node_modules/npm
R:package.json
R:npm-shrinkwrap.json
`

func TestDatabase(t *testing.T) {
	const release = "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.3\n"
	for _, database := range databaseFiles {
		r, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{
			database: installed, "etc/os-release": release,
			"srv/x/testdata/" + database: installed, "etc/installed": installed,
			"srv/broken/" + database: "P:a\nV:1-r0\n\nA:x86_64\n\nnothing\n\nP:b\n",
			"srv/none/" + database:   "\n", "srv/zeros/" + database: strings.Repeat("\x00", 100),
			"usr/lib/python3.12/site-packages/six-1.16.0-py3.12.egg-info/PKG-INFO": "Name: six\nVersion: 1.16.0\n",
			"usr/lib/python3.12/site-packages/pip-24.dist-info/METADATA":           "Name: pip\nVersion: 24\n",
			"usr/lib/node_modules/npm/package.json":                                `{"name":"npm","version":"10.9.1"}`,
		}), catalog.Options{
			Extractors: []catalog.Extractor{Packages{}, python.InstalledPackages{}, npm.InstalledPackages{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Packages {
			got = append(got, strings.Join([]string{
				string(p.Kind), p.Name, p.Version, p.Arch, p.Source, p.SourceVersion, p.Distribution, p.Owner,
				strings.Join(p.Licenses, ","), p.Locations[0],
			}, "|"))
		}
		slices.Sort(got)
		want := []string{
			"apk|a|1-r0||a|1-r0||||/srv/broken/" + database,
			"apk|libcrypto3|3.3.2-r1|x86_64|openssl|3.3.2-r1|alpine:3.20||Apache-2.0|/" + database,
			"apk|musl|1.2.5-r0|x86_64|musl|1.2.5-r0|alpine:3.20||MIT|/" + database,
			"apk|npm|10.9.1-r0|noarch|npm|10.9.1-r0|alpine:3.20|||/" + database,
			"apk|py3-six|1.16.0-r9|noarch|py3-six|1.16.0-r9|alpine:3.20|||/" + database,
			"npm|npm|10.9.1||||alpine:3.20|apk/npm@10.9.1-r0||/usr/lib/node_modules/npm/package.json",
			"python|pip|24||||||" + "|/usr/lib/python3.12/site-packages/pip-24.dist-info/METADATA",
			"python|six|1.16.0||||alpine:3.20|apk/py3-six@1.16.0-r9||" +
				"/usr/lib/python3.12/site-packages/six-1.16.0-py3.12.egg-info/PKG-INFO",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("want -, got +\n%s", diff)
		}
		if w := r.Warnings; len(w) != 2 || w[0].Path != "/srv/broken/"+database || w[0].InvalidContent ||
			w[1].Path != "/srv/zeros/"+database || w[1].InvalidContent || r.Unreadable != 2 {
			t.Errorf("%v, %d not readable", w, r.Unreadable)
		}
	}
}

func FuzzDatabase(f *testing.F) {
	f.Add([]byte(installed))
	f.Add([]byte("P:a\nV:1\nR:b\n\n\nF:c\nR:"))
	f.Fuzz(func(t *testing.T, data []byte) {
		names := 0
		list, _ := parseDatabase(data, func(_ *catalog.Package, _, base []byte) { names += len(base) })
		for _, p := range list {
			if p.Name == "" || p.Version == "" || p.Source == "" || p.SourceVersion == "" {
				t.Errorf("%+v", p)
			}
		}
		if names > len(data) {
			t.Errorf("%d bytes of names in %d", names, len(data))
		}
	})
}
