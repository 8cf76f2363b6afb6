package apfs_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
)

// unpack copies r into a file with holes.
func unpack(t testing.TB, r io.Reader) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b, size := make([]byte, 1<<20), int64(0)
	for {
		n, err := io.ReadFull(r, b)
		if bytes.Count(b[:n], []byte{0}) < n {
			if _, err := f.WriteAt(b[:n], size); err != nil {
				t.Fatal(err)
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// linuxImage unpacks the disk that a Linux kernel wrote: two partitions of 512 MiB, each
// a container with one volume.
func linuxImage(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open("testdata/linux.img.zst")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return unpack(t, z)
}

func openVolume(t testing.TB, r io.ReaderAt, size int64) (*apfs.Container, *apfs.FS) {
	t.Helper()
	c, err := apfs.Open(r, size)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notes()) > 0 {
		t.Errorf("notes of a whole container: %q", c.Notes())
	}
	if len(c.Volumes()) != 1 {
		t.Fatalf("%d volumes", len(c.Volumes()))
	}
	f, err := c.Volumes()[0].FS()
	if err != nil {
		t.Fatal(err)
	}
	return c, f
}

func sum(t testing.TB, fsys fs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestLinux reads every file of volumes that a Linux kernel wrote, whose sums it took.
func TestLinux(t *testing.T) {
	img := linuxImage(t)
	want := map[string]string{}
	list, err := os.Open("testdata/linux.sha256")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	for s := bufio.NewScanner(list); s.Scan(); {
		hash, name, _ := strings.Cut(s.Text(), "  ")
		want[name] = hash
	}
	got := 0
	for i, name := range []string{"Macintosh HD", "Data Volume"} {
		c, fsys := openVolume(t, io.NewSectionReader(img, int64(1+512*i)<<20, 512<<20), 512<<20)
		if have := c.Volumes()[0].Name(); have != name {
			t.Errorf("volume %q, want %q", have, name)
		}
		err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !d.Type().IsRegular() {
				return nil
			}
			got++
			key := fmt.Sprintf("vol%d/%s", i+1, p)
			if h := sum(t, fsys, p); h != want[key] {
				t.Errorf("%s: %s, want %q", key, h, want[key])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		// Without the large files, which it reads byte by byte.
		part, err := fs.Sub(fsys, "Users")
		if err != nil {
			t.Fatal(err)
		}
		if err := fstest.TestFS(part, "anka/project/f1.txt"); err != nil {
			t.Error(err)
		}
	}
	if got != len(want) || got != 313 {
		t.Errorf("%d files, want %d", got, len(want))
	}
}

// record is a file in the manifest of the image from a Mac.
type record struct {
	Compressed   bool
	Mode         string
	SHA256       string
	Size         int64
	Type, Target string
	Xattrs       map[string]struct {
		SHA256 string
		Size   int
	}
}

// TestMac reads a volume that macOS wrote, with a compressed file and attributes.
func TestMac(t *testing.T) {
	shared := os.Getenv("SHARED")
	if shared == "" {
		t.Skip("the image that macOS wrote is in SHARED, which is not set")
	}
	raw, err := os.Open(filepath.Join(shared, "data/disk/apfs_mac_written.img.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	z, err := gzip.NewReader(raw)
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Files      map[string]record
		VolumeName string
	}
	text, err := os.ReadFile(filepath.Join(shared, "data/disk/apfs_mac_written.manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	img := unpack(t, z)
	off, size := macPartition(t, img)
	c, fsys := openVolume(t, io.NewSectionReader(img, off, size), size)
	if name := c.Volumes()[0].Name(); name != manifest.VolumeName {
		t.Errorf("volume %q, want %q", name, manifest.VolumeName)
	}
	for name, want := range manifest.Files {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) { compareRecord(t, fsys, name, want) })
	}
	part, err := fs.Sub(fsys, "ünïcødé")
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(part, "файл.txt"); err != nil {
		t.Error(err)
	}
}

// macPartition finds the container on the disk, which may have a partition table.
func macPartition(t *testing.T, img *os.File) (off, size int64) {
	t.Helper()
	st, err := img.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	for off := int64(0); off < st.Size(); off += 4096 {
		if _, err := img.ReadAt(b, off); err == nil && string(b[32:36]) == "NXSB" {
			blocks := int64(b[40]) | int64(b[41])<<8 | int64(b[42])<<16
			return off, blocks * 4096
		}
	}
	t.Fatal("no container")
	return 0, 0
}

func compareRecord(t *testing.T, fsys *apfs.FS, name string, want record) {
	if want.Type == "symlink" {
		got, err := fsys.ReadLink(name)
		if err != nil || got != want.Target {
			t.Errorf("link to %q (%v), want %q", got, err, want.Target)
		}
	} else {
		st, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() != want.Size || fmt.Sprintf("0o%o", st.Mode().Perm()) != want.Mode || !st.Mode().IsRegular() ||
			st.Name() != path.Base(name) {
			t.Errorf("%d bytes, %v, want %d, %s", st.Size(), st.Mode(), want.Size, want.Mode)
		}
		if sys := st.Sys().(*apfs.Stat); sys.Compressed() != want.Compressed {
			t.Errorf("compressed %v, want %v", sys.Compressed(), want.Compressed)
		}
		if h := sum(t, fsys, name); h != want.SHA256 {
			t.Errorf("sum %s, want %s", h, want.SHA256)
		}
	}
	compareAttributes(t, fsys, name, want)
}

func compareAttributes(t *testing.T, fsys *apfs.FS, name string, want record) {
	names, err := fsys.Xattrs(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range names {
		if _, ok := want.Xattrs[key]; !ok && key != "com.apple.fs.symlink" && key != "com.apple.decmpfs" &&
			(key != "com.apple.ResourceFork" || !want.Compressed) {
			t.Errorf("attribute %s is not in the manifest", key)
		}
	}
	for key, x := range want.Xattrs {
		b, err := fsys.Xattr(name, key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if h := fmt.Sprintf("%x", sha256.Sum256(b)); h != x.SHA256 || len(b) != x.Size {
			t.Errorf("attribute %s: %d bytes, %s", key, len(b), h)
		}
	}
}
