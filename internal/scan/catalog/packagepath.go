package catalog

import (
	"regexp"
	"strings"
)

// WithinPackage reports whether a path is in the directory of an installed package of any
// ecosystem. Lock files and project files there are those of its authors: the packages in them were
// used to develop it and are not installed.
func WithinPackage(path string) bool {
	for _, dir := range []string{"node_modules/", "site-packages/", "dist-packages/", "usr/share/nodejs/"} {
		if containsDir(path, dir) {
			return true
		}
	}
	if containsDir(path, "pkg/mod/cache/") || withinGoModule(path) {
		return true
	}
	_, crates, _ := cutAroundDir(path, "registry/src/") // cargo: registry/src/INDEX/CRATE-VERSION/...
	if _, rest, _ := strings.Cut(crates, "/"); versionedDir.MatchString(rest) {
		return true
	}
	if KegOwner(path) != "" {
		return true
	}
	before, rest, _ := cutAroundDir(path, "gems/")
	return versionedDir.MatchString(rest) && !strings.HasSuffix(before, "bundler/")
}

// versionedDir matches a leading directory NAME-VERSION, as caches name them: the version has at least
// two numbers, and the platform of a gem may follow.
var versionedDir = regexp.MustCompile(`^[^/]+-[0-9]+\.[^/]*/`)

// withinGoModule reports whether a path is in the directory of a module in a cache of Go:
// pkg/mod/MODULE@VERSION/..., or MODULE@VERSION/... where the cache is the root of the tree, which
// a host name at the beginning shows. Users also name directories of releases with a version
// ("app@v2").
func withinGoModule(path string) bool {
	if i := strings.Index("/"+path, "/pkg/mod/"); i >= 0 {
		path = path[i+len("pkg/mod/"):]
	} else if host, _, _ := strings.Cut(path, "/"); !strings.Contains(host, ".") {
		return false
	}
	_, rest, _ := strings.Cut(path, "@v")
	version, _, deeper := strings.Cut(rest, "/")
	return deeper && strings.Count(version, ".") >= 2 && isDigit(version[0])
}

// IsTestData reports whether a path leads through a directory of test data, where projects keep
// files that look like those of packages. Directories with names that are also used for other
// content ("test") do not count.
func IsTestData(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "testdata", "test-data", "fixtures", "test-fixtures", "__fixtures__", "__tests__":
			return true
		}
	}
	return false
}

// containsDir reports whether a directory is part of a path.
func containsDir(path, dir string) bool {
	_, _, ok := cutAroundDir(path, dir)
	return ok
}

// cutAroundDir splits a path around the last occurrence of a directory.
func cutAroundDir(path, dir string) (before, rest string, ok bool) {
	for end := len(path); ; {
		i := strings.LastIndex(path[:end], dir)
		if i < 0 {
			return "", "", false
		}
		if i == 0 || path[i-1] == '/' {
			return path[:i], path[i+len(dir):], true
		}
		end = i
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
