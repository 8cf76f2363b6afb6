package apfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
)

// everything reads all files, links and attributes of all volumes and snapshots, and
// counts entries and errors.
func everything(c *apfs.Container) (entries int, errs []error) {
	for _, v := range c.Volumes() {
		list, err := v.Snapshots()
		errs = append(errs, err)
		trees := []func() (*apfs.FS, error){v.FS}
		for _, s := range list {
			trees = append(trees, func() (*apfs.FS, error) { return v.SnapshotFS(s.Name) })
		}
		for _, open := range trees {
			f, err := open()
			if errs = append(errs, err); err != nil {
				continue
			}
			_ = fs.WalkDir(f, ".", func(p string, e fs.DirEntry, err error) error {
				entries++
				errs = append(errs, err)
				if err == nil {
					errs = append(errs, leadsTo(f, p, e)...)
				}
				return nil
			})
		}
	}
	return entries, errs
}

// leadsTo reads the file of one name.
func leadsTo(f *apfs.FS, p string, e fs.DirEntry) (errs []error) {
	names, err := f.Xattrs(p)
	errs = append(errs, err)
	for _, n := range names {
		_, err := f.Xattr(p, n)
		errs = append(errs, err)
	}
	if e.Type() == fs.ModeSymlink {
		_, err := f.ReadLink(p)
		errs = append(errs, err)
	}
	if file, err := f.Open(p); err != nil {
		errs = append(errs, err)
	} else if !e.IsDir() {
		_, err := io.CopyN(io.Discard, file, 1<<20)
		if !errors.Is(err, io.EOF) {
			errs = append(errs, err)
		}
		_, err = file.(io.ReaderAt).ReadAt(make([]byte, 10), 1<<60)
		if !errors.Is(err, io.EOF) {
			errs = append(errs, err)
		}
	}
	return errs
}

// TestHostile creates structures that refer to one location each. Reading ends, takes little memory
// and reports the damage.
func TestHostile(t *testing.T) {
	le := binary.LittleEndian
	files := []apfstest.File{
		{Path: "a", Data: text(9000)},
		{Path: "l", Target: "a"},
		{Path: "z", Data: text(70_000), Compression: 4},
		{Path: "i", Data: text(300), Compression: 3},
		{Path: "x", Xattrs: map[string][]byte{"big": noise(1, 5000)}},
	}
	// replace changes all occurrences of some bytes.
	replace := func(b, old, fresh []byte) (n int) {
		for at := 0; ; at += len(old) {
			next := bytes.Index(b[at:], old)
			if next < 0 {
				return n
			}
			at += next
			copy(b[at:], fresh)
			n++
		}
	}
	u64 := func(v uint64) []byte { return le.AppendUint64(nil, v) }
	for name, lie := range map[string]func(m *image, l apfstest.Layout) bool{
		"node of 65535 keys": func(m *image, l apfstest.Layout) bool {
			b := m.block(l.Catalogs[0][0])
			le.PutUint32(b[36:], 65535)
			return true
		},
		"node of 2^32-1 keys": func(m *image, l apfstest.Layout) bool {
			le.PutUint32(m.block(l.Catalogs[0][0])[36:], 1<<32-1)
			return true
		},
		"node of level 65535": func(m *image, l apfstest.Layout) bool {
			le.PutUint16(m.block(l.Catalogs[0][0])[34:], 65535)
			return true
		},
		"table of keys behind the node": func(m *image, l apfstest.Layout) bool {
			le.PutUint16(m.block(l.Catalogs[0][0])[40:], 65535)
			return true
		},
		"object map that is its own tree": func(m *image, l apfstest.Layout) bool {
			for _, o := range l.OMaps {
				le.PutUint64(m.block(o)[48:], o)
			}
			return true
		},
		"object map that names itself": func(m *image, l apfstest.Layout) bool {
			for _, o := range l.OMaps {
				tree := m.block(le.Uint64(m.block(o)[48:]))
				value := tree[apfstest.BlockSize-40-16:]
				le.PutUint64(value[8:], o)
			}
			return true
		},
		"attribute of 2^60 bytes": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(5000), u64(1<<60)) > 0
		},
		"attribute below zero": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(5000), u64(1<<63)) > 0
		},
		"file of 2^60 bytes": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(9000), u64(1<<60)) > 0
		},
		"compressed file of 2^60 bytes": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(70_000), u64(1<<60)) > 0
		},
		"compressed file of 32 GiB": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(70_000), u64(32<<30)) > 0
		},
		"compressed file that is shorter": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(70_000), u64(1)) > 0
		},
		"inline file of 4 MiB": func(m *image, l apfstest.Layout) bool {
			return replace(m.block(l.Catalogs[0][0]), u64(300), u64(4<<20)) > 0
		},
		"blocks of 2^31 bytes": func(m *image, l apfstest.Layout) bool {
			for _, b := range append(l.Checkpoints[:], 0) {
				le.PutUint32(m.block(b)[36:], 1<<31)
			}
			return true
		},
		"container of 2^60 blocks": func(m *image, l apfstest.Layout) bool {
			for _, b := range append(l.Checkpoints[:], 0) {
				le.PutUint64(m.block(b)[40:], 1<<60)
			}
			return true
		},
		"ring of 2^31 checkpoints": func(m *image, l apfstest.Layout) bool {
			for _, b := range append(l.Checkpoints[:], 0) {
				le.PutUint32(m.block(b)[104:], 1<<31-1)
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, l := write(t,
				apfstest.Container{Volumes: []apfstest.Volume{
					{Files: files, Snapshots: []apfstest.Snapshot{{Name: "s", Files: files[:1]}}},
				}})
			if !lie(m, l) {
				t.Fatal("there is nothing to lie about")
			}
			reseal(m.b)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c, err := m.open()
			entries, errs := 0, []error{err}
			if err == nil {
				entries, errs = everything(c)
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d bytes of memory", grown)
			}
			told := false
			for _, err := range errs {
				told = told || err != nil && fmt.Sprint(err) != ""
			}
			if c != nil {
				told = told || len(c.Notes()) > 0 || len(c.UnreadableParts()) > 0
			}
			harmless := map[string]bool{
				"compressed file that is shorter": true, "file of 2^60 bytes": true,
				"ring of 2^31 checkpoints": true,
			}[name]
			if told == harmless && name != "compressed file that is shorter" || entries > 100 {
				t.Errorf("%d entries, %v", entries, errs)
			}
		})
	}
}
