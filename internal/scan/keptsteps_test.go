package scan

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/internal/scan/stepcache"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

const keptID = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"

// extVersions are versions of an ext4 image, each made from the one before.
type extVersions struct {
	testing.TB
	r        *rand.Rand
	dir      string
	base     string // storage of the registry
	versions []string
	files    []string // paths of files that may be changed
	n        int
}

// newExtVersions makes the first version: a tree with packages of several kinds.
func newExtVersions(t testing.TB, seed uint64, options ...string) *extVersions {
	t.Helper()
	v := &extVersions{TB: t, r: rand.New(rand.NewPCG(seed, 5)), dir: t.TempDir(), base: t.TempDir()}
	tree := filepath.Join(v.dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := treetest.Make(tree, treetest.Least); err != nil {
		t.Fatal(err)
	}
	for i := range 120 {
		name, text := v.packageFile(i)
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644|os.FileMode(i%2*0o111)); err != nil {
			t.Fatal(err)
		}
		v.files = append(v.files, "/"+name)
	}
	image := filepath.Join(v.dir, "v0")
	mke2fs := append([]string{treetest.ExtProgram(t, "mke2fs"), "-q", "-F"}, options...)
	v.run(append(mke2fs, "-d", tree, image, "24M")...)
	v.versions = []string{image}
	return v
}

// packageFile returns a path and the content of a file of a package.
func (v *extVersions) packageFile(i int) (name, text string) {
	version := fmt.Sprintf("%d.%d.%d", v.r.IntN(9), v.r.IntN(9), v.r.IntN(9))
	switch i % 7 {
	case 0:
		return fmt.Sprintf("app%d/node_modules/p%d/package.json", i%7, i),
			fmt.Sprintf(`{"name": "p%d", "version": "%s", "license": "MIT", "x": "%s"}`, i, version,
				strings.Repeat("x", v.r.IntN(9000)))
	case 1:
		return fmt.Sprintf("usr/lib/python3/dist-packages/q%d-1.dist-info/METADATA", i),
			fmt.Sprintf("Metadata-Version: 2.1\nName: q%d\nVersion: %s\n", i, version)
	case 2:
		return fmt.Sprintf("srv/s%d/package-lock.json", i), fmt.Sprintf(`{"name":"s","lockfileVersion":3,"packages":{
			"":{"name":"s"},"node_modules/l%d":{"version":"%s"},"node_modules/m":{"version":"1.0.0"}}}`, i, version)
	case 3:
		return fmt.Sprintf("opt/bin%d/tool%d", i%3, i), "\x7fELF" + strings.Repeat(version, 300)
	case 4:
		return fmt.Sprintf("var/lib/dpkg/info/d%d.list", i), v.dpkgList()
	case 5:
		return dpkgFiles[i/7%len(dpkgFiles)], v.dpkgFile(i / 7 % len(dpkgFiles))
	default:
		return fmt.Sprintf("broken/b%d/package.json", i), "{" + version
	}
}

// dpkgFiles are what the owners of files depend on, in addition to lists of files.
var dpkgFiles = []string{"var/lib/dpkg/status", "var/lib/dpkg/diversions", "usr/lib/os-release"}

func (v *extVersions) dpkgFile(n int) string {
	switch dpkgFiles[n] {
	case "var/lib/dpkg/status":
		var out strings.Builder
		for i := 4; i < 120; i += 7 {
			fmt.Fprintf(&out, "Package: d%d\nStatus: install ok installed\nVersion: 1-%d\nArchitecture: all\n\n",
				i, v.r.IntN(3))
		}
		return out.String()
	case "usr/lib/os-release":
		return fmt.Sprintf("ID=debian\nVERSION_ID=%d\n", 10+v.r.IntN(4))
	}
	return "/usr/lib/a\n" + v.dpkgList()
}

// dpkgList returns paths of packages of Python, some of which do not exist.
func (v *extVersions) dpkgList() string {
	var out strings.Builder
	for range 1 + v.r.IntN(9) {
		fmt.Fprintf(&out, "/usr/lib/python3/dist-packages/q%d-1.dist-info/METADATA\n", 1+7*v.r.IntN(18))
	}
	return out.String()
}

func (v *extVersions) run(args ...string) {
	v.Helper()
	if out, err := exec.CommandContext(v.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		v.Fatalf("%v: %v: %s", args, err, out)
	}
}

// next adds a version with changes that change makes in a copy of the newest one.
func (v *extVersions) next(change func(image string)) {
	v.Helper()
	b, err := os.ReadFile(v.versions[len(v.versions)-1])
	if err != nil {
		v.Fatal(err)
	}
	image := filepath.Join(v.dir, fmt.Sprintf("v%d", len(v.versions)))
	if err := os.WriteFile(image, b, 0o600); err != nil {
		v.Fatal(err)
	}
	change(image)
	v.versions = append(v.versions, image)
}

