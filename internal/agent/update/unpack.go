package update

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// Limits for the content of a package.
const (
	maxProgram = 1 << 30 // bytes
	maxEntries = 100
)

// unpackProgram writes the program of a package into a directory, durably. The program is a plain file at
// the top of the package; other files are ignored.
func unpackProgram(archive io.Reader, dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("the package is not a tar.gz file: %w", err)
	}
	files := tar.NewReader(zipped)
	for range maxEntries {
		entry, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the package has no program %s", programName)
		}
		if err != nil {
			return err
		}
		if path.Clean(entry.Name) != programName {
			continue
		}
		if entry.Typeflag != tar.TypeReg || entry.Size < 1 || entry.Size > maxProgram {
			return fmt.Errorf("%s in the package is not a regular file of 1 to %d bytes", programName, maxProgram)
		}
		if err := writeProgram(root, files); err != nil {
			return err
		}
		return datadir.SyncDir(dir)
	}
	return fmt.Errorf("the package has no program %s among its first %d files", programName, maxEntries)
}

func writeProgram(root *os.Root, from io.Reader) error {
	f, err := root.OpenFile(programName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Sync(), f.Close())
}
