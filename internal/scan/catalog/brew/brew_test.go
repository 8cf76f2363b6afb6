package brew

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

func TestFormulae(t *testing.T) {
	catalogtest.Expect(t, []catalog.Extractor{Formulae{}}, catalogtest.Files{
		"opt/homebrew/Cellar/openssl@3/3.0.8_1/INSTALL_RECEIPT.json": "{}",
		"opt/homebrew/Cellar/openssl@3/3.0.8_1/.brew/openssl@3.rb": "class OpensslAT3 < Formula\n  desc " +
			"\"x\"\n  license \"Apache-2.0\"\n",
		"opt/homebrew/Cellar/GraphicsMagick/1.3.40/INSTALL_RECEIPT.json": "not even json",
		"opt/homebrew/Cellar/readline/8.2.1/INSTALL_RECEIPT.json":        "{}",
		"opt/homebrew/Cellar/readline/8.2.1/.brew/readline.rb": "class Readline < Formula\n  license " +
			"any_of: [\n    \"MIT\",\n    { \"GPL-3.0-or-later\" => { with: \"Bison-exception-2.2\" } },\n " +
			" ]\n  head " +
			"\"nothing\"\n",
		"opt/homebrew/Cellar/readline/8.2.1/share/x/INSTALL_RECEIPT.json": "{}",
		"opt/homebrew/INSTALL_RECEIPT.json":                               "{}",
	},
		"brew openssl@3 3.0.8_1 /opt/homebrew/Cellar/openssl@3/3.0.8_1/INSTALL_RECEIPT.json [Apache-2.0]",
		"brew GraphicsMagick 1.3.40 /opt/homebrew/Cellar/GraphicsMagick/1.3.40/INSTALL_RECEIPT.json",
		"brew readline 8.2.1 /opt/homebrew/Cellar/readline/8.2.1/INSTALL_RECEIPT.json [Bison-exception-2.2, "+
			"GPL-3.0-or-later, MIT]",
	)
}

func TestCasks(t *testing.T) {
	const room = "usr/local/Caskroom/"
	catalogtest.Expect(t, []catalog.Extractor{Casks{}}, catalogtest.Files{
		room + "firefox/130.0.1/Firefox.app":                                    "-> /Applications/Firefox.app",
		room + "firefox/.metadata/130.0.1/20240901/Casks/firefox.json":          "{}",
		room + "firefox/.metadata/120.0/20230901/Casks/firefox.json":            "{}",
		room + "font-x/.metadata/1.2,34/20240901/Casks/font-x.rb":               "",
		room + "font-x/1.2,34/LICENSE":                                          "",
		room + "gimp/2.10/gimp.wrapper.sh":                                      "",
		room + "obsidian/1.5/Obsidian.app/Contents/Info.plist":                  "",
		room + "obsidian/1.5/Obsidian.app/Contents/Frameworks/a/Info.plist":     "",
		room + "android-platform-tools/35.0.2/platform-tools/source.properties": "",
	},
		"brew firefox 130.0.1 /"+room+"firefox/.metadata/130.0.1/20240901/Casks/firefox.json /"+room+
			"firefox/130.0.1/Firefox.app",
		"brew font-x 1.2,34 /"+room+"font-x/.metadata/1.2,34/20240901/Casks/font-x.rb",
		"brew gimp 2.10 /"+room+"gimp/2.10/gimp.wrapper.sh",
		"brew obsidian 1.5 /"+room+"obsidian/1.5/Obsidian.app/Contents/Info.plist",
		"brew android-platform-tools 35.0.2 /"+room+"android-platform-tools/35.0.2/platform-tools/source.properties",
	)
}

// broken is a tree whose disk fails in the directory of a version.
type broken struct{ fstest.MapFS }

func (b broken) Stat(name string) (fs.FileInfo, error) {
	if strings.HasSuffix(name, "firefox/130.0.1") {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: errors.New("the disk fails")}
	}
	return b.MapFS.Stat(name)
}

// A version whose directory cannot be read is reported as unread, not as removed.
func TestUnreadCask(t *testing.T) {
	tree := broken{catalogtest.Tree(catalogtest.Files{
		"opt/homebrew/Caskroom/firefox/.metadata/130.0.1/20240901/Casks/firefox.json": "{}",
		"opt/homebrew/Caskroom/firefox/.metadata/120.0/20230901/Casks/firefox.json":   "{}",
	})}
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: []catalog.Extractor{Casks{}}})
	if err != nil || r.Unreadable != 1 || len(r.Warnings) != 1 || r.Warnings[0].InvalidContent || len(r.Packages) != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}
