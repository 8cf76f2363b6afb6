package macos

import (
	"strings"
	"testing"
	"testing/fstest"

	"howett.net/plist"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

func receipt(t testing.TB, form int, id, version any) string {
	return list(t, form, values{
		"PackageIdentifier": id, "PackageVersion": version, "InstallPrefixPath": "/", "InstallProcessName": "installer",
	})
}

// bill returns a bill of materials with some names.
func bill(names ...string) string {
	return "BOMStore\x00\x00\x00\x01" + strings.Join(names, "\x00") + "\x00"
}

func TestReceipts(t *testing.T) {
	const dir, tools = "private/var/db/receipts/", "com.apple.pkg.CLTools_Executables"
	catalogtest.Expect(t, []catalog.Extractor{Receipts{}, Applications{}}, catalogtest.Files{
		dir + tools + ".bom":                            bill("usr", "bin", "git"),
		dir + tools + ".plist":                          receipt(t, plist.BinaryFormat, tools, "15.3.0.0.1.1708646388"),
		"mac/var/db/receipts/com.amazon.aws.cli2.bom":   bill("aws"),
		"mac/var/db/receipts/com.amazon.aws.cli2.plist": receipt(t, plist.XMLFormat, "com.amazon.aws.cli2", "2.15.0"),

		// Of an application: that is reported, not its receipt.
		dir + "com.google.Chrome.bom":   bill("Applications", "Google Chrome.app", "Contents"),
		dir + "com.google.Chrome.plist": receipt(t, plist.XMLFormat, "com.google.Chrome", "120.0"),
		"Applications/Google Chrome.app/Contents/Info.plist": list(t, plist.XMLFormat, values{
			"CFBundleName": "Google Chrome", "CFBundleShortVersionString": "121.0",
			"CFBundleIdentifier": "com.google.Chrome",
		}),
		dir + "at.the.edge.bom":   bill(strings.Repeat("x", billChunk-2*len(bundleEnd)+2), "a.app"),
		dir + "at.the.edge.plist": receipt(t, plist.XMLFormat, "at.the.edge", "1"),

		dir + "not.app.bom":               bill("an.application", "x.appx"),
		dir + "not.app.plist":             receipt(t, plist.XMLFormat, "not.app", "1.0"),
		dir + "no.version.bom":            bill("a"),
		dir + "no.version.plist":          receipt(t, plist.XMLFormat, "no.version", ""),
		dir + "no.id.bom":                 bill("a"),
		dir + "no.id.plist":               receipt(t, plist.XMLFormat, 7, "1"),
		dir + "alone.bom":                 bill("a"),
		dir + "damaged.bom":               bill("a"),
		dir + "damaged.plist":             "bplist00",
		"Library/Receipts/other.bom":      bill("a"),
		"Library/InstallHistory/a/b.bom":  bill("a"),
		"private/var/db/receipts/x/y.bom": bill("a"),
	},
		"macos-pkg com.apple.pkg.CLTools_Executables 15.3.0.0.1.1708646388 "+
			"/private/var/db/receipts/com.apple.pkg.CLTools_Executables.bom",
		"macos-pkg com.amazon.aws.cli2 2.15.0 /mac/var/db/receipts/com.amazon.aws.cli2.bom",
		"macos-pkg not.app 1.0 /private/var/db/receipts/not.app.bom",
		"macos-app Google Chrome 121.0 /Applications/Google Chrome.app/Contents/Info.plist <com.google.Chrome>",
		"! /private/var/db/receipts/alone.bom: macos/receipt: "+
			"file does not exist",
		"! /private/var/db/receipts/damaged.bom: macos/receipt: the property list is damaged",
		"! /private/var/db/receipts/no.id.bom: macos/receipt: the receipt has no PackageIdentifier",
	)
}

// TestEveryEdgeOfChunks: the name of an application is found wherever a chunk ends.
func TestEveryEdgeOfChunks(t *testing.T) {
	for before := billChunk - 8; before < billChunk+8; before++ {
		for name, want := range map[string]bool{"a.app": true, "a.apx": false} {
			text := strings.Repeat("x", before) + name + "\x00" + strings.Repeat("y", billChunk)
			if got, err := hasApplication(t.Context(), strings.NewReader(text)); got != want || err != nil {
				t.Errorf("%s at %d: %t, %v", name, before, got, err)
			}
		}
	}
}

func FuzzReceipt(f *testing.F) {
	f.Add([]byte(bill("usr", "bin")), []byte(receipt(f, plist.BinaryFormat, "a.b", "1")))
	f.Add([]byte(bill("A.app")), []byte(receipt(f, plist.XMLFormat, "a.b", "1")))
	f.Fuzz(func(t *testing.T, bom, text []byte) {
		tree := fstest.MapFS{receiptDir + "/a.bom": {Data: bom}, receiptDir + "/a.plist": {Data: text}}
		r, err := catalog.Scan(t.Context(), tree,
			catalog.Options{Extractors: []catalog.Extractor{Receipts{}}, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Packages) > 1 || len(r.Packages) == 1 && strings.Contains(string(bom), string(bundleEnd)) {
			t.Errorf("%+v", r.Packages)
		}
	})
}
