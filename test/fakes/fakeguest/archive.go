package fakeguest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Pack returns an archive of a directory that depends on names, modes and contents alone.
func Pack(dir string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return packEntry(w, dir, path, e)
	})
	return out.Bytes(), errors.Join(err, w.Close())
}

func packEntry(w *tar.Writer, dir, path string, e fs.DirEntry) error {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm())}
	switch {
	case e.IsDir():
		h.Typeflag = tar.TypeDir
		return w.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		return w.WriteHeader(h)
	case !info.Mode().IsRegular():
		return nil // sockets and pipes do not outlive a boot
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// Unpack writes an archive into a directory, and nothing outside of it.
func Unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		mode := fs.FileMode(h.Mode).Perm()
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.Mkdir(h.Name, mode|0o700)
		case tar.TypeSymlink:
			err = root.Symlink(h.Linkname, h.Name)
		case tar.TypeReg:
			var f *os.File
			if f, err = root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200); err == nil {
				_, err = io.Copy(f, archive) //nolint:gosec // not compressed: as large as the archive at most
				err = errors.Join(err, f.Close())
			}
		}
		if err != nil {
			return err
		}
	}
}
