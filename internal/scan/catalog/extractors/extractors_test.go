package extractors_test

import (
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

func TestNamesAreTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range append(extractors.All(), extractors.System()...) {
		if e.Name() == "" || seen[e.Name()] {
			t.Errorf("extractor %q is there twice, or has no name", e.Name())
		}
		seen[e.Name()] = true
		c := e.Patterns()
		for _, x := range c.Extensions {
			if !strings.HasPrefix(x, ".") || x != strings.ToLower(x) {
				t.Errorf("%s claims %q, which no file is asked by", e.Name(), x)
			}
		}
		if len(c.Names)+len(c.Extensions) == 0 && !c.Executables {
			t.Errorf("%s claims nothing", e.Name())
		}
	}
}

// TestEveryKind scans one file of each kind, and checks that every package is complete.
func TestEveryKind(t *testing.T) {
	r, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{
		"g/specifications/rack-3.gemspec":        "# stub: rack 3.0 ruby lib\n",
		"p/site-packages/six.dist-info/METADATA": "Name: six\nVersion: 1\n",
		"n/node_modules/ws/package.json":         `{"name":"ws","version":"8.0.0"}`,
		"j/pom.xml": "<project><dependencies>" +
			"<dependency><groupId>g</groupId><artifactId>a</artifactId>" +
			"<version>1</version></dependency></dependencies></project>",
		"go/go.mod":                            "module x\nrequire a.test/b v1.0.0\n",
		"r/Cargo.lock":                         "[[package]]\nname = \"time\"\nversion = \"0.1.0\"\nsource = \"x\"\n",
		"b/Cellar/jq/1.7/INSTALL_RECEIPT.json": "{}",
		"m/A.app/Contents/Info.plist":          `{ CFBundleName = A; CFBundleVersion = 3; }`,
		"m/private/var/db/receipts/a.b.bom":    "BOMStore",
		"m/private/var/db/receipts/a.b.plist":  `{ PackageIdentifier = "a.b"; PackageVersion = 3; }`,
		"d/var/lib/dpkg/status":                "Package: a\nStatus: install ok installed\nVersion: 1\n",
		"x/lib/apk/db/installed":               "P:a\nV:1-r0\n",
		"y/var/lib/rpm/rpmdb.sqlite":           rpmDatabase(t),
		"i/Podfile.lock":                       "PODS:\n  - A (1.0)\n",
		"v/include/php/main/php_version.h":     "#define PHP_VERSION \"8.2.7\"\n",
		"v/bin/php":                            "#!",
		"w/Package.resolved": `{"version": 2, "pins": [{"location": "https://example.test/a/b",` +
			` "state": {"version": "1.0.0"}}]}`,
	}), catalog.Options{Extractors: extractors.All(), CPEs: cpe.ForPackage})
	if err != nil {
		t.Fatal(err)
	}
	found := map[catalog.PackageType]bool{}
	for _, p := range r.Packages {
		found[p.Kind] = true
		if p.PURL == "" || len(p.CPEs) == 0 || len(p.Locations) == 0 || !strings.HasPrefix(p.Locations[0], "/") {
			t.Errorf("%+v is not finished", p)
		}
	}
	for _, k := range catalog.Kinds {
		if !found[k] {
			t.Errorf("no package of kind %s: %v", k, r.Warnings)
		}
	}
}

// rpmDatabase returns a database that rpm made.
func rpmDatabase(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../rpm/testdata/sqlite.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
