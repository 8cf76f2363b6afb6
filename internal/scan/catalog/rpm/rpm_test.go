package rpm

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/npm"
	"github.com/buildyard/buildyard/internal/scan/catalog/python"
)

// unpack returns a compressed file of testdata, which makedatabases.sh made.
func unpack(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open("testdata/" + name)
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
	return data
}

// wantPackages returns the lines that rpm lists, as packageLine formats packages.
func wantPackages(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/packages.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		c := strings.Split(strings.TrimSpace(line), "\t")
		name, epoch, version, arch, source, license := c[0], c[1], c[2]+"-"+c[3], c[4], c[5], c[6]
		if name == "gpg-pubkey" {
			continue
		}
		full := version
		if epoch != "(none)" && epoch != "0" {
			full = epoch + ":" + version
		}
		// Only openssl-perl has another version than its source.
		sourceName, sourceVersion := strings.TrimSuffix(source, "-"+version+".src.rpm"), full
		if name == "openssl-perl" {
			sourceName, sourceVersion = "openssl", "3.0.7-2.el9_4"
		}
		out = append(out, strings.Join([]string{name, full, arch, sourceName, sourceVersion, license}, " "))
	}
	slices.Sort(out)
	return out
}

func packageLine(p catalog.Package) string {
	return strings.Join([]string{
		p.Name, p.Version, p.Arch, p.Source, p.SourceVersion, strings.Join(p.Licenses, ","),
	}, " ")
}

// databases are the fixtures by their names in a tree.
var databases = map[string]string{
	"sqlite": "var/lib/rpm/rpmdb.sqlite", "ndb": "usr/lib/sysimage/rpm/Packages.db", "bdb": "var/lib/rpm/Packages",
	"bdb-bigendian": "srv/chroot/var/lib/rpm/Packages",
}

func treeOf(t testing.TB, fixture string) fstest.MapFS {
	t.Helper()
	name := databases[fixture]
	root, _ := Packages{}.Root(name)
	return fstest.MapFS{
		name: {Data: unpack(t, fixture+".gz"), Mode: 0o644},
		strings.TrimPrefix(root+"/etc/os-release", "./"): {
			Data: []byte("ID=\"rhel\"\nVERSION_ID=\"9.4\"\n"), Mode: 0o644,
		},
	}
}

func scan(t testing.TB, tree fstest.MapFS, more ...catalog.Extractor) *catalog.Result {
	t.Helper()
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: append(more, Packages{})})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPackages: every form of the database has the packages that rpm lists.
func TestPackages(t *testing.T) {
	want := wantPackages(t)
	for fixture, name := range databases {
		r := scan(t, treeOf(t, fixture))
		var got []string
		for _, p := range r.Packages {
			if p.Kind != catalog.RPM || p.Distribution != "rhel:9.4" || strings.Join(p.Locations, " ") != "/"+name {
				t.Errorf("%s: %+v", fixture, p)
			}
			got = append(got, packageLine(p))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || len(r.Warnings) > 0 {
			t.Errorf("%s: want -, got +\n%s%v", fixture, diff, r.Warnings)
		}
	}
}

// TestFiles: the headers of every form have the files that rpm lists.
func TestFiles(t *testing.T) {
	want := strings.Split(strings.TrimSpace(string(unpack(t, "files.tsv.gz"))), "\n")
	for fixture := range databases {
		data := unpack(t, fixture+".gz")
		var got []string
		err := eachHeader(database{bytes.NewReader(data), int64(len(data)), nil}, func(h *header) {
			h.eachFile(func(dir, base []byte) {
				got = append(got, h.text(tagName)+"\t"+string(dir)+string(base))
			})
		})
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, want -, got +\n%.2000s", fixture, err, diff)
		}
	}
}

