package scan

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/container/containertest"
)

// unpackFixture returns a database of rpm that the tests of its extractor have.
func unpackFixture(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("catalog/rpm/testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// systemFiles are the files of systems, each with a package that owns one of Python.
func systemFiles(t *testing.T) map[string]map[string]string {
	t.Helper()
	const requests = "requests-2.25.1.dist-info/METADATA"
	rpm := func(files map[string]string) map[string]string {
		files["etc/os-release"] = "ID=\"rhel\"\nVERSION_ID=\"9.4\"\n"
		files["usr/lib/python3.9/site-packages/"+requests] = "Name: requests\nVersion: 2.25.1\n"
		files["usr/lib/python3.9/site-packages/six-1.16.0.dist-info/METADATA"] = "Name: six\nVersion: 1.16.0\n"
		return files
	}
	return map[string]map[string]string{
		"apk": {
			"etc/os-release": "ID=alpine\nVERSION_ID=3.20.3\n",
			"lib/apk/db/installed": "P:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\no:musl\n\n" +
				"P:py3-requests\nV:2.25.1-r0\nA:noarch\no:py3-requests\nF:usr/lib/python3.9/site-packages/" +
				strings.TrimSuffix(requests, "/METADATA") + "\nR:METADATA\n\n",
			"usr/lib/python3.9/site-packages/" + requests: "Name: requests\nVersion: 2.25.1\n",
		},
		"dpkg": {
			"etc/os-release": "ID=debian\nVERSION_ID=\"12\"\n",
			"var/lib/dpkg/status": "Package: python3-requests\nStatus: install ok installed\nVersion: 2.25.1-1\n" +
				"Architecture: all\nSource: requests\n\n",
			"var/lib/dpkg/info/python3-requests.list":      "/usr/lib/python3/dist-packages/" + requests + "\n",
			"usr/lib/python3/dist-packages/" + requests:    "Name: requests\nVersion: 2.25.1\n",
			"var/lib/dpkg/status.d/no-package.md5sums":     "0  x\n",
			"var/lib/dpkg/info/python3-requests.conffiles": "/etc/x\n",
		},
		"rpm, SQLite": rpm(map[string]string{"var/lib/rpm/rpmdb.sqlite": unpackFixture(t, "sqlite")}),
		"rpm, SQLite with a log": rpm(map[string]string{
			"usr/lib/sysimage/rpm/rpmdb.sqlite":     unpackFixture(t, "wal.sqlite"),
			"usr/lib/sysimage/rpm/rpmdb.sqlite-wal": unpackFixture(t, "wal.sqlite-wal"),
		}),
		"rpm, ndb":         rpm(map[string]string{"usr/lib/sysimage/rpm/Packages.db": unpackFixture(t, "ndb")}),
		"rpm, Berkeley DB": rpm(map[string]string{"var/lib/rpm/Packages": unpackFixture(t, "bdb")}),
	}
}

// TestSystemsInContainers: a container image has the packages of the operating system that a directory with its files
// has, and those that they own, with the database of every package manager. The layer below has another database, which
// an engine would replace or remove.
func TestSystemsInContainers(t *testing.T) {
	for name, files := range systemFiles(t) {
		dir := t.TempDir()
		if err := asFiles(files).WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		want, _ := inventoryOf(t, Source{Dir, dir}, Options{})
		text := strings.Join(want, "\n")
		if len(want) < 2 || !strings.Contains(text, `"Owner":"`) || !strings.Contains(text, `"Distribution":"`) {
			t.Fatalf("%s: the directory has %s", name, text)
		}
		whole, err := containertest.DirLayer(dir)
		if err != nil {
			t.Fatal(err)
		}
		below, err := containertest.Layer(
			containertest.File{Name: "etc/os-release", Data: "ID=debian\nVERSION_ID=\"10\"\n"},
			containertest.File{Name: "lib/apk/db/installed", Data: "P:old\nV:1-r0\n\n"},
			containertest.File{Name: "var/lib/dpkg/status.d/old", Data: "Package: old\nVersion: 1\n"},
			containertest.File{Name: "var/lib/rpm/Packages.db", Data: unpackFixture(t, "ndb")},
			containertest.File{Name: "usr/lib/sysimage/rpm/rpmdb.sqlite", Data: unpackFixture(t, "sqlite")},
		)
		if err != nil {
			t.Fatal(err)
		}
		removal, err := containertest.Layer(
			containertest.File{Name: "lib/apk/db/.wh..wh..opq"}, containertest.File{Name: "var/lib/.wh.dpkg"},
			containertest.File{Name: "var/lib/rpm/.wh.Packages.db"}, containertest.File{Name: "usr/lib/.wh.sysimage"},
		)
		if err != nil {
			t.Fatal(err)
		}
		for _, layers := range [][][]byte{{whole}, {below, removal, whole}} {
			images := map[string]containertest.Files{"docker.tar": containertest.Docker(layers...)}
			for _, c := range []containertest.Compression{containertest.Gzip, containertest.Zstd} {
				if images[string(c)+".tar"], err = containertest.Layout(c, layers...); err != nil {
					t.Fatal(err)
				}
			}
			for image, content := range images {
				b, err := content.Tar()
				if err != nil {
					t.Fatal(err)
				}
				target := filepath.Join(t.TempDir(), image)
				if err := os.WriteFile(target, b, 0o600); err != nil {
					t.Fatal(err)
				}
				got, inv := inventoryOf(t, Source{Container, target}, Options{})
				if diff := cmp.Diff(want, got); diff != "" || inv.Partial() {
					t.Errorf("%s, %s of %d layers: want -, got +\n%s%v", name, image, len(layers), diff, inv.Warnings)
				}
			}
		}
	}
}

func asFiles(texts map[string]string) containertest.Files {
	out := containertest.Files{}
	for name, text := range texts {
		out[name] = []byte(text)
	}
	return out
}
