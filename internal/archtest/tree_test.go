package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/buildyard/buildyard"

// sdkModules are the modules of the SDK, by directory. Their packages have the import paths that they would have in
// the module of the programs.
var sdkModules = []string{"api", "client"}

// source is one Go file of the repository.
type source struct {
	path  string // slash-separated, from the root
	dir   string
	test  bool // a _test.go file
	lines int
	text  string
	ast   *ast.File
}

// imports returns the import paths of a file.
func (s *source) imports() []string {
	var out []string
	for _, i := range s.ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// tree is a parsed source tree.
type tree struct {
	fsys  fs.FS
	names []string // every file, sorted
	fset  *token.FileSet
	files []*source // the Go files among them, of every system
}

// parse reads the Go files among names. Vendored code, testdata and files of other modules than
// those of the SDK are left out.
func parse(fsys fs.FS, names []string) (*tree, error) {
	t := &tree{fsys: fsys, names: slices.Sorted(slices.Values(names)), fset: token.NewFileSet()}
	var nested []string
	for _, n := range t.names {
		if path.Base(n) == "go.mod" && n != "go.mod" && !slices.Contains(sdkModules, path.Dir(n)) {
			nested = append(nested, path.Dir(n)+"/")
		}
	}
	for _, n := range t.names {
		inNested := slices.ContainsFunc(nested, func(d string) bool { return strings.HasPrefix(n, d) })
		if path.Ext(n) != ".go" || inNested || strings.Contains("/"+n, "/testdata/") ||
			strings.Contains("/"+n, "/vendor/") {
			continue
		}
		data, err := fs.ReadFile(fsys, n)
		if err != nil {
			return nil, fmt.Errorf("reading the tree: %w", err)
		}
		f, err := parser.ParseFile(t.fset, n, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("reading the tree: %w", err)
		}
		if ast.IsGenerated(f) {
			continue
		}
		t.files = append(t.files, &source{
			path: n, dir: path.Dir(n), test: strings.HasSuffix(n, "_test.go"),
			lines: strings.Count(string(data), "\n"), text: string(data), ast: f,
		})
	}
	return t, nil
}

// product lists the files that go into programs: no tests, and no packages made for tests, whose
// names end in "test" (the conformance suites).
func (t *tree) product() []*source {
	var out []*source
	for _, f := range t.files {
		if !f.test && !strings.HasSuffix(f.ast.Name.Name, "test") && !strings.HasPrefix(f.dir+"/", "test/") {
			out = append(out, f)
		}
	}
	return out
}

// where returns "file:line" of a position.
func (t *tree) where(p token.Pos) string {
	at := t.fset.Position(p)
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}

// root returns the directory of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// parsed caches the module, which no test changes.
var parsed struct {
	once sync.Once
	tree *tree
}

// theTree returns the parsed module.
func theTree(t *testing.T) *tree {
	t.Helper()
	parsed.once.Do(func() { parsed.tree = readTree(t) })
	if parsed.tree == nil {
		t.Fatal("the module could not be parsed: see the first test that failed")
	}
	return parsed.tree
}

// readTree parses the module: the files that git tracks, or all files without a git repository, as
// in a source archive.
func readTree(t *testing.T) *tree {
	t.Helper()
	dir := root(t)
	names := tracked(t, dir)
	if names == nil {
		names = walked(t, dir)
	}
	out, err := parse(os.DirFS(dir), names)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.files) < 20 {
		t.Fatalf("only %d Go files found", len(out.files))
	}
	return out
}

func tracked(t *testing.T, dir string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		return nil
	}
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "ls-files", "-z")
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		t.Logf("git ls-files: %v; reading every file instead", err)
		return nil
	}
	names := []string{}
	for n := range strings.SplitSeq(strings.TrimRight(string(text), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(dir, n)); err == nil && info.Mode().IsRegular() {
			names = append(names, n)
		}
	}
	return names
}

func walked(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (p == ".git" || p == "bin" || p == "dist"):
			return fs.SkipDir
		case d.Type().IsRegular():
			names = append(names, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// report fails the test with every finding of a rule, and with the rule's reason.
func report(t *testing.T, reason string, findings []string) {
	t.Helper()
	if len(findings) > 0 {
		t.Errorf("%s:\n  %s", reason, strings.Join(findings, "\n  "))
	}
}
