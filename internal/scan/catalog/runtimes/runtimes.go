// Package runtimes finds installed language runtimes - CPython, Node.js, OpenJDK, Go, PHP, Perl, Ruby - by the files
// in which each installation has its version, wherever a version manager, an archive or "make install" put it.
//
// It runs no program and does not search programs for texts that look like versions. Runtimes that belong to a
// package of an operating system or to a formula are that package, and are left out.
//
// Invariant: a version is that of a file which the runtime's own build writes, next to the runtime itself: headers
// alone, such as those that addons are compiled with, are not a runtime.
package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// maxVersionFileBytes is the size of a file with a version: the largest, rbconfig.rb, has some 20 KiB.
const maxVersionFileBytes = 256 << 10

// Installations finds runtimes.
type Installations struct{}

var (
	_ catalog.Extractor = Installations{}
	_ catalog.Declarer  = Installations{}
)

// Name returns the name of the extractor in warnings.
func (Installations) Name() string { return "runtime" }

// Declares reports that a runtime of a package of an operating system, or of a formula, is that package.
func (Installations) Declares(p string) bool { return formOf(p) != nil }

// versionFile is a kind of file with the version of a runtime.
type versionFile struct {
	base string
	path *regexp.Regexp // of the file; the first group is the directory of the installation
	// proofs are files below that directory, in the notation of Regexp.Expand, one of which the runtime has and its
	// headers alone do not; none where the file itself is a part of the runtime.
	proofs []string
	// read returns the package in the content of the file, without one where it is another file of that name.
	read func(data []byte) (catalog.Package, error)
}

// versionFiles are the files that are read. The path of a file begins at the root of a tree, which may be that of
// the installation.
var versionFiles = []versionFile{
	{
		base:   "patchlevel.h",
		path:   regexp.MustCompile(`^(?:(.*)/)?include/(python\d+\.\d+[a-z]?)/patchlevel\.h$`),
		proofs: []string{"lib/$2/os.py", "lib64/$2/os.py", "bin/$2"},
		read:   macroReader("python", "PY_VERSION"),
	},
	{
		base:   "node_version.h",
		path:   regexp.MustCompile(`^(?:(.*)/)?include/node/node_version\.h$`),
		proofs: []string{"bin/node"},
		read:   readNode,
	},
	{
		base:   "php_version.h",
		path:   regexp.MustCompile(`^(?:(.*)/)?include/php/(?:\d+/)?main/php_version\.h$`),
		proofs: []string{"bin/php", "sbin/php-fpm", "bin/php-cgi"},
		read:   macroReader("php", "PHP_VERSION"),
	},
	{
		base:   "release",
		path:   regexp.MustCompile(`^(?:(.*)/)?release$`),
		proofs: []string{"bin/java", "bin/java.exe"},
		read:   readJava,
	},
	{
		base:   "VERSION",
		path:   regexp.MustCompile(`^(?:(.*)/)?VERSION$`),
		proofs: []string{"bin/go", "bin/go.exe", "src/cmd/go/main.go"},
		read:   readGo,
	},
	{
		base: "rbconfig.rb",
		path: regexp.MustCompile(`^(?:(.*)/)?lib/ruby/\d+\.\d+\.\d+/[^/]+/rbconfig\.rb$`),
		read: readRuby,
	},
	{
		base: "Config.pm",
		path: regexp.MustCompile(`^(?:(.*)/)?\d+\.\d+\.\d+/[^/]+/Config\.pm$`),
		read: readPerl,
	},
}

// formOf returns the kind of a file, nil for other files. What is below System/Library belongs to macOS.
func formOf(p string) *versionFile {
	base := path.Base(p)
	for i := range versionFiles {
		if f := &versionFiles[i]; f.base == base && f.path.MatchString(p) &&
			!strings.Contains("/"+p, "/System/Library/") && !catalog.IsTestData(p) {
			return f
		}
	}
	return nil
}

// Patterns selects files by their names.
func (Installations) Patterns() catalog.Patterns {
	var out catalog.Patterns
	for i := range versionFiles {
		out.Names = append(out.Names, versionFiles[i].base)
	}
	return out
}

// FileRequired accepts the files of installations.
func (Installations) FileRequired(p string) bool { return formOf(p) != nil }

// Extract reads the version of an installation.
func (Installations) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	form := formOf(f.Path)
	if form == nil || f.Size() > maxVersionFileBytes && !form.isOwnName() {
		return nil, nil // some other VERSION
	}
	data, err := f.ReadAll(maxVersionFileBytes)
	if err != nil {
		return nil, err
	}
	p, err := form.read(data)
	if p.Name == "" || err != nil {
		return nil, err
	}
	if installed, err := form.isInstalled(f); !installed || err != nil {
		return nil, err
	}
	return []catalog.Package{p}, nil
}

// isOwnName reports whether only runtimes have files of this name.
func (v *versionFile) isOwnName() bool {
	return v.base != "VERSION" && v.base != "release" && v.base != "Config.pm"
}

