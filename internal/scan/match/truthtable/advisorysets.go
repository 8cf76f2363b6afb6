package truthtable

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// AdvisorySets are the collections of advisories, each an archive NAME.tar.zst.
var AdvisorySets = []string{
	"brew", "ghsa-sample", "govulndb-osv", "kev", "nvd-overrides", "pypa", "rubysec", "rustsec",
	"vulnrichment",
}

// CarriedSet has advisories of distributions of operating systems: OSV records, and entries of Debian's
// tracker; and configurations of NVD that the whole sets lack. It is only in this package's testdata.
const CarriedSet = "distributions"

// SwiftSet has GHSA's records about Swift packages, which no whole set has. It is only in this package's testdata.
const SwiftSet = "swift"

// ReadSet calls each for every file of a set in a directory of archives. The name is that of the
// table: the set, then the path inside.
func ReadSet(dir, set string, each func(name string, data []byte) error) error {
	f, err := os.Open(filepath.Join(dir, set+".tar.zst"))
	if err != nil {
		return fmt.Errorf("reading advisories: %w", err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("reading advisories: %w", err)
	}
	defer z.Close()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading advisories of %s: %w", set, err)
		case h.Typeflag != tar.TypeReg:
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("reading advisories of %s: %w", set, err)
		}
		if err := each(set+"/"+strings.TrimPrefix(h.Name, "./"), data); err != nil {
			return err
		}
	}
}
