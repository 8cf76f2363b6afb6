package macos

import (
	"testing"
	"testing/fstest"

	"howett.net/plist"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

// list returns a property list of one of the forms.
func list(t testing.TB, form int, values any) string {
	data, err := plist.Marshal(values, form)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

type values map[string]any

func TestApplications(t *testing.T) {
	chrome := values{
		"CFBundleName": "Chrome", "CFBundleDisplayName": "Google Chrome",
		"CFBundleShortVersionString": "140.0.1", "CFBundleIdentifier": "com.google.Chrome",
		"more": []any{values{"a": 1}},
	}
	helper := values{
		"CFBundleName": "Helper", "CFBundleVersion": "140", "CFBundleIdentifier": "com.google.Chrome.helper",
	}
	catalogtest.Expect(t, []catalog.Extractor{Applications{}}, catalogtest.Files{
		"Applications/Google Chrome.app/Contents/Info.plist": list(t,
			plist.BinaryFormat, chrome),
		"Users/x/Applications/Google Chrome.app/Contents/Info.plist": list(t,
			plist.XMLFormat, chrome),
		"Applications/Google Chrome.app/Contents/Frameworks/F/Helpers/Helper.app/Contents/Info.plist": list(t,
			plist.XMLFormat, helper),
		"Applications/No Name.app/Contents/Info.plist": list(t,
			plist.XMLFormat,
			values{
				"CFBundleName": "", "CFBundleDisplayName": "${PRODUCT_NAME}", "CFBundleVersion": "1",
				"CFBundleShortVersionString": 2,
			}),
		"Applications/NoVersion.app/Contents/Info.plist": list(t,
			plist.XMLFormat, values{"CFBundleName": "x"}),
		"Applications/Text.app/Contents/Info.plist": `{ CFBundleName = "Old Text"; CFBundleVersion = "3"; }`,
		"Applications/Bad.app/Contents/Info.plist": "bplist00 " +
			"is not enough of a list, even if it is long",
		"Applications/Empty.app/Contents/Info.plist": "",
		"Library/Frameworks/F.framework/Resources/Info.plist": list(t,
			plist.XMLFormat, chrome),
		"Phone.app/Info.plist": list(t,
			plist.XMLFormat, chrome),
	},
		"macos-app Google Chrome 140.0.1 /Applications/Google Chrome.app/Contents/Info.plist "+
			"/Users/x/Applications/Google Chrome.app/Contents/Info.plist <com.google.Chrome>",
		"macos-app Helper 140 /Applications/Google "+
			"Chrome.app/Contents/Frameworks/F/Helpers/Helper.app/Contents/Info.plist <com.google.Chrome.helper>",
		"macos-app No Name 1 /Applications/No Name.app/Contents/Info.plist",
		"macos-app Old Text 3 /Applications/Text.app/Contents/Info.plist",
		"! /Applications/Bad.app/Contents/Info.plist: macos/application: the property list is damaged",
		"! /Applications/Empty.app/Contents/Info.plist: macos/application: the property list is empty",
	)
}

// Different applications may have one name: the package represents all of them.
func TestApplicationsOfOneName(t *testing.T) {
	firefox := func(id string) string {
		return list(t, plist.XMLFormat,
			values{"CFBundleName": "Firefox", "CFBundleShortVersionString": "100.0", "CFBundleIdentifier": id})
	}
	const plists = ".app/Contents/Info.plist"
	catalogtest.Expect(t, []catalog.Extractor{Applications{}}, catalogtest.Files{
		"Applications/Firefox" + plists: firefox("org.mozilla.firefox"),
		"Users/x/Firefox" + plists:      firefox("com.example.shim"),
		"Users/y/Firefox" + plists:      firefox("com.example.shim"),
		"Users/z/Firefox" + plists:      firefox(""),
	}, "macos-app Firefox 100.0 /Applications/Firefox"+plists+" /Users/x/Firefox"+plists+" /Users/y/Firefox"+plists+
		" /Users/z/Firefox"+plists+" <, com.example.shim, org.mozilla.firefox>")
}

func TestSystem(t *testing.T) {
	catalogtest.Expect(t, []catalog.Extractor{System{}}, catalogtest.Files{
		"System/Library/CoreServices/SystemVersion.plist": list(t, plist.XMLFormat,
			values{"ProductName": "macOS", "ProductVersion": "14.5"}),
		"other/SystemVersion.plist": list(t, plist.XMLFormat,
			values{"ProductName": "macOS", "ProductVersion": "14.5"}),
	}, "macos macOS 14.5 /System/Library/CoreServices/SystemVersion.plist")
}

func FuzzPropertyList(f *testing.F) {
	v := values{"CFBundleName": "a", "CFBundleVersion": "1", "x": []any{1, 2.5, true, []byte{1}, values{"y": "é"}}}
	for _, form := range []int{plist.BinaryFormat, plist.XMLFormat, plist.OpenStepFormat, plist.GNUStepFormat} {
		f.Add([]byte(list(f, form, v)))
	}
	f.Add([]byte("((((((((((((((((((("))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := fstest.MapFS{"X.app/Contents/Info.plist": {Data: data}}
		if _, err := catalog.Scan(t.Context(), tree,
			catalog.Options{Extractors: []catalog.Extractor{Applications{}}, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
