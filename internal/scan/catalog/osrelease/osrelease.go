// Package osrelease reads which operating system a directory of a tree is the root of: the ID and the
// version in its os-release file.
//
// It knows no distribution, except that Alpine's patch releases share their package versions.
//
// Invariant: a release is from a file below the same root as the package database that it is for.
package osrelease

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

const (
	maxFileBytes  = 64 << 10 // of an os-release file that is read
	maxValueBytes = 64       // of an ID or a version
)

// Root returns the root of the system that a file of its package database belongs to: the path of the file
// without a suffix such as "var/lib/dpkg/status". The root of the tree is ".". It reports false for a path with
// none of the suffixes, and for test data.
func Root(file string, suffixes ...string) (root string, ok bool) {
	for _, s := range suffixes {
		if file == s {
			return ".", true
		}
		if root, ok = strings.CutSuffix(file, "/"+s); ok {
			return root, !catalog.IsTestData(root)
		}
	}
	return "", false
}

// files are where a release is, from the root of a system.
var files = []string{"etc/os-release", "usr/lib/os-release"}

// IsFile reports whether a path is that of a file with a release.
func IsFile(name string) bool {
	return strings.HasSuffix(name, "os-release") && slices.ContainsFunc(files, func(f string) bool {
		return strings.HasSuffix("/"+name, "/"+f)
	})
}

// Distribution returns the release of the system at a root, as catalog.Package has it: "debian:12". "" when its
// os-release lacks an ID or a version, as rolling releases do, or cannot be read.
func Distribution(tree fs.FS, root string) string {
	for _, name := range files {
		if name == files[0] && root != "." && isLink(tree, path.Join(root, name)) {
			continue // its target is relative to the other root
		}
		if text, err := readFile(tree, path.Join(root, name)); err == nil {
			return parse(text)
		}
	}
	return ""
}

// isLink reports whether a file is a symbolic link.
func isLink(tree fs.FS, name string) bool {
	info, err := fs.Lstat(tree, name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// readFile reads the beginning of a file.
func readFile(tree fs.FS, name string) (string, error) {
	f, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	return string(data), err
}

// parse returns the release that an os-release file names: lines KEY=VALUE, whose value may be quoted as in a
// shell (os-release(5)). The last line of a key counts.
func parse(text string) string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && (key == "ID" || key == "VERSION_ID") {
			values[key] = unquote(value)
		}
	}
	id, version := values["ID"], values["VERSION_ID"]
	if !isValue(id) || !isValue(version) {
		return ""
	}
	return Name(id, version)
}

// Name returns the name of a release by its ID and version: "debian:12". The advisories of Alpine are those of the
// first two numbers.
func Name(id, version string) string {
	if id == "alpine" {
		version, _, _ = strings.Cut(version, "_") // of a preview
		parts := strings.SplitN(version, ".", 3)
		version = strings.Join(parts[:min(len(parts), 2)], ".")
	}
	return id + ":" + version
}

// unquote removes the quotes of a value. IDs and versions have no characters that need an escape.
func unquote(value string) string {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	return value
}

// isValue reports whether a text has only the characters that os-release(5) allows for IDs and versions. Some
// systems also use capital letters.
func isValue(text string) bool {
	return len(text) <= maxValueBytes && text != "" && strings.Trim(text,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~+-") == ""
}