// edit changes files as a guest does.
func (v *extVersions) edit(image string) {
	var script strings.Builder
	source := func(text string) string {
		v.n++
		name := filepath.Join(v.dir, fmt.Sprintf("source%d", v.n))
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			v.Fatal(err)
		}
		return name
	}
	for range 1 + v.r.IntN(12) {
		at := v.files[v.r.IntN(len(v.files))]
		switch v.r.IntN(6) {
		case 0:
			fmt.Fprintf(&script, "rm %s\n", at)
		case 1:
			fmt.Fprintf(&script, "sif %s mode 0100%d\n", at, 644+v.r.IntN(2)*111)
		case 2:
			fmt.Fprintf(&script, "mkdir /new%d\ncd /new%d\n", v.n, v.n)
			fmt.Fprintf(&script, "write %s package.json\n", source(fmt.Sprintf(`{"name":"n","version":"%d.0.0"}`, v.n)))
		case 3:
			fmt.Fprintf(&script, "ln %s %s\nunlink %s\n", at, filepath.Dir(at)+"/package.json", at)
		default:
			k := 0
			for i, f := range v.files {
				if f == at {
					k = i
				}
			}
			_, text := v.packageFile(k)
			fmt.Fprintf(&script, "rm %s\ncd %s\nwrite %s %s\n", at, filepath.Dir(at), source(text), filepath.Base(at))
		}
	}
	v.run(treetest.ExtProgram(v, "debugfs"), "-w", "-f", source(script.String()), image)
}

// poke overwrites bytes in blocks that are not empty, which may damage anything.
func (v *extVersions) poke(image string) {
	b, err := os.ReadFile(image)
	if err != nil {
		v.Fatal(err)
	}
	for changed := 0; changed < 6; {
		block := v.r.IntN(len(b)/4096) * 4096
		if block == 0 || len(bytes.Trim(b[block:block+4096], "\x00")) == 0 {
			continue
		}
		changed++
		b[block+v.r.IntN(4096)] ^= byte(1 + v.r.IntN(255))
	}
	if err := os.WriteFile(image, b, 0o600); err != nil {
		v.Fatal(err)
	}
}

// scan returns the inventory of the newest version.
func (v *extVersions) scan(cache *stepcache.Cache) *Inventory {
	v.Helper()
	var out *Inventory
	err := CatalogEach(v.Context(), Source{Template, keptID}, Options{Storage: v.base, Cache: cache},
		func(i *Inventory) error { out = i; return nil })
	if err != nil {
		v.Fatal(err)
	}
	return out
}

// compare scans the newest version in full and from the steps of the one before. It returns how many files
// the second scan did not read.
func (v *extVersions) compare(cache *stepcache.Cache) (kept int) {
	v.Helper()
	if err := disktest.WriteTemplate(v.Context(), v.base,
		disktest.Template{ID: keptID, Versions: v.versions, Format: "raw"}); err != nil {
		v.Fatal(err)
	}
	want, got := v.scan(nil), v.scan(cache)
	isOwned := func(p catalog.Package) bool { return p.Owner != "" && p.Distribution != "" }
	if len(v.versions) == 1 && !slices.ContainsFunc(want.Packages, isOwned) {
		v.Error("no package of the first version has an owner")
	}
	for i := range got.Volumes {
		kept += got.Volumes[i].FilesKept
		got.Volumes[i].FilesKept = 0
	}
	got.open, want.open = nil, nil // functions are never equal
	if !reflect.DeepEqual(got, want) {
		v.Errorf("version %d: the scan with steps found %d packages, %d warnings, %d unreadable, %v; without %d, %d, "+
			"%d, %v", len(v.versions)-1, len(got.Packages), len(got.Warnings), got.Unreadable, got.Skipped,
			len(want.Packages), len(want.Warnings), want.Unreadable, want.Skipped)
	}
	return kept
}

// A scan with the steps of an earlier version finds exactly what a full scan finds, whatever has changed.
func TestKeptStepsEqualAFullScan(t *testing.T) {
	treetest.ExtProgram(t, "debugfs")
	forms := map[string][]string{
		"ext4":   {"-t", "ext4"},
		"inline": {"-t", "ext4", "-O", "inline_data"},
		"ext2":   {"-t", "ext2", "-b", "1024"},
	}
	for _, name := range fulltest.Some(t, 2, slices.Sorted(maps.Keys(forms))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits for programs
			seed := uint64(1)
			if fulltest.All() {
				seed = rand.Uint64()
			}
			v := newExtVersions(t, seed, forms[name]...)
			cache := stepcache.Open(t.TempDir(), stepcache.MaxBytes)
			if kept := v.compare(cache); kept != 0 {
				t.Errorf("the first scan kept %d files", kept)
			}
			first := v.compare(cache)
			if first == 0 {
				t.Error("a scan of the same version read all files")
			}
			for n := range 6 {
				if n%3 == 2 {
					v.next(v.poke)
					v.compare(cache)
					v.versions = v.versions[:len(v.versions)-1]
					continue
				}
				v.next(v.edit)
				if kept := v.compare(cache); kept < first/3 {
					t.Errorf("version %d: %d files of about %d were kept", n+1, kept, first)
				}
			}
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

// Steps of an older version than the parent are used, too; those of another one, and damaged ones, are not.
func TestKeptStepsOfAnotherVersion(t *testing.T) {
	v := newExtVersions(t, 9, "-t", "ext4")
	dir := t.TempDir()
	cache := stepcache.Open(dir, stepcache.MaxBytes)
	v.compare(cache)
	v.next(v.edit)
	v.next(v.edit) // the version before is not scanned
	if kept := v.compare(cache); kept == 0 {
		t.Error("the steps of the first version were not used")
	}
	entries, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, name := range entries {
		if err := os.WriteFile(name, []byte("BYSTEPS1damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if kept := v.compare(cache); kept != 0 {
		t.Errorf("%d files of damaged steps were kept", kept)
	}
	if kept := v.compare(cache); kept == 0 {
		t.Error("damaged steps were not replaced")
	}
}
