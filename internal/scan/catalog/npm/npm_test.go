package npm

import (
	"encoding/binary"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

var all = []catalog.Extractor{InstalledPackages{}, AsarArchives{}}

func TestInstalled(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{
		"app/package.json":                      `{"name":"my-app","version":"1.0.0"}`,
		"app/node_modules/express/package.json": `{"name":"express","version":"4.18.2","license":"MIT"}`,
		"app/node_modules/@babel/core/package.json": "\xef\xbb\xbf" +
			`{"name":"@babel/core","version":"7.1.0","license":{"type":"MIT","url":"x"}}`,
		"app/node_modules/a/node_modules/express/package.json":          `{"name":"express","version":"4.18.2","licenses":[{"type":"MIT"},"Apache-2.0"]}`,
		"app/node_modules/express/esm/package.json":                     `{"type":"module"}`,
		"app/node_modules/next/dist/compiled/ws/package.json":           `{"name":"ws","version":"8.0.0","license":"MIT"}`,
		"app/node_modules/terser/bin/package.json":                      `{"name":"bin","version":"1.0.0","private":true}`,
		"app/node_modules/resolve/test/resolver/baz/package.json":       `{"name":"baz","version":"0.0.1"}`,
		"app/node_modules/resolve/test/resolver/malformed/package.json": `{"name`,
		"app/node_modules/broken/package.json":                          `{"name`,
		"app/node_modules/noversion/package.json":                       `{"name":"noversion"}`,
		"app/node_modules/template/package.json":                        `{"name":"<%= name %>","version":"1.0.0"}`,
		"app/node_modules/vsx/package.json":                             `{"name":"vsx","version":"1.0.0","engines":{"vscode":"^1"}}`,
		"app/node_modules/old/package.json":                             `{"name":"old","version":"1.0.0","engines":["node >= 0.8"],"author":7}`,
		"app/node_modules/test/package.json":                            `{"name":"test","version":"3.3.0"}`,
		"usr/share/nodejs/glob/package.json":                            `{"name":"glob","version":"8.0.3"}`,
		"srv/chroot/usr/share/nodejs/ms/package.json":                   `{"name":"ms","version":"2.1.3"}`,
		"srv/myusr/share/nodejs/no/package.json":                        `{"name":"no","version":"1.0.0"}`,
		"Users/x/.vscode/extensions/e/package.json":                     `{"name":"e","version":"1.0.0","engines":{"vscode":"^1"}}`,
	},
		"npm express 4.18.2 /app/node_modules/a/node_modules/express/package.json "+
			"/app/node_modules/express/package.json [Apache-2.0, MIT]",
		"npm @babel/core 7.1.0 /app/node_modules/@babel/core/package.json [MIT]",
		"npm ws 8.0.0 /app/node_modules/next/dist/compiled/ws/package.json [MIT]",
		"npm old 1.0.0 /app/node_modules/old/package.json",
		"npm test 3.3.0 /app/node_modules/test/package.json",
		"npm glob 8.0.3 /usr/share/nodejs/glob/package.json",
		"npm ms 2.1.3 /srv/chroot/usr/share/nodejs/ms/package.json",
		"! /app/node_modules/broken/package.json: npm/package.json: unexpected end of JSON input",
	)
}

// asar returns an archive: sizes, the list of files, the files.
func asar(index, data string) string {
	pickle := (len(index) + 3) &^ 3
	head := make([]byte, 16)
	binary.LittleEndian.PutUint32(head[0:], 4)
	binary.LittleEndian.PutUint32(head[4:], uint32(pickle+8))
	binary.LittleEndian.PutUint32(head[8:], uint32(pickle+4))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(index)))
	return string(head) + index + string(make([]byte, pickle-len(index))) + data
}

const asarIndex = `{"files":{"package.json":{"offset":"0","size":34},"node_modules":{"files":{` +
	`"ws":{"files":{"package.json":{"offset":"0","size":34}}},` +
	`"@x":{"files":{"y":{"files":{"package.json":{"offset":"34","size":36}}}}},` +
	`"far":{"files":{"package.json":{"offset":"9999","size":36}}},` +
	`"beside":{"files":{"package.json":{"size":36,"unpacked":true}}}}}}}`

const asarData = `{"name":"ws","version":"8.17.0"}  {"name":"@x/y","version":"1.0.0"}   `

func TestArchive(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{
		"Applications/X.app/Contents/Resources/app.asar": asar(asarIndex, asarData),
		"bad/app.asar":   "short",
		"bad/2/app.asar": asar(`{"files":`, ""),
	},
		"npm ws 8.17.0 /Applications/X.app/Contents/Resources/app.asar",
		"npm @x/y 1.0.0 /Applications/X.app/Contents/Resources/app.asar",
		"! /Applications/X.app/Contents/Resources/app.asar: npm/asar: /node_modules/far/package.json: the entry is "+
			"outside "+
			"of the archive",
		"! /bad/2/app.asar: npm/asar: read the file index of the archive: unexpected end of JSON input",
		"! /bad/app.asar: npm/asar: read the sizes of the archive: EOF",
	)
}

const lock3 = `{"name":"mine","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"mine","version":"1.0.0"},` +
	`"node_modules/lodash":{"version":"4.17.20","license":"MIT"},"node_modules/jest":{"version":"29.0.0","dev":true},` +
	`"node_modules/a/node_modules/@a/b":{"version":"1.2.3"},"node_modules/alias":{"name":"real","version":"2.0.0"},` +
	`"node_modules/git":{"version":"git+ssh://git@example.test/a.git#abc"},` +
	`"packages/own":{"version":"9.9.9"},"node_modules/own":{"resolved":"packages/own","link":true}}}`

const lock1 = `{"lockfileVersion":1,"dependencies":{"ws":{"version":"1.0.0","dependencies":{"ms":{"version":"0.7.1"}}},"d":{"version":"1.0.0","dev":true},` +
	`"al":{"version":"npm:string-width@4.2.0"},"f":{"version":"file:../f"},"n":null}}`

func TestLock(t *testing.T) {
	catalogtest.Expect(t, []catalog.Extractor{LockFiles{}}, catalogtest.Files{
		"app/package-lock.json":                lock3,
		"old/npm-shrinkwrap.json":              lock1,
		"app/node_modules/x/package-lock.json": lock3,
	},
		"npm lodash 4.17.20 /app/package-lock.json [MIT]", "npm @a/b 1.2.3 /app/package-lock.json",
		"npm real 2.0.0 /app/package-lock.json",
		"npm ws 1.0.0 /old/npm-shrinkwrap.json", "npm ms 0.7.1 /old/npm-shrinkwrap.json",
		"npm string-width 4.2.0 /old/npm-shrinkwrap.json",
	)
}

func FuzzLock(f *testing.F) {
	f.Add([]byte(lock3))
	f.Add([]byte(lock1))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := catalog.Scan(t.Context(), fstest.MapFS{"package-lock.json": {Data: data}},
			catalog.Options{Extractors: []catalog.Extractor{LockFiles{}}, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzArchive(f *testing.F) {
	f.Add([]byte(asar(asarIndex, asarData)))
	f.Add([]byte(asar(`{"files":{"a":null}}`, "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := fstest.MapFS{"app.asar": {Data: data}, "node_modules/a/package.json": {Data: data}}
		if _, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: all, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
