package python

import (
	"archive/zip"
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

var all = []catalog.Extractor{InstalledPackages{}}

func archive(t testing.TB, files ...string) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestInstalled(t *testing.T) {
	site := "usr/lib/python3/site-packages/"
	catalogtest.Expect(t, all, catalogtest.Files{
		site +
			"Django-4.2.dist-info/METADATA": "Metadata-Version: 2.1\r\nName: Django\r\nVersion: 4.2\r\nLicense: " +
			"BSD\r\n\r\nName: other\r\n",
		site + "django-4.2.egg-info": "Name: django\nVersion: 4.2\nLicense-Expression: BSD-3-Clause\n",
		site +
			"zope.x.egg-info/PKG-INFO": "Name: zope.x\nVersion: 1.0\nSummary: a\n   Version: 9\nClassifier: License " +
			":: OSI Approved :: MIT License\n",
		site + "six-1.16.egg/EGG-INFO/PKG-INFO": "Name: six\nVersion: 1.16\nLicense: UNKNOWN\n",
		site + "none.dist-info/METADATA":        "Name: none\n",
		"src/PKG-INFO":                          "Name: src\nVersion: 1\n",
		"src/METADATA":                          "Name: src\nVersion: 1\n",
		"lib/ensurepip/pip-24.0-py3-none-any.whl": archive(t, "pip/a.py", "", "pip-24.0.dist-info/METADATA",
			"Name: pip\nVersion: 24.0\n", "pip/_vendor/x.dist-info/METADATA", "Name: x\nVersion: 1\n"),
		"lib/bad.whl": "PK",
	},
		"python Django 4.2 /usr/lib/python3/site-packages/Django-4.2.dist-info/METADATA "+
			"/usr/lib/python3/site-packages/django-4.2.egg-info [BSD, BSD-3-Clause]",
		"python zope.x 1.0 /usr/lib/python3/site-packages/zope.x.egg-info/PKG-INFO [MIT License]",
		"python six 1.16 /usr/lib/python3/site-packages/six-1.16.egg/EGG-INFO/PKG-INFO",
		"python pip 24.0 /lib/ensurepip/pip-24.0-py3-none-any.whl",
		"! /usr/lib/python3/site-packages/none.dist-info/METADATA: python/metadata: name or version of the package "+
			"is missing",
		"! /lib/bad.whl: python/metadata: zip: not a valid zip file",
	)
}

func FuzzInstalled(f *testing.F) {
	f.Add([]byte("Name: a\nVersion: 1\n :\n"))
	f.Add([]byte(archive(f, "a.dist-info/METADATA", "Name: pip\nVersion: 24.0\n")))
	f.Add([]byte(":\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := fstest.MapFS{"a.dist-info/METADATA": {Data: data}, "a.whl": {Data: data}}
		if _, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: all, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}

// A header without a name is ignored.
func TestHeaderWithoutName(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{"a.dist-info/METADATA": ": x\nName: a\n:\nVersion: 1\n"},
		"python a 1 /a.dist-info/METADATA")
}
