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
func (h *Host) newFinder(dir string, m *progressCounters) (*catalog.Finder, io.Closer, error) {
	root, closer, err := catalog.OpenMachine(dir)
	if err != nil {
		return nil, nil, err
	}
	return catalog.NewFinder(root, catalog.Options{
		Extractors: extractors.All(), OnWorkerStart: lowerPriority, Workers: scanWorkers(),
		SkipDir:  func(path string) bool { return h.isExcluded("/" + path) },
		Progress: func(files, _ int) { m.filesSeen.Store(int64(files)) },
	}), closer, nil
}

// scanWorkers returns how many goroutines read files during a full scan.
func scanWorkers() int { return min(runtime.GOMAXPROCS(0), 8) }

// isExcluded reports whether a directory is left out: by option, or because a read of it may never
// return.
func (h *Host) isExcluded(dir string) bool {
	return slices.Contains(h.opts.Exclude, dir) || h.excluded.Match(dir) || h.hungMounts.isHung(dir)
}

// toTreePath converts a path of the system to one of the finder's tree.
func toTreePath(path string) string {
	if p := strings.TrimPrefix(filepath.ToSlash(path), "/"); p != "" {
		return p
	}
	return "."
}

// toSystemPath converts a path of the tree to one of the system.
func toSystemPath(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}

// isWithin reports whether a path is a directory or is below it.
func isWithin(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
