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
	"math"
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
	maxNesting     = 3 // nested archives
	maxWindowBytes = 64 << 20

	// A file may unpack to maxRatio times its size and unpackedSlack more bytes. Feeds have ratios below 30.
	maxRatio      = 250
	unpackedSlack = 256 << 20

	bufferSize = 64 << 10
)

// Walk visits every file of a path.
func Walk(ctx context.Context, path string, visit Visit) error {
	w := &walker{ctx: ctx, visit: visit, buf: newBuffer()}
	err := w.walkPath(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

type walker struct {
	ctx   context.Context // it lives as long as one call of Walk
	visit Visit
	buf   *bufio.Reader // of the file that is being visited
	left  int64         // bytes that the present file of the disk may still unpack to
}

func (w *walker) walkPath(root string) error {
	st, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return w.visitDiskFile(root, filepath.Base(root))
	}
	if root, err = filepath.EvalSymlinks(root); err != nil { // WalkDir does not follow a link
		return err
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && isHidden(d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular() || isHidden(d.Name()):
			return nil
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return w.visitDiskFile(p, filepath.ToSlash(name))
	})
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// visitDiskFile opens a file of the disk; a zip archive is read in place.
func (w *walker) visitDiskFile(p, name string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	w.left = math.MaxInt64 // of a pipe
	if st.Mode().IsRegular() && st.Size() < math.MaxInt64/maxRatio-unpackedSlack {
		w.left = st.Size()*maxRatio + unpackedSlack
	}
	if strings.HasSuffix(name, ".zip") {
		return w.walkZip(f, st.Size(), name, 0)
	}
	return w.visitFile(f, File{Name: name, Size: st.Size()}, 0)
}

// visitFile passes a file to the visit, or the files packed in it.
func (w *walker) visitFile(r io.Reader, f File, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth > maxNesting {
		return errors.New("archives are nested too deeply")
	}
	switch ext := path.Ext(f.Name); ext {
	case ".gz", ".tgz":
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		return w.visitFile(boundedReader{w, z}, unpackedFile(f, ext), depth+1)
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(maxWindowBytes), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		defer z.Close()
		return w.visitFile(boundedReader{w, z}, unpackedFile(f, ext), depth+1)
	case ".tar":
		return w.walkTar(r, f.Name, depth)
	case ".zip":
		return fmt.Errorf("%s: zip archives inside of other archives are not supported", f.Name)
	}
	w.buf.Reset(r)
	f.Reader = w.buf
	return w.visit(f)
}

// boundedReader refuses a decompression bomb. It counts also what the visits do not read.
type boundedReader struct {
	w *walker
	r io.Reader
}

func (b boundedReader) Read(p []byte) (int, error) {
	if b.w.ctx.Err() != nil {
		return 0, context.Cause(b.w.ctx)
	}
	if b.w.left <= 0 {
		return 0, fmt.Errorf("the file unpacks to more than %d times its size", maxRatio)
	}
	n, err := b.r.Read(p)
	b.w.left -= int64(n)
	return n, err
}

func unpackedFile(f File, ext string) File {
	f.Name = strings.TrimSuffix(f.Name, ext)
	if ext == ".tgz" {
		f.Name += ".tar"
	}
	f.Size = -1
	return f
}

func (w *walker) walkTar(r io.Reader, name string, depth int) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return readRest(r, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag != tar.TypeReg || isHidden(path.Base(h.Name)) {
			continue
		}
		f := File{Name: name + "/" + path.Clean(h.Name), Time: h.ModTime, Size: h.Size}
		if err := w.visitFile(t, f, depth+1); err != nil {
			return err
		}
	}
}

// readRest reads what follows the end of a tar archive, so that the checksum of its compressed form is verified.
func readRest(r io.Reader, name string) error {
	_, err := io.Copy(io.Discard, r)
	if err != nil && !errors.Is(err, gzip.ErrHeader) { // other bytes may follow the compressed form
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (w *walker) walkZip(r io.ReaderAt, size int64, name string, depth int) error {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, e := range z.File {
		if !e.Mode().IsRegular() || isHidden(path.Base(e.Name)) {
			continue
		}
		if err := w.visitZipEntry(e, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) visitZipEntry(e *zip.File, name string, depth int) error {
	r, err := e.Open()
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, e.Name, err)
	}
	defer r.Close()
	f := File{Name: name + "/" + path.Clean(e.Name), Time: e.Modified, Size: int64(e.UncompressedSize64)}
	return w.visitFile(boundedReader{w, r}, f, depth+1)
}

func newBuffer() *bufio.Reader { return bufio.NewReaderSize(nil, bufferSize) }