// TestOwners: packages of languages in files of RPM packages have an owner, others have none.
func TestOwners(t *testing.T) {
	for fixture := range databases {
		tree := treeOf(t, fixture)
		root, _ := Packages{}.Root(databases[fixture])
		at := func(name, text string) {
			tree[strings.TrimPrefix(root+"/"+name, "./")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
		const site = "usr/lib/python3.9/site-packages/"
		at(site+"requests-2.25.1.dist-info/METADATA", "Name: requests\nVersion: 2.25.1\n")
		at(site+"six-1.16.0.dist-info/METADATA", "Name: six\nVersion: 1.16.0\n")
		at("usr/src/kernels/5.14.0/scripts/node_modules/ws/package.json", `{"name":"ws","version":"8.0.0"}`)
		r := scan(t, tree, python.InstalledPackages{}, npm.InstalledPackages{})
		got := map[string]string{}
		for _, p := range r.Packages {
			if p.Kind != catalog.RPM {
				got[p.Name] = p.Owner + " " + p.Distribution
			}
		}
		want := map[string]string{
			"requests": "rpm/python3-requests@2.25.1-2.el9_4 rhel:9.4", "six": " ",
			"ws": "rpm/kernel-devel@5.14.0-2.el9_4 rhel:9.4",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", fixture, diff)
		}
	}
}

// TestLog: pages in the log of SQLite replace those of the database.
func TestLog(t *testing.T) {
	text, err := os.ReadFile("testdata/wal.count")
	if err != nil {
		t.Fatal(err)
	}
	var want int // with the public key, which is no package
	if _, err := fmt.Sscan(string(text), &want); err != nil {
		t.Fatal(err)
	}
	all := len(wantPackages(t)) + 1
	log := unpack(t, "wal.sqlite-wal.gz")
	damaged := bytes.Clone(log)
	damaged[len(damaged)-1]++
	for name, tc := range map[string]struct {
		log  []byte
		want int
	}{"whole": {log, want}, "damaged": {damaged, all}, "cut": {log[:len(log)-1], all}, "empty": {nil, all}} {
		data, count := unpack(t, "wal.sqlite.gz"), 0
		err := eachHeader(database{bytes.NewReader(data), int64(len(data)), func() []byte { return tc.log }},
			func(*header) { count++ })
		if err != nil || count != tc.want {
			t.Errorf("%s: %d packages, want %d: %v", name, count, tc.want, err)
		}
	}
	if want == all {
		t.Error("the log changes nothing")
	}
}

func TestSourceOf(t *testing.T) {
	for _, tc := range []struct{ file, version, epoch, name, sourceVersion string }{
		{"openssl-1.1.1k-12.el8_9.src.rpm", "1.1.1k-12.el8_9", "1:", "openssl", "1:1.1.1k-12.el8_9"},
		{"perl-5.26.3-422.el8.src.rpm", "1.28-422.el8", "4:", "perl", "5.26.3-422.el8"},
		{"gcc-toolset-12-12.0-6.el9.src.rpm", "12.0-6.el9", "", "gcc-toolset-12", "12.0-6.el9"},
		{"java-1-2.nosrc.rpm", "1-2", "", "java", "1-2"},
		{"(none)", "1-2", "", "", ""},
		{"", "1-2", "", "", ""},
		{"a-1.src.rpm", "1-2", "", "", ""},
		{"-1-2.src.rpm", "1-2", "", "", ""},
	} {
		if name, version := sourceOf(tc.file, tc.version, tc.epoch); name != tc.name || version != tc.sourceVersion {
			t.Errorf("%s: %q %q", tc.file, name, version)
		}
	}
}

// makeHeader makes a header of texts.
func makeHeader(texts map[uint32]string, files ...string) []byte {
	var index, data []byte
	add := func(tag, kind uint32, count int, value []byte) {
		for len(data)%4 != 0 {
			data = append(data, 0)
		}
		for _, n := range []uint32{tag, kind, uint32(len(data)), uint32(count)} {
			index = binary.BigEndian.AppendUint32(index, n)
		}
		data = append(data, value...)
	}
	for tag, text := range texts {
		add(tag, typeString, 1, append([]byte(text), 0))
	}
	if len(files) > 0 {
		add(tagDirNames, typeStringArray, 1, []byte("/a/\x00"))
		add(tagDirIndexes, typeInt32, len(files), make([]byte, 4*len(files)))
		add(tagBaseNames, typeStringArray, len(files), []byte(strings.Join(files, "\x00")+"\x00"))
		add(tagFileStates, typeChar, len(files), append([]byte{0}, bytes.Repeat([]byte{1}, len(files)-1)...))
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(index)/indexEntrySize))
	out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
	return append(append(out, index...), data...)
}

// TestHeaders: files that another package replaced do not count, and wrong sizes are found.
func TestHeaders(t *testing.T) {
	raw := makeHeader(map[uint32]string{tagName: "a", tagVersion: "1", tagRelease: "2"}, "kept", "replaced")
	h, err := parseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	h.eachFile(func(dir, base []byte) { got = append(got, string(dir)+string(base)) })
	p, ok := h.toPackage()
	if !slices.Equal(got, []string{"/a/kept"}) || !ok || packageLine(p) != "a 1-2  a 1-2 " {
		t.Errorf("%q %q", got, packageLine(p))
	}
	for n := range raw {
		if _, err := parseHeader(raw[:n]); err == nil {
			t.Errorf("%d of %d bytes are a header", n, len(raw))
		}
	}
	for tag, texts := range map[string]map[uint32]string{
		"no release": {tagName: "a", tagVersion: "1"}, "no name": {tagVersion: "1", tagRelease: "2"},
		"a key": {tagName: keyName, tagVersion: "1", tagRelease: "2"},
	} {
		if h, err := parseHeader(makeHeader(texts)); err != nil {
			t.Error(err)
		} else if p, ok := h.toPackage(); ok {
			t.Errorf("%s: %+v", tag, p)
		}
	}
}

// TestDamage: a database that is cut off is never mistaken for a whole one.
func TestDamage(t *testing.T) {
	for fixture := range databases {
		data := unpack(t, fixture+".gz")
		for _, n := range []int{1, 31, 4096, len(data) / 2} {
			err := eachHeader(database{bytes.NewReader(data[:n]), int64(n), nil}, func(*header) {})
			if err == nil {
				t.Errorf("%s: %d of %d bytes are whole", fixture, n, len(data))
			}
		}
	}
	if err := eachHeader(database{bytes.NewReader(nil), 0, nil}, nil); err != nil {
		t.Error(err)
	}
}

// FuzzDatabase: a database of any bytes takes bounded time, and its headers are not larger than it.
func FuzzDatabase(f *testing.F) {
	for fixture := range databases {
		data := unpack(f, fixture+".gz")
		f.Add(data[:min(len(data), 64<<10)], []byte{})
	}
	f.Add(unpack(f, "wal.sqlite.gz")[:32<<10], unpack(f, "wal.sqlite-wal.gz"))
	f.Fuzz(func(t *testing.T, data, log []byte) {
		read := 0
		db := database{bytes.NewReader(data), int64(len(data)), func() []byte { return log }}
		_ = eachHeader(db, func(h *header) {
			read += len(h.data)
			_, _ = h.toPackage()
			h.eachFile(func(_, _ []byte) {})
		})
		if read > len(data)+len(log) {
			t.Errorf("headers of %d bytes in a database of %d and a log of %d", read, len(data), len(log))
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(makeHeader(map[uint32]string{tagName: "a", tagVersion: "1", tagRelease: "2"}, "b", "c"))
	f.Add(makeHeader(map[uint32]string{tagSourceRPM: "a-1-2.src.rpm", tagArch: "noarch"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := parseHeader(raw)
		if err != nil {
			return
		}
		if p, ok := h.toPackage(); ok && (p.Name == "" || p.Version == "" || p.Source == "") {
			t.Errorf("%+v", p)
		}
		bytesOfFiles := 0
		h.eachFile(func(_, base []byte) { bytesOfFiles += len(base) + 1 })
		if bytesOfFiles > len(raw) {
			t.Errorf("%d bytes of names in %d", bytesOfFiles, len(raw))
		}
	})
}
