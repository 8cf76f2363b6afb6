package scan

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/container/containertest"
	"github.com/buildyard/buildyard/internal/scan/glob"
)

// plantContainer writes a tree with packages of an operating system, one that owns another, and programs.
func plantContainer(t *testing.T, dir string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const goMod = "module example.com/m\n\ngo 1.20\n\nrequire golang.org/x/net v0.1.0\n"
	long := strings.Repeat("text\n", 8000)
	const python, semver = "usr/lib/python3/dist-packages/", "usr/share/nodejs/semver/"
	for name, text := range map[string]string{
		"usr/lib/os-release": "ID=debian\nVERSION_ID=\"12\"\n",
		"var/lib/dpkg/status": "Package: python3-requests\nStatus: install ok installed\nVersion: 2.28.1+dfsg-1\n" +
			"Architecture: all\nSource: requests\n\n",
		"var/lib/dpkg/info/python3-requests.list":         "/" + python + "requests-2.28.1.egg-info/PKG-INFO\n",
		python + "requests-2.28.1.egg-info/PKG-INFO":      "Name: requests\nVersion: 2.28.1\n",
		python + "six-1.16.0.dist-info/METADATA":          "Name: six\nVersion: 1.16.0\n" + long,
		"srv/app/node_modules/lodash/package.json":        `{"name": "lodash", "version": "4.17.11"}`,
		"opt/homebrew/Cellar/jq/1.6/INSTALL_RECEIPT.json": `{}`,
		"opt/homebrew/Cellar/jq/1.6/.brew/jq.rb":          "class Jq < Formula\n  license \"MIT\"\nend\n",
		"usr/bin/program":                                 string(binary),
		"srv/app/go.mod":                                  goMod,
		"usr/share/doc/a long name/package.json.txt":      "{}",
		semver + "package.json":                           `{"name": "semver", "version": "7.3.5"}`,
		semver + "node_modules/lru-cache/package.json":    `{"name": "lru-cache", "version": "6.0.0"}`,
	} {
		name = filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755))
		if err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(os.MkdirAll(filepath.Join(dir, "etc"), 0o755),
		os.Symlink("../usr/lib/os-release", filepath.Join(dir, "etc/os-release")))
	if err != nil {
		t.Fatal(err)
	}
}

// inventoryOf catalogs a source and returns its packages as JSON, a line each.
func inventoryOf(t *testing.T, src Source, o Options) ([]string, *Inventory) {
	t.Helper()
	var lines []string
	var found *Inventory
	err := CatalogEach(t.Context(), src, o, func(inv *Inventory) error {
		found = inv
		for _, p := range inv.Packages {
			b, err := json.Marshal(p)
			if err != nil {
				return err
			}
			lines = append(lines, string(b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, found
}

// TestContainer: a directory and images of it in every form have the same packages, also when its files are in
// several layers that replace and remove others.
func TestContainer(t *testing.T) {
	dir := t.TempDir()
	plantContainer(t, dir)
	want, wanted := inventoryOf(t, Source{Dir, dir}, Options{})
	if len(want) < 10 || !strings.Contains(strings.Join(want, ""), `"Owner":"deb/python3-requests`) {
		t.Fatalf("%d packages of the directory", len(want))
	}
	whole, err := containertest.DirLayer(dir)
	if err != nil {
		t.Fatal(err)
	}
	const old, gone = "Package: old\nStatus: install ok installed\nVersion: 1\n", `{"name": "gone", "version": "1.0.0"}`
	below, err := containertest.Layer(
		containertest.File{Name: "var/lib/dpkg/status", Data: old},
		containertest.File{Name: "srv/app/node_modules/gone/package.json", Data: gone},
		containertest.File{Name: "srv/old/node_modules/gone/package.json", Data: gone},
	)
	if err != nil {
		t.Fatal(err)
	}
	above, err := containertest.Layer(
		containertest.File{Name: "srv/app/node_modules/.wh.gone"}, containertest.File{Name: "srv/.wh.old"},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, layers := range [][][]byte{{whole}, {below, whole, above}} {
		docker, err := containertest.Docker(layers...).Tar()
		if err != nil {
			t.Fatal(err)
		}
		targets := map[string][]byte{"docker.tar": docker}
		for _, c := range []containertest.Compression{containertest.Plain, containertest.Gzip, containertest.Zstd} {
			f, err := containertest.Layout(c, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if targets[string(c)+".tar"], err = f.Tar(); err != nil {
				t.Fatal(err)
			}
		}
		for name, b := range targets {
			target := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(target, b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, inv := inventoryOf(t, Source{Container, target}, Options{})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of %d layers: want -, got +\n%s", name, len(layers), diff)
			}
			if inv.Partial() || inv.Volumes[0].Format != "layers" || inv.Container.Platform != "linux/amd64" ||
				len(layers) == 1 && inv.Volumes[0].Files != wanted.Volumes[0].Files {
				t.Errorf("%s: %+v, %+v, %v", name, inv.Volumes, inv.Container, inv.Skipped)
			}
		}
	}
}

// TestPartialContainer: a layer that is missing makes the scan partial.
func TestPartialContainer(t *testing.T) {
	l, err := containertest.Layer(containertest.File{Name: "a", Data: "1"})
	if err != nil {
		t.Fatal(err)
	}
	f := containertest.Docker(l, l)
	delete(f, strings.Repeat("0", 63)+"1/layer.tar")
	dir := t.TempDir()
	if err := f.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	_, inv := inventoryOf(t, Source{Container, dir}, Options{})
	if !inv.Partial() || len(inv.Skipped) != 1 || inv.Skipped[0].Reason != "it is not in the archive" {
		t.Errorf("%+v", inv.Skipped)
	}
}

// TestExcludedVolume: --exclude leaves out a volume by its path, or by that of a directory above.
func TestExcludedVolume(t *testing.T) {
	for pattern, want := range map[string]bool{
		"/Volumes/Backup": true, "/Volumes": true, "Backup": true, "/Volumes/Other": false, "/Volumes/Backup/x": false,
	} {
		set, err := glob.NewSet([]string{pattern})
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Exclude: set}
		if got := o.excludesVolume("/Volumes/Backup"); got != want {
			t.Errorf("%s: %t", pattern, got)
		}
		if o.excludesVolume("/") {
			t.Errorf("%s: the main volume", pattern)
		}
	}
}