// isInstalled reports whether the runtime is next to the file with its version.
func (v *versionFile) isInstalled(f *catalog.File) (bool, error) {
	m := v.path.FindStringSubmatchIndex(f.Path)
	dir := string(v.path.ExpandString(nil, "$1", f.Path, m))
	for _, proof := range v.proofs {
		_, err := f.Stat(path.Join(dir, string(v.path.ExpandString(nil, proof, f.Path, m))))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return len(v.proofs) == 0, nil
}

// errNoVersion reports a file of a runtime in which no version is found.
var errNoVersion = errors.New("it has no version of a runtime")

// macroReader returns a reader of headers that define a version as a text.
func macroReader(name, macro string) func([]byte) (catalog.Package, error) {
	line := regexp.MustCompile(`(?m)^\s*#\s*define\s+` + macro + `\s+"([0-9][^"\s]{0,63})"`)
	return func(data []byte) (catalog.Package, error) {
		m := line.FindSubmatch(data)
		if m == nil {
			return catalog.Package{}, fmt.Errorf("%w: %s is not defined", errNoVersion, macro)
		}
		return catalog.Package{Kind: catalog.Runtime, Name: name, Version: string(m[1])}, nil
	}
}

var nodeNumber = regexp.MustCompile(`(?m)^\s*#\s*define\s+NODE_(MAJOR|MINOR|PATCH)_VERSION\s+(\d{1,9})\b`)

// readNode reads the three numbers of the version of Node.js.
func readNode(data []byte) (catalog.Package, error) {
	numbers := map[string]string{}
	for _, m := range nodeNumber.FindAllSubmatch(data, 10) {
		numbers[string(m[1])] = string(m[2])
	}
	if len(numbers) != 3 {
		return catalog.Package{}, fmt.Errorf("%w: %d of the three numbers are defined", errNoVersion, len(numbers))
	}
	return catalog.Package{
		Kind: catalog.Runtime, Name: "node",
		Version: numbers["MAJOR"] + "." + numbers["MINOR"] + "." + numbers["PATCH"],
	}, nil
}

var (
	javaVersion    = regexp.MustCompile(`(?m)^JAVA_VERSION="?([0-9][^"\s]{0,63})"?\s*$`)
	javaCommercial = regexp.MustCompile(`(?m)^BUILD_TYPE="?commercial"?\s*$`)
)

// readJava reads the file "release" of a JDK or JRE, which all builds of OpenJDK have. Those that Oracle sells are
// another product.
func readJava(data []byte) (catalog.Package, error) {
	m := javaVersion.FindSubmatch(data)
	if m == nil {
		return catalog.Package{}, nil
	}
	p := catalog.Package{Kind: catalog.Runtime, Name: "openjdk", Version: string(m[1])}
	if javaCommercial.Match(data) {
		p.Name = "oracle-jdk"
	}
	return p, nil
}

var goVersion = regexp.MustCompile(`^go([0-9][0-9A-Za-z.+-]{0,63})\s*(?:\n|$)`)

// readGo reads the file VERSION of a Go distribution. The advisories about its programs name it "toolchain"; the
// standard library in them is found in the programs.
func readGo(data []byte) (catalog.Package, error) {
	m := goVersion.FindSubmatch(data)
	if m == nil {
		return catalog.Package{}, nil
	}
	return catalog.Package{Kind: catalog.Go, Name: "toolchain", Version: string(m[1])}, nil
}

// rubyVersions are where rbconfig.rb has its version: the first since Ruby 2.1, the second since 1.9.
var rubyVersions = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^\s*CONFIG\["RUBY_PROGRAM_VERSION"\]\s*=\s*"([0-9][0-9.]{0,31})"`),
	regexp.MustCompile(`ruby lib version \(([0-9][0-9.]{0,31})\) doesn't match`),
}

func readRuby(data []byte) (catalog.Package, error) {
	for _, r := range rubyVersions {
		if m := r.FindSubmatch(data); m != nil {
			return catalog.Package{Kind: catalog.Runtime, Name: "ruby", Version: string(m[1])}, nil
		}
	}
	return catalog.Package{}, fmt.Errorf("%w: RUBY_PROGRAM_VERSION is not set", errNoVersion)
}

var (
	perlVersion = regexp.MustCompile(`(?m)^\s*version\s*=>\s*'([0-9][0-9.]{0,31})'`)
	perlArch    = regexp.MustCompile(`(?m)^\s*archname\s*=>\s*'`)
)

// readPerl reads Config.pm, in which perl compares its version when it starts.
func readPerl(data []byte) (catalog.Package, error) {
	m := perlVersion.FindSubmatch(data)
	if m == nil || !perlArch.Match(data) {
		return catalog.Package{}, nil // of a program in Perl
	}
	return catalog.Package{Kind: catalog.Runtime, Name: "perl", Version: string(m[1])}, nil
}
