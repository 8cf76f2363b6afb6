package npm

import (
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

// Bounds of an archive.
const (
	maxIndex = 32 << 20 // bytes of its list of files
	maxNodes = 200_000  // entries that are looked at
)

// Archive reads app.asar, in which applications made with Electron carry their packages:
// 16 bytes of sizes, a list of files in JSON, and the files.
type Archive struct{}

var _ catalog.Extractor = Archive{}

// Name is told in warnings.
func (Archive) Name() string { return "npm/asar" }

// Claim asks for archives of applications.
func (Archive) Claim() catalog.Claim { return catalog.Claim{Names: []string{"app.asar"}} }

// Wants takes all.
func (Archive) Wants(string) bool { return true }

// node is an entry of the list of files.
type node struct {
	Files    map[string]*node `json:"files"`
	Offset   string           `json:"offset"`
	Size     int64            `json:"size"`
	Unpacked bool             `json:"unpacked"` // the file lies beside the archive, where the walk finds it
}

// Extract reads the package.json files of what lies in node_modules.
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
	a.folder(top, "", false)
	return a.found, errors.Join(a.errs...)
}

// index reads the list of files, and where the first of them begins.
func index(r io.ReaderAt, size int64) (*node, int64, error) {
	var head [16]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, 0, fmt.Errorf("reading the archive's sizes: %w", err)
	}
	pickle := int64(binary.LittleEndian.Uint32(head[4:]))
	n := int64(binary.LittleEndian.Uint32(head[12:]))
	if n == 0 || n > pickle || n > maxIndex || 8+pickle > size {
		return nil, 0, fmt.Errorf("the archive's list of files has an impossible size, %d bytes", n)
	}
	data := make([]byte, n)
	if _, err := r.ReadAt(data, 16); err != nil {
		return nil, 0, fmt.Errorf("reading the archive's list of files: %w", err)
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

// folder looks through a folder; installed says that it is one of node_modules or in one.
func (a *archive) folder(n *node, name string, installed bool) {
	for _, child := range slices.Sorted(maps.Keys(n.Files)) {
		c := n.Files[child]
		if a.left--; a.left < 0 || c == nil || a.ctx.Err() != nil || len(a.errs) > 10 {
			return
		}
		full := name + "/" + child
		switch {
		case c.Files != nil:
			a.folder(c, full, installed || child == "node_modules")
		case installed && child == "package.json" && !c.Unpacked && (Installed{}).Wants(strings.TrimPrefix(full, "/")):
			inside, _ := modules(strings.TrimPrefix(full, "/"))
			if err := a.file(c, !root(inside)); err != nil {
				a.errs = append(a.errs, fmt.Errorf("%s: %w", full, err))
			}
		}
	}
}

// file reads a package.json.
func (a *archive) file(n *node, within bool) error {
	off, err := strconv.ParseInt(n.Offset, 10, 64)
	if err != nil || off < 0 || n.Size <= 0 || n.Size > maxManifest || off > a.r.Size()-n.Size {
		return errors.New("it lies outside of the archive")
	}
	data := make([]byte, n.Size)
	if _, err := a.r.ReadAt(data, off); err != nil {
		return err
	}
	if p, ok, err := parse(data, within); err == nil && ok {
		a.found = append(a.found, p)
	}
	return nil
}
