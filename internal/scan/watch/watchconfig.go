package watch

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// watchConfig has the options, with every field filled in.
type watchConfig struct {
	Options
	roots  []string // without links, none within another
	limits testLimits
}

// testLimits has limits that tests lower.
type testLimits struct {
	maxWatches   int           // directories that inotify watches at most
	maxPolled    int           // directories and files that polling remembers at most
	pollInterval time.Duration // between two checks
}

func newWatchConfig(o *Options) (*watchConfig, error) {
	s := &watchConfig{
		Options: *o, limits: testLimits{maxWatches: 1 << 16, maxPolled: 50_000, pollInterval: time.Minute},
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.WantsFile == nil {
		s.WantsFile = func(string) bool { return true }
	}
	if s.Exclude == nil {
		s.Exclude = func(string) bool { return false }
	}
	roots := s.Roots
	if len(roots) == 0 {
		roots = []string{"/"}
	}
	var err error
	if s.roots, err = outermostDirs(roots); err != nil {
		return nil, err
	}
	if s.PackageDirs, err = outermostDirs(s.PackageDirs); err != nil {
		return nil, err
	}
	return s, nil
}

// outermostDirs resolves links and removes directories that are within others.
func outermostDirs(list []string) ([]string, error) {
	var all []string
	for _, p := range list {
		if !filepath.IsAbs(p) {
			return nil, fmt.Errorf("%q is not an absolute path", p)
		}
		if strings.ContainsRune(p, 0) {
			return nil, errors.New("a path has a zero byte")
		}
		all = append(all, realPath(p))
	}
	slices.Sort(all)
	var out []string
	for _, p := range all {
		if !slices.ContainsFunc(out, func(o string) bool { return isWithin(o, p) }) {
			out = append(out, p)
		}
	}
	return out, nil
}

// isWithin reports whether a path is a directory or is below it.
func isWithin(dir, path string) bool {
	if dir == "/" || dir == path {
		return true
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// joinPath adds a name to a directory.
func joinPath(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// parentPath returns the directory of a path, "" for the root's.
func parentPath(path string) string {
	i := strings.LastIndexByte(path, '/')
	switch {
	case i > 0:
		return path[:i]
	case i == 0 && len(path) > 1:
		return "/"
	default:
		return ""
	}
}

// rootOf returns the root that a path is below.
func (s *watchConfig) rootOf(path string) (string, bool) {
	for _, r := range s.roots {
		if isWithin(r, path) {
			return r, true
		}
	}
	return "", false
}

// isWatched reports whether changes in a directory are reported.
func (s *watchConfig) isWatched(dir string) bool {
	root, ok := s.rootOf(dir)
	if !ok {
		return false
	}
	for p := dir; ; p = parentPath(p) {
		if s.Exclude(p) {
			return false
		}
		if p == root || p == "" {
			return true
		}
	}
}

// touchesRoots reports whether a directory is seen or has roots below.
func (s *watchConfig) touchesRoots(dir string) bool {
	if _, ok := s.rootOf(dir); ok {
		return s.isWatched(dir)
	}
	return slices.ContainsFunc(s.roots, func(r string) bool { return isWithin(dir, r) })
}

// startDirs returns the directories for a method that cannot watch everything: roots that were named,
// and of the whole host the places.
func (s *watchConfig) startDirs() []string {
	var out []string
	for _, r := range s.roots {
		if r != "/" {
			out = append(out, r)
			continue
		}
		out = append(out, s.PackageDirs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// addDirChange adds the change of a directory, or of those roots that are in it.
func (s *watchConfig) addDirChange(buffer *changeBuffer, dir string, what ChangeKind) {
	if _, ok := s.rootOf(dir); ok {
		if s.isWatched(dir) {
			buffer.add(dir, what)
		}
		return
	}
	for _, r := range s.roots {
		if isWithin(dir, r) {
			buffer.add(r, what)
		}
	}
}

// addLostChanges adds a change of every root, since any change below may have been missed.
func (s *watchConfig) addLostChanges(buffer *changeBuffer) {
	for _, r := range s.roots {
		buffer.add(r, DirChanged)
	}
}
