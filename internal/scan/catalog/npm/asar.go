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
	maxIndex = 32 << 20 // bytes of its list of files
	maxNodes = 200_000  // entries
	maxWrong = 10       // files that cannot be read, before the rest is skipped
)

// Archive reads app.asar, which has the packages of applications made with Electron: 16 bytes of
// sizes, a list of files in JSON, and the files.
type Archive struct{}

var _ catalog.Extractor = Archive{}

// Name returns the name of the extractor in warnings.
func (Archive) Name() string { return "npm/asar" }

// Patterns selects archives of applications.
func (Archive) Patterns() catalog.Patterns { return catalog.Patterns{Names: []string{"app.asar"}} }

// FileRequired accepts all.
func (Archive) FileRequired(string) bool { return true }

// node is an entry of the list of files.
type node struct {
	Files    map[string]*node `json:"files"`
	Offset   string           `json:"offset"`
	Size     int64            `json:"size"`
	Unpacked bool             `json:"unpacked"` // the file is next to the archive, where the walk finds it
}

// Extract reads the package.json files below node_modules.
func (Archive) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	top, start, err := index(r, f.Size())
	if err != nil {
		return nil, err
	}
	a := &archive{ctx: ctx, r: io.NewSectionReader(r, start, max(f.Size()-start, 0)), left: maxNodes}
	if err := a.folder(top, "", false); err != nil {
		a.errs = slices.Insert(a.errs, 0, err)
	}
	return a.found, errors.Join(a.errs...)
}

// Errors that stop the reading of an archive before its end.
var (
	errEntries = fmt.Errorf("%w: its list of files has more than %d entries", catalog.ErrTooLarge, maxNodes)
	errWrong   = fmt.Errorf("%w: further files in it are not read", catalog.ErrTooLarge)
)

// index returns the list of files, and the offset of the first of them.
func index(r io.ReaderAt, size int64) (*node, int64, error) {
	var head [16]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, 0, fmt.Errorf("reading the archive's sizes: %w", err)
	}
	pickle := int64(binary.LittleEndian.Uint32(head[4:]))
	n := int64(binary.LittleEndian.Uint32(head[12:]))
	if n == 0 || n > pickle || 8+pickle > size {
		return nil, 0, fmt.Errorf("the archive's list of files has an impossible size, %d bytes", n)
	}
	if n > maxIndex {
		return nil, 0, fmt.Errorf("%w: its list of files has %d bytes", catalog.ErrTooLarge, n)
	}
	data := make([]byte, n)
	if _, err := r.ReadAt(data, 16); err != nil {
		return nil, 0, fmt.Errorf("reading the archive's list of files: %w", err)
	}
	if bytes.Count(data, []byte("{")) > 4*maxNodes { // in memory each takes far more
		return nil, 0, errEntries
	}
	top := &node{}
	if err := json.Unmarshal(data, top); err != nil {
		return nil, 0, fmt.Errorf("reading the archive's list of files: %w", err)
	}
	return top, 8 + pickle, nil
}

// archive is one that is being read.
type archive struct {
	ctx   context.Context
	r     *io.SectionReader
	left  int
	found []catalog.Package
	errs  []error
}

// folder walks a directory; installed reports that it is a node_modules or below one.
func (a *archive) folder(n *node, name string, installed bool) error {
	for _, child := range slices.Sorted(maps.Keys(n.Files)) {
		c := n.Files[child]
		a.left--
		switch {
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case a.left < 0:
			return errEntries
		case len(a.errs) >= maxWrong:
			return errWrong
		}
		if err := a.entry(c, name+"/"+child, child, installed); err != nil {
			return err
		}
	}
	return nil
}

// entry handles an entry of a directory.
func (a *archive) entry(c *node, full, base string, installed bool) error {
	switch {
	case c == nil:
	case c.Files != nil:
		return a.folder(c, full, installed || base == "node_modules")
	case installed && base == "package.json" && !c.Unpacked &&
		(Installed{}).FileRequired(strings.TrimPrefix(full, "/")):
		inside, _ := modules(strings.TrimPrefix(full, "/"))
		if err := a.file(c, !root(inside)); err != nil {
			a.errs = append(a.errs, fmt.Errorf("%s: %w", full, err))
		}
	}
	return nil
}

// file reads a package.json.
func (a *archive) file(n *node, within bool) error {
	off, err := strconv.ParseInt(n.Offset, 10, 64)
	if err != nil || off < 0 || n.Size <= 0 || n.Size > a.r.Size() || off > a.r.Size()-n.Size {
		return errors.New("it lies outside of the archive")
	}
	if n.Size > maxManifest {
		return fmt.Errorf("%w: %d bytes", catalog.ErrTooLarge, n.Size)
	}
	data := make([]byte, n.Size)
	if _, err := a.r.ReadAt(data, off); err != nil {
		return err
	}
	p, ok, err := parse(data, within)
	if ok {
		a.found = append(a.found, p)
	}
	if within {
		return nil // data of a package may look like a package.json
	}
	return err
}
