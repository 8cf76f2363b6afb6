package container

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

const (
	maxArchiveFiles = 100_000 // of the archive around the layers
	maxFileLinks    = 8       // from one file of the archive to another
)

// Signatures, which are at the beginning of a file or, of a tar archive, at an offset.
const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
	tarMagic  = "ustar"
	tarAt     = 257
)

// blobStore has the files of an image by their names in its layout.
type blobStore interface {
	// open opens a regular file; the error wraps fs.ErrNotExist where there is none. The caller closes it.
	open(name string) (*blobFile, error)
	io.Closer
}

var (
	_ blobStore = (*dirStore)(nil)
	_ blobStore = (*tarStore)(nil)
)

// blobFile is an opened file.
type blobFile struct {
	io.Reader
	io.Closer
	size int64
}

// openStore opens a directory, or a tar archive.
func openStore(name string) (blobStore, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		return &dirStore{root}, nil
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("neither a file nor a directory")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &tarStore{file: f, files: map[string]tarFile{}}
	if err := s.index(info.Size()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// dirStore is a directory. Links that lead out of it are not followed.
type dirStore struct{ root *os.Root }

func (s *dirStore) Close() error { return s.root.Close() }

func (s *dirStore) open(name string) (*blobFile, error) {
	info, err := s.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	return &blobFile{f, f, info.Size()}, nil
}

// tarStore is an archive, whose files are read in place.
type tarStore struct {
	file  *os.File
	files map[string]tarFile
}

// tarFile is a file of an archive.
type tarFile struct {
	at, size int64
	link     string // the name of another file; "" for none
	isSparse bool   // its bytes are not in one piece
}

func (s *tarStore) Close() error { return s.file.Close() }

func (s *tarStore) index(size int64) error {
	head := make([]byte, tarAt+len(tarMagic))
	n, _ := s.file.ReadAt(head, 0)
	switch head := string(head[:n]); {
	case strings.HasPrefix(head, gzipMagic):
		return errors.New("the archive is compressed with gzip: decompress it first, as with \"gunzip\"")
	case strings.HasPrefix(head, zstdMagic):
		return errors.New("the archive is compressed with zstd: decompress it first, as with \"unzstd\"")
	case n < tarAt+len(tarMagic) || head[tarAt:] != tarMagic:
		return errNoImage
	}
	section := io.NewSectionReader(s.file, 0, size)
	for t := tar.NewReader(section); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(s.files) == maxArchiveFiles {
			err = fmt.Errorf("it has more than %d files", maxArchiveFiles)
		}
		if err != nil {
			return fmt.Errorf("the archive is damaged: %w", err)
		}
		at, err := section.Seek(0, io.SeekCurrent) // the reader has read the headers and nothing else
		if err != nil {
			return err
		}
		name := cleanName(h.Name)
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
			if h.Size > size-at {
				return fmt.Errorf("the archive is damaged: it ends within %q", name)
			}
			s.files[name] = tarFile{at: at, size: h.Size, isSparse: isSparse(h)}
		case tar.TypeLink:
			s.files[name] = tarFile{link: cleanName(h.Linkname)}
		case tar.TypeSymlink: // older programs of Docker have them for layers that are the same
			s.files[name] = tarFile{link: cleanName(path.Dir(name) + "/" + h.Linkname)}
		}
	}
}

// isSparse reports whether the holes of a file are not in the archive.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// cleanName returns a name as a path from the root of the archive, "." for the root.
func cleanName(name string) string {
	if name = path.Clean("/" + name)[1:]; name == "" {
		return "."
	}
	return name
}

func (s *tarStore) open(name string) (*blobFile, error) {
	for range maxFileLinks {
		f, ok := s.files[cleanName(name)]
		switch {
		case !ok:
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		case f.isSparse:
			return nil, fmt.Errorf("file %q of the archive is stored without its holes", name)
		case f.link == "":
			return &blobFile{io.NewSectionReader(s.file, f.at, f.size), io.NopCloser(nil), f.size}, nil
		}
		name = f.link
	}
	return nil, fmt.Errorf("file %q of the archive is a link to itself", name)
}

// readSmall reads a whole file of at most limit bytes.
func readSmall(s blobStore, name string, limit int64) ([]byte, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.size > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, f.size, limit)
	}
	b := make([]byte, f.size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}
