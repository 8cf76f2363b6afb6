package host

import (
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

// newFinder returns what looks for packages beneath a directory of this machine.
func (h *Host) newFinder(folder string, m *meter) (*catalog.Finder, io.Closer, error) {
	root, closer, err := catalog.Machine(folder)
	if err != nil {
		return nil, nil, err
	}
	return catalog.NewFinder(root, catalog.Options{
		Extractors: extractors.All(), Begin: yield, Workers: workers(),
		Leave:    func(path string) bool { return h.leaves("/" + path) },
		Progress: func(files, _ int) { m.files.Store(int64(files)) },
	}), closer, nil
}

// workers is how many goroutines read files of a full scan.
func workers() int { return min(runtime.GOMAXPROCS(0), 8) }

// leaves reports whether a directory is left out: as asked, or as nobody may come back from it.
func (h *Host) leaves(folder string) bool {
	return slices.Contains(h.o.Leave, folder) || h.silent.is(folder)
}

// inTree is a path of the system as one of the tree that a finder has.
func inTree(path string) string {
	if p := strings.TrimPrefix(filepath.ToSlash(path), "/"); p != "" {
		return p
	}
	return "."
}

// outside is a path of the tree as one of the system.
func outside(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}

// within reports whether a path is a directory or is below it.
func within(folder, path string) bool {
	return folder == "/" || path == folder || strings.HasPrefix(path, folder+"/")
}
