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

// newFinder returns a finder of the packages below a directory of this machine.
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

// workers returns how many goroutines read files during a full scan.
func workers() int { return min(runtime.GOMAXPROCS(0), 8) }

// leaves reports whether a directory is left out: by option, or because a read of it may never
// return.
func (h *Host) leaves(folder string) bool {
	return slices.Contains(h.o.Leave, folder) || h.silent.is(folder)
}

// inTree converts a path of the system to one of the finder's tree.
func inTree(path string) string {
	if p := strings.TrimPrefix(filepath.ToSlash(path), "/"); p != "" {
		return p
	}
	return "."
}

// outside converts a path of the tree to one of the system.
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
