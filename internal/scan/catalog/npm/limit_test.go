package npm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

// An archive that is not read to its end has a warning, and the packages read so far count.
func TestArchiveThatIsCut(t *testing.T) {
	const ws = `"ws":{"files":{"package.json":{"offset":"0","size":34}}}`
	inModules := func(entries string) string {
		return asar(`{"files":{"node_modules":{"files":{`+entries+`}}}}`, asarData)
	}
	var many, wrong strings.Builder
	for i := range maxEntries {
		fmt.Fprintf(&many, `,"z%06d":{}`, i)
	}
	for i := range 2 * maxBadFiles {
		fmt.Fprintf(&wrong, `,"z%d":{"files":{"package.json":{"offset":"99999","size":1}}}`, i)
	}
	for name, c := range map[string]struct {
		archive string
		want    string
		odd     bool
		found   int
	}{
		"null before a package": {inModules(`"a":null,` + ws), "", false, 1},
		"many entries": {inModules(ws +
			many.String()), "too large: the file index of the archive has more than 200000 entries", false, 1},
		"many more entries": {
			inModules(ws + strings.Repeat(`,"a":{"files":{"b":{}}}`, 3*maxEntries)),
			"too large: the file index of the archive has more than 200000 entries", false, 0,
		},
		"many that are wrong": {inModules(ws +
			wrong.String()), "too large: the remaining files of the archive are not read", false, 1},
		"one that is wrong": {inModules(ws +
			`,"z":{"files":{"package.json":{"offset":"99999","size":1}}}`), "the entry is outside", true, 1},
		"one that is no JSON": {inModules(ws +
			`,"z":{"files":{"package.json":{"offset":"0","size":5}}}`), "unexpected end of JSON", true, 1},
		"a list without end": {asar(strings.Repeat(" ", maxIndexBytes+1),
			""), "too large: the file index of the archive has 33554433 bytes", false, 0},
		"a huge package.json": {
			asar(`{"files":{"node_modules":{"files":{"a":{"files":{"package.json":{"offset":"0","size":4194305}}}}}}}`,
				strings.Repeat(" ", maxManifestBytes+1)), "too large: 4194305 bytes", false, 0,
		},
	} {
		r, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{"app.asar": c.archive}),
			catalog.Options{Extractors: all})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(catalogtest.Lines(r), "\n")
		if !strings.Contains(got, c.want) || len(r.Packages) != c.found || len(r.Warnings) > 0 &&
			(r.Warnings[0].InvalidContent != c.odd || c.want == "") || len(r.Warnings) == 0 && c.want != "" {
			t.Errorf("%s: %.500s", name, got)
		}
	}
}

// A license may have any type, and takes no memory.
func TestLicenseOfALock(t *testing.T) {
	catalogtest.Expect(t, []catalog.Extractor{LockFiles{}}, catalogtest.Files{
		"package-lock.json": `{"packages":{"node_modules/a":{"version":"1.0.0","license":[[[["MIT"]]]]},"node_modules/b":{"version":"1.0.0","license":"M\u0049T"}}}`,
	}, "npm a 1.0.0 /package-lock.json", "npm b 1.0.0 /package-lock.json [MIT]")
}
