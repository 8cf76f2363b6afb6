// Package input reads the files of feeds as they are on a disk: single files, directories, zip and
// tar archives, and any of these compressed with gzip or zstd.
//
// It does not interpret the files, and unpacks nothing onto the disk.
//
// Invariant: files are visited in one order that depends on their names and the archives alone, and
// no path leads out of the given one.
package input

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// File is one file. Its reader is valid until the visit returns.
type File struct {
	Name string    // path below the given one; slashes
	Time time.Time // in its archive; the time of a file on the disk is unrelated to its content
	Size int64     // -1 when it is unknown
	*bufio.Reader
}

// Visit is called for each file.
type Visit func(File) error

const (
	deepest = 3 // nested archives
	window  = 64 << 20

	bufferSize = 64 << 10
)

// Walk visits every file of a path.
func Walk(ctx context.Context, path string, visit Visit) error {
	w := &walker{ctx: ctx, visit: visit, buf: newBuffer()}
	err := w.path(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

type walker struct {
	ctx   context.Context // it lives as long as one call of Walk
	visit Visit
	buf   *bufio.Reader // of the file that is being visited
}

func (w *walker) path(root string) error {
	st, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return w.onDisk(root, filepath.Base(root))
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && hidden(d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular() || hidden(d.Name()):
			return nil
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return w.onDisk(p, filepath.ToSlash(name))
	})
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// onDisk opens a file of the disk; a zip archive is read in place.
func (w *walker) onDisk(p, name string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if strings.HasSuffix(name, ".zip") {
		return w.zip(f, st.Size(), name, 0)
	}
	return w.file(f, File{Name: name, Size: st.Size()}, 0)
}

// file passes a file to the visit, or the files packed in it.
func (w *walker) file(r io.Reader, f File, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth > deepest {
		return errors.New("archives are packed into each other too deep")
	}
	switch ext := path.Ext(f.Name); ext {
	case ".gz", ".tgz":
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		return w.file(z, unpacked(f, ext), depth+1)
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(window), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		defer z.Close()
		return w.file(z, unpacked(f, ext), depth+1)
	case ".tar":
		return w.tar(r, f.Name, depth)
	case ".zip":
		return fmt.Errorf("%s: a zip archive inside another archive is not read", f.Name)
	}
	w.buf.Reset(r)
	f.Reader = w.buf
	return w.visit(f)
}

func unpacked(f File, ext string) File {
	f.Name = strings.TrimSuffix(f.Name, ext)
	if ext == ".tgz" {
		f.Name += ".tar"
	}
	f.Size = -1
	return f
}

func (w *walker) tar(r io.Reader, name string, depth int) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag != tar.TypeReg || hidden(path.Base(h.Name)) {
			continue
		}
		f := File{Name: name + "/" + path.Clean(h.Name), Time: h.ModTime, Size: h.Size}
		if err := w.file(t, f, depth+1); err != nil {
			return err
		}
	}
}

func (w *walker) zip(r io.ReaderAt, size int64, name string, depth int) error {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, e := range z.File {
		if !e.Mode().IsRegular() || hidden(path.Base(e.Name)) {
			continue
		}
		if err := w.zipped(e, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) zipped(e *zip.File, name string, depth int) error {
	r, err := e.Open()
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, e.Name, err)
	}
	defer r.Close()
	f := File{Name: name + "/" + path.Clean(e.Name), Time: e.Modified, Size: int64(e.UncompressedSize64)}
	return w.file(r, f, depth+1)
}

func newBuffer() *bufio.Reader { return bufio.NewReaderSize(nil, bufferSize) }
