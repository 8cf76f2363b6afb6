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

// scope has the options, with every field filled in.
type scope struct {
	Options
	roots []string // without links, none within another
	tune  testTuning
}

// testTuning has limits that tests lower.
type testTuning struct {
	watches  int           // directories that inotify watches at most
	polled   int           // directories and files that polling remembers at most
	interval time.Duration // between two checks
}

func newScope(o *Options) (*scope, error) {
	s := &scope{Options: *o, tune: testTuning{watches: 1 << 16, polled: 50_000, interval: time.Minute}}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Wants == nil {
		s.Wants = func(string) bool { return true }
	}
	if s.Leave == nil {
		s.Leave = func(string) bool { return false }
	}
	roots := s.Roots
	if len(roots) == 0 {
		roots = []string{"/"}
	}
	var err error
	if s.roots, err = outermost(roots); err != nil {
		return nil, err
	}
	if s.Places, err = outermost(s.Places); err != nil {
		return nil, err
	}
	return s, nil
}

// outermost resolves links and removes directories that are within others.
func outermost(list []string) ([]string, error) {
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
		if !slices.ContainsFunc(out, func(o string) bool { return within(o, p) }) {
			out = append(out, p)
		}
	}
	return out, nil
}

// within reports whether a path is a directory or is below it.
func within(folder, path string) bool {
	if folder == "/" || folder == path {
		return true
	}
	return len(path) > len(folder) && path[len(folder)] == '/' && path[:len(folder)] == folder
}

// join adds a name to a directory.
func join(folder, name string) string {
	if folder == "/" {
		return "/" + name
	}
	return folder + "/" + name
}

// parent returns the directory of a path, "" for the root's.
func parent(path string) string {
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
func (s *scope) rootOf(path string) (string, bool) {
	for _, r := range s.roots {
		if within(r, path) {
			return r, true
		}
	}
	return "", false
}

// seen reports whether changes in a directory are reported.
func (s *scope) seen(folder string) bool {
	root, ok := s.rootOf(folder)
	if !ok {
		return false
	}
	for p := folder; ; p = parent(p) {
		if s.Leave(p) {
			return false
		}
		if p == root || p == "" {
			return true
		}
	}
}

// touches reports whether a directory is seen or has roots below.
func (s *scope) touches(folder string) bool {
	if _, ok := s.rootOf(folder); ok {
		return s.seen(folder)
	}
	return slices.ContainsFunc(s.roots, func(r string) bool { return within(folder, r) })
}

// starts returns the directories for a method that cannot watch everything: roots that were named,
// and of the whole host the places.
func (s *scope) starts() []string {
	var out []string
	for _, r := range s.roots {
		if r != "/" {
			out = append(out, r)
			continue
		}
		out = append(out, s.Places...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// told adds the change of a directory, or of those roots that are in it.
func (s *scope) told(news *changeBuffer, folder string, what ChangeKind) {
	if _, ok := s.rootOf(folder); ok {
		if s.seen(folder) {
			news.add(folder, what)
		}
		return
	}
	for _, r := range s.roots {
		if within(folder, r) {
			news.add(r, what)
		}
	}
}

// lost adds a change of every root, since any change below may have been missed.
func (s *scope) lost(news *changeBuffer) {
	for _, r := range s.roots {
		news.add(r, Folder)
	}
}
