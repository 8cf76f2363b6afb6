package scan

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// places are the paths of files that extractors want, each with a seed.
func places(t testing.TB) []apfstest.File {
	t.Helper()
	lock := `{"packages":{"node_modules/a":{"version":"1.0.0","license":"MIT"}}}`
	file := func(name, text string) apfstest.File { return apfstest.File{Path: name, Data: []byte(text)} }
	return []apfstest.File{
		file("package-lock.json", lock),
		file("Gemfile.lock", "GEM\n  specs:\n    rack (3.0.0)\n"),
		file("Cargo.lock", "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\n"),
		file("go.mod", "module m\n\nrequire example.test/a v1.0.0\n"),
		file("Podfile.lock", "PODS:\n  - A (1.0):\n    - B\n"),
		file("yarn.lock", "a@^1.0.0:\n  version \"1.0.0\"\n"),
		file("pnpm-lock.yaml", "lockfileVersion: '9.0'\npackages:\n  a@1.0.0:\n    resolution: {}\n"),
		file("bun.lock", `{"packages":{"a":["a@1.0.0"]}}`),
		file("poetry.lock", "[[package]]\nname = \"a\"\nversion = \"1.0\"\n"),
		file("uv.lock", "[[package]]\nname = \"a\"\nversion = \"1.0\"\nsource = { registry = \"x\" }\n"),
		file("pdm.lock", "[[package]]\nname = \"a\"\nversion = \"1.0\"\n"),
		file("Pipfile.lock", `{"default":{"a":{"version":"==1.0"}}}`),
		file("pylock.toml", "lock-version = \"1.0\"\n[[packages]]\nname = \"a\"\nversion = \"1.0\"\n"),
		file("requirements.txt", "a==1.0\n-r more-requirements.txt\n"),
		file("gradle.lockfile", "g:a:1.0=compileClasspath\n"),
		file("pom.xml",
			"<project><groupId>g</groupId><artifactId>a</artifactId><version>1</version>"+
				"<properties><v>1</v></properties><dependencies><dependency><groupId>g</groupId>"+
				"<artifactId>b</artifactId><version>${v}</version></dependency></dependencies></project>"),
		file("a.jar", zipped(t, "META-INF/maven/g/a/pom.properties", "groupId=g\nartifactId=a\nversion=1\n")),
		file("a.whl", zipped(t, "a-1.dist-info/METADATA", "Name: a\nVersion: 1\n")),
		file("app.asar", "\x04\x00\x00\x00\x20\x00\x00\x00\x1c\x00\x00\x00\x1a\x00\x00\x00"+
			`{"files":{"a":{"size":1}}}`),
		file("program", "\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 600)),
		file("library.dylib", "\xcf\xfa\xed\xfe"+strings.Repeat("\x01", 600)),
		file("w.exe", "MZ"+strings.Repeat("\x00", 600)),
		file("A.app/Contents/Info.plist",
			"<plist><dict><key>CFBundleName</key><string>A</string>"+
				"<key>CFBundleVersion</key><string>1</string></dict></plist>"),
		file("node_modules/a/package.json", `{"name":"a","version":"1.0.0","license":{"type":"MIT"}}`),
		file("site-packages/a-1.dist-info/METADATA", "Name: a\nVersion: 1\nLicense: MIT\n"),
		file("specifications/a-1.gemspec",
			"Gem::Specification.new do |s|\n  s.name = \"a\".freeze\n  s.version = \"1\"\nend\n"),
		file("Cellar/a/1/INSTALL_RECEIPT.json", "{}"),
		file("Cellar/a/1/.brew/a.rb", "class A\n  license \"MIT\"\nend\n"),
		file("Caskroom/a/.metadata/1/2/Casks/a.json", "{}"),
	}
}

func zipped(t testing.TB, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// image is a disk in memory.
type image struct{ b []byte }

func (m *image) WriteAt(p []byte, off int64) (int, error) {
	if end := int(off) + len(p); end > len(m.b) {
		m.b = append(m.b, make([]byte, end-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// mac returns a container with files.
func mac(t testing.TB, files ...apfstest.File) []byte {
	t.Helper()
	m := &image{}
	if _, err := apfstest.Write(m,
		apfstest.Container{Volumes: []apfstest.Volume{{Name: "Data", Role: apfstest.Data, Files: files}}}); err != nil {
		t.Fatal(err)
	}
	return m.b
}

// carried reads a small ext4 file system of the package that reads them.
func carried(t testing.TB, name string) []byte {
	t.Helper()
	return treetest.Unpacked(t, "fs/ext4/testdata/"+name+".img.zst")
}

// entryOf finds the entry of a directory by its name.
func entryOf(t testing.TB, b []byte, name string) []byte {
	t.Helper()
	for at := 0; ; at++ {
		next := bytes.Index(b[at:], []byte(name))
		if next < 0 {
			t.Fatalf("there is no %q", name)
		}
		if at += next; at >= 8 && int(b[at-2]) == len(name) {
			return b[at-8:]
		}
	}
}

// linux puts a file into a small ext4 file system, in place of another. Of its content the first 12
// blocks are written, of its name 23 bytes.
func linux(t testing.TB, base []byte, name string, data []byte) []byte {
	t.Helper()
	const old, block, direct = "file-with-a-long-name-1", 1024, 12
	b, le := bytes.Clone(base), binary.LittleEndian
	large := le.Uint32(entryOf(t, b, "large"))
	table, size := int(le.Uint32(b[2*block+8:]))*block, int(le.Uint16(b[block+88:]))
	inode := b[table+int(large-1)*size:]
	data = data[:min(len(data), direct*block)]
	le.PutUint32(inode[4:], uint32(len(data)))
	le.PutUint16(inode, 0o100755)
	for k := range direct {
		at := int(le.Uint32(inode[40+4*k:])) * block
		copy(b[at:at+block], data[min(len(data), k*block):])
	}
	e := entryOf(t, b, old)
	le.PutUint32(e, large)
	e[6] = byte(copy(e[8:8+len(old)], name))
	return b
}

// most limits the bytes that one scan of a small disk may allocate in all.
const most = 128 << 20

// survey catalogs a disk as imagescan does. It fails when a reader panics, when it does not end or
// takes much memory.
func survey(t *testing.T, b []byte) *Inventory {
	t.Helper()
	dog := time.AfterFunc(time.Minute, func() { panic("it does not end") })
	defer dog.Stop()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	inv := &Inventory{}
	volumes, err := inv.openVolumes(t.Context(),
		namedDisk{Disk: disk.Disk{ReaderAt: bytes.NewReader(b), Size: int64(len(b))}}, nil, Options{})
	if err == nil {
		err = inv.catalogVolumes(t.Context(), volumes, Options{})
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("it took %d bytes", took)
	}
	if err != nil && err.Error() == "" {
		t.Error("an error says nothing")
	}
	for _, w := range inv.Warnings {
		if strings.Contains(w.Message, "internal error of the reader") || w.Message == "" ||
			!strings.HasPrefix(w.Path, "/") {
			t.Errorf("%s: %s", w.Path, w.Message)
		}
	}
	return inv
}

// FuzzFile puts a file into a container of APFS and an ext4 file system.
func FuzzFile(f *testing.F) {
	base := carried(f, "mapped")
	files := places(f)
	for i, file := range files {
		f.Add(byte(i), file.Data)
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		name := files[int(which)%len(files)].Path
		survey(t, mac(t, apfstest.File{Path: name, Data: data, Mode: 0o100755}))
		if path.Base(name) == name && len(data) > 0 {
			survey(t, linux(t, base, name, data))
		}
	})
}

// The files from which the seeds of the fuzz tests are made are found.
func TestPlaces(t *testing.T) {
	base := carried(t, "mapped")
	for _, file := range places(t) {
		silent := map[string]bool{
			"program": true, "library.dylib": true, "w.exe": true, "app.asar": true,
			"Cellar/a/1/.brew/a.rb": true, "Caskroom/a/.metadata/1/2/Casks/a.json": true,
		}[file.Path]
		file.Mode = 0o100755
		if inv := survey(t, mac(t, file)); len(inv.Packages) == 0 != silent || len(inv.Warnings) > 0 {
			t.Errorf("%s: %v, %v", file.Path, inv.Packages, inv.Warnings)
		}
		if path.Base(file.Path) != file.Path {
			continue
		}
		inv := survey(t, linux(t, base, file.Path, file.Data))
		if len(inv.Packages) == 0 != silent || len(inv.Warnings) > 0 {
			t.Errorf("%s on ext4: %v, %v", file.Path, inv.Packages, inv.Warnings)
		}
	}
}

// disks are small ones with packages on them.
func disks(t testing.TB) [][]byte {
	t.Helper()
	base := carried(t, "mapped")
	files := places(t)
	for i := range files {
		switch i % 4 {
		case 1:
			files[i].Scattered = true
		case 2:
			files[i].Compression = 3
		case 3:
			files[i].Compression = 12
		}
	}
	out := [][]byte{
		mac(t, files...), linux(t, base, files[0].Path, files[0].Data), linux(t, base, "a.jar", files[16].Data),
		carried(t, "extents"), carried(t, "checked"),
	}
	m := &image{b: make([]byte, 1<<20)}
	copy(m.b[64<<10:], out[1])
	if err := disktest.WriteGPT(m, int64(len(m.b)), 512,
		disktest.Part{Type: disktest.Linux, Start: 64 << 10, Length: int64(len(out[1]))}); err != nil {
		t.Fatal(err)
	}
	return append(out, m.b)
}

// reseal recomputes the checksum of every block of a container that has a header, so that changes
// pass verification.
func reseal(b []byte) {
	for at := 0; at+apfstest.BlockSize <= len(b); at += apfstest.BlockSize {
		if block := b[at : at+apfstest.BlockSize]; binary.LittleEndian.Uint64(block[16:]) != 0 &&
			binary.LittleEndian.Uint32(block[24:]) != 0 {
			apfstest.Seal(block)
		}
	}
}

// FuzzDisk changes some bytes of a disk and catalogs it. A change is three bytes of offset and two
// of content.
func FuzzDisk(f *testing.F) {
	all := disks(f)
	for k := range all {
		f.Add(byte(k), []byte{})
		f.Add(byte(k), []byte{0, 4, 56, 0, 0, 0, 4, 24, 6, 0})
		f.Add(byte(k), []byte{0, 16, 36, 255, 0, 1, 0, 40, 7, 1})
	}
	f.Fuzz(func(t *testing.T, which byte, changes []byte) {
		k := int(which) % len(all)
		b := bytes.Clone(all[k])
		for ; len(changes) >= 5; changes = changes[5:] {
			at := (int(changes[0])<<16 | int(changes[1])<<8 | int(changes[2])) % (len(b) - 1)
			copy(b[at:], changes[3:5])
		}
		if k == 0 {
			reseal(b)
		}
		survey(t, b)
	})
}
