package rpm

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
		err := eachHeader(t.Context(), database{bytes.NewReader(data), int64(len(data)), nil}, func(h *header) {
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
		db := database{bytes.NewReader(data), int64(len(data)), func() ([]byte, error) { return tc.log, nil }}
		err := eachHeader(t.Context(), db, func(*header) { count++ })
		if err != nil || count != tc.want {
			t.Errorf("%s: %d packages, want %d: %v", name, count, tc.want, err)
		}
	}
	if want == all {
		t.Error("the log changes nothing")
	}
}

// TestUnreadableLog: without its log a database has packages of an older transaction, and the scan is partial.
func TestUnreadableLog(t *testing.T) {
	name := databases["sqlite"] + "-wal"
	for what, f := range map[string]*fstest.MapFile{
		"too large": {Data: make([]byte, maxLogBytes+1), Mode: 0o644}, "a directory": {Mode: fs.ModeDir | 0o755},
	} {
		tree := treeOf(t, "sqlite")
		tree[name] = f
		r := scan(t, tree)
		if len(r.Packages) != len(wantPackages(t)) || r.Unreadable != 1 || len(r.Warnings) != 1 {
			t.Errorf("%s: %d packages, %d unread: %v", what, len(r.Packages), r.Unreadable, r.Warnings)
		}
	}
}

// makeLoops makes a database of interior pages each of whose many cells leads to the next page, the last to a leaf
// with one package; and a log whose transaction says that the database has 2^32-1 pages.
func makeLoops(levels int) (data, log []byte) {
	const size = 512
	row := func(payload []byte) []byte { return append([]byte{byte(len(payload)), 1}, payload...) }
	page := func(head, kind, count int, right uint32, cell []byte) []byte {
		p := make([]byte, size)
		at := size - len(cell)
		copy(p[at:], cell)
		p[head] = byte(kind)
		binary.BigEndian.PutUint16(p[head+3:], uint16(count))
		first := head + 8
		if kind == sqliteInterior {
			binary.BigEndian.PutUint32(p[first:], right)
			first += 4
		}
		for i := range count {
			binary.BigEndian.PutUint16(p[first+2*i:], uint16(at))
		}
		return p
	}
	schema := append([]byte{5, 23, 29, 0, 1}, "tablePackages\x02"...)
	data = page(sqliteHeaderSize, sqliteLeaf, 1, 0, row(schema))
	copy(data, sqliteMagic)
	binary.BigEndian.PutUint16(data[16:], size)
	for n := range levels {
		next := uint32(n + 3)
		data = append(data, page(0, sqliteInterior, 200, next, binary.BigEndian.AppendUint32(nil, next))...)
	}
	blob := makeHeader(nil)
	data = append(data, page(0, sqliteLeaf, 1, 0, row(append([]byte{2, byte(12 + 2*len(blob))}, blob...)))...)

	log = binary.BigEndian.AppendUint32(nil, logMagic)
	log = append(log, make([]byte, logHeaderSize-len(log))...)
	binary.BigEndian.PutUint32(log[8:], size)
	sum := logSum{order: binary.LittleEndian}
	sum.add(log[:24])
	binary.BigEndian.PutUint32(log[24:], sum.s0)
	binary.BigEndian.PutUint32(log[28:], sum.s1)
	frame := append(make([]byte, logFrameSize), data[:size]...)
	binary.BigEndian.PutUint32(frame, 1)
	binary.BigEndian.PutUint32(frame[4:], 1<<32-1)
	sum.add(frame[:8])
	sum.add(frame[logFrameSize:])
	binary.BigEndian.PutUint32(frame[16:], sum.s0)
	binary.BigEndian.PutUint32(frame[20:], sum.s1)
	return data, append(log, frame...)
}

// TestLoops: each page is read once, whatever number of pages the log says.
func TestLoops(t *testing.T) {
	data, log := makeLoops(17)
	for name, log := range map[string][]byte{"without a log": nil, "with a log": log} {
		count := 0
		db := database{bytes.NewReader(data), int64(len(data)), func() ([]byte, error) { return log, nil }}
		err := eachHeader(t.Context(), db, func(*header) { count++ })
		if count != 1 || !errors.Is(err, errDamaged) {
			t.Errorf("%s: %d packages: %v", name, count, err)
		}
	}
	if _, err := newPageSet(maxPages + 1); !errors.Is(err, catalog.ErrTooLarge) {
		t.Error(err)
	}
}

// TestEnd: reading ends with its context, also when the pages are in memory.
func TestEnd(t *testing.T) {
	test := func(name string, data, log []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		db := database{bytes.NewReader(data), int64(len(data)), func() ([]byte, error) { return log, nil }}
		if err := eachHeader(ctx, db, func(*header) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for fixture := range databases {
		test(fixture, unpack(t, fixture+".gz"), nil)
	}
	_, log := makeLoops(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &sqliteReader{blobReader: &blobReader{pageReader: pageReader{ctx: ctx}}, log: parseLog(log, 512), pageCount: 1}
	s.seen, _ = newPageSet(s.log.frames())
	if _, err := s.readPage(1); !errors.Is(err, context.Canceled) {
		t.Errorf("a page of the log: %v", err)
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
		if name, version := SplitSource(tc.file, tc.version, tc.epoch); name != tc.name || version != tc.sourceVersion {
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
			err := eachHeader(t.Context(), database{bytes.NewReader(data[:n]), int64(n), nil}, func(*header) {})
			if err == nil {
				t.Errorf("%s: %d of %d bytes are whole", fixture, n, len(data))
			}
			r := scan(t, fstest.MapFS{databases[fixture]: {Data: data[:n], Mode: 0o644}})
			if len(r.Warnings) != 1 || r.Warnings[0].InvalidContent || r.Unreadable != 1 {
				t.Errorf("%s: %d of %d bytes: %v, %d not readable", fixture, n, len(data), r.Warnings, r.Unreadable)
			}
		}
	}
	if err := eachHeader(t.Context(), database{bytes.NewReader(nil), 0, nil}, nil); err != nil {
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
		db := database{bytes.NewReader(data), int64(len(data)), func() ([]byte, error) { return log, nil }}
		_ = eachHeader(t.Context(), db, func(h *header) {
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
