package release

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// VersionFile is the file of an agent package that contains the version of its program. Packages of a release have it
// before the program.
const VersionFile = "VERSION"

// maxPackageEntries limits the files of a package that are searched.
const maxPackageEntries = 100

// packagedVersion returns the version in an agent package; "" for a package without it.
func packagedVersion(path string) (version string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(io.LimitReader(f, MaxPackageBytes))
	if err != nil {
		return "", nil //nolint:nilerr // not an archive, so it has no version; a node that gets it says that
	}
	for files, n := tar.NewReader(zipped), 0; n < maxPackageEntries; n++ {
		entry, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil:
			return "", nil //nolint:nilerr // as above
		case filepath.Clean(entry.Name) != VersionFile:
			continue
		}
		raw, err := io.ReadAll(io.LimitReader(files, maxVersionBytes+2))
		if err != nil {
			return "", fmt.Errorf("read %s: %w", VersionFile, err)
		}
		version = strings.TrimSpace(string(raw))
		if !ValidVersion(version) {
			return "", fmt.Errorf("invalid %s %q", VersionFile, version)
		}
		return version, nil
	}
	return "", nil
}
