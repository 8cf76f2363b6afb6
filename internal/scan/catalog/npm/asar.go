package npm

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Limits of an archive.
const (
	maxIndexBytes = 32 << 20 // bytes of its list of files
	maxEntries    = 200_000  // entries
	maxBadFiles   = 10       // files that cannot be read, before the rest is skipped
)

// AsarArchives reads app.asar, which has the packages of applications made with Electron: 16 bytes of
// sizes, a list of files in JSON, and the files.
type AsarArchives struct{}

var _ catalog.Extractor = AsarArchives{}

// Name returns the name of the extractor in warnings.
func (AsarArchives) Name() string { return "npm/asar" }

// Patterns selects archives of applications.
func (AsarArchives) Patterns() catalog.Patterns { return catalog.Patterns{Names: []string{"app.asar"}} }

// FileRequired accepts all.
func (AsarArchives) FileRequired(string) bool { return true }

// asarEntry is an entry of the list of files.
type asarEntry struct {
	Files    map[string]*asarEntry `json:"files"`
	Offset   string                `json:"offset"`
	Size     int64                 `json:"size"`
	Unpacked bool                  `json:"unpacked"` // the file is next to the archive, where the walk finds it
}

// Extract reads the package.json files below node_modules.
func (AsarArchives) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	top, start, err := readIndex(r, f.Size())
	if err != nil {
		return nil, err
	}
	a := &asarReader{ctx: ctx, r: io.NewSectionReader(r, start, max(f.Size()-start, 0)), entriesLeft: maxEntries}
	if err := a.walkDir(top, "", false); err != nil {
		a.errs = slices.Insert(a.errs, 0, err)
	}
	return a.packages, errors.Join(a.errs...)
}

// Errors that stop the reading of an archive before its end.
var (
	errTooManyEntries = fmt.Errorf("%w: the file index of the archive has more than %d entries", catalog.ErrTooLarge,
		maxEntries)
	errTooManyBadFiles = fmt.Errorf("%w: the remaining files of the archive are not read", catalog.ErrTooLarge)
)

// readIndex returns the list of files, and the offset of the first of them.
func readIndex(r io.ReaderAt, size int64) (*asarEntry, int64, error) {
	var head [16]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, 0, fmt.Errorf("read the sizes of the archive: %w", err)
	}
	pickle := int64(binary.LittleEndian.Uint32(head[4:]))
	n := int64(binary.LittleEndian.Uint32(head[12:]))
	if n == 0 || n > pickle || 8+pickle > size {
		return nil, 0, fmt.Errorf("the file index of the archive has an invalid size, %d bytes", n)
	}
	if n > maxIndexBytes {
		return nil, 0, fmt.Errorf("%w: the file index of the archive has %d bytes", catalog.ErrTooLarge, n)
	}
	data := make([]byte, n)
	if _, err := r.ReadAt(data, 16); err != nil {
		return nil, 0, fmt.Errorf("read the file index of the archive: %w", err)
	}
	if bytes.Count(data, []byte("{")) > 4*maxEntries { // in memory each takes far more
		return nil, 0, errTooManyEntries
	}
	top := &asarEntry{}
	if err := json.Unmarshal(data, top); err != nil {
		return nil, 0, fmt.Errorf("read the file index of the archive: %w", err)
	}
	return top, 8 + pickle, nil
}

// asarReader is one that is being read.
type asarReader struct {
	ctx         context.Context
	r           *io.SectionReader
	entriesLeft int
	packages    []catalog.Package
	errs        []error
}

// walkDir walks a directory; installed reports that it is a node_modules or below one.
func (a *asarReader) walkDir(n *asarEntry, name string, installed bool) error {
	for _, child := range slices.Sorted(maps.Keys(n.Files)) {
		c := n.Files[child]
		a.entriesLeft--
		switch {
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case a.entriesLeft < 0:
			return errTooManyEntries
		case len(a.errs) >= maxBadFiles:
			return errTooManyBadFiles
		}
		if err := a.visitEntry(c, name+"/"+child, child, installed); err != nil {
			return err
		}
	}
	return nil
}

// visitEntry handles an entry of a directory.
func (a *asarReader) visitEntry(c *asarEntry, full, base string, installed bool) error {
	switch {
	case c == nil:
	case c.Files != nil:
		return a.walkDir(c, full, installed || base == "node_modules")
	case installed && base == "package.json" && !c.Unpacked &&
		(InstalledPackages{}).FileRequired(strings.TrimPrefix(full, "/")):
		inside, _ := pathInNodeModules(strings.TrimPrefix(full, "/"))
		if err := a.readManifest(c, !isPackageRoot(inside)); err != nil {
			a.errs = append(a.errs, fmt.Errorf("%s: %w", full, err))
		}
	}
	return nil
}

// readManifest reads a package.json.
func (a *asarReader) readManifest(n *asarEntry, within bool) error {
	off, err := strconv.ParseInt(n.Offset, 10, 64)
	if err != nil || off < 0 || n.Size <= 0 || n.Size > a.r.Size() || off > a.r.Size()-n.Size {
		return errors.New("the entry is outside of the archive")
	}
	if n.Size > maxManifestBytes {
		return fmt.Errorf("%w: %d bytes", catalog.ErrTooLarge, n.Size)
	}
	data := make([]byte, n.Size)
	if _, err := a.r.ReadAt(data, off); err != nil {
		return err
	}
	p, ok, err := parseManifest(data, within)
	if ok {
		a.packages = append(a.packages, p)
	}
	if within {
		return nil // data of a package may look like a package.json
	}
	return err
}
