package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// source is a type-checked package without its tests.
type source struct {
	path, name, dir string
	fset            *token.FileSet
	files           []*file
	info            *types.Info
}

type file struct {
	path string
	text []byte
	ast  *ast.File
}

// listed is the output of go list about a package.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
	DepOnly                       bool
}

// copyModule copies a module, without what Git and make store there. Mutants are planted in the
// copy, and its tests run there: a mutant without a bound may write anywhere in it.
func copyModule(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case slices.Contains([]string{".git", "bin", "dist"}, e.Name()):
		case e.IsDir():
			err = os.CopyFS(target, os.DirFS(source))
		default:
			var text []byte
			if text, err = os.ReadFile(source); err == nil {
				err = os.WriteFile(target, text, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// load parses and type-checks the package that pattern names, in the module of dir.
func load(ctx context.Context, dir, pattern string) (*source, error) {
	packages, err := list(ctx, dir, pattern)
	if err != nil {
		return nil, err
	}

	var src *source
	var goFiles []string
	exports := map[string]string{} // import path -> compiled package
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		if src != nil {
			return nil, fmt.Errorf("%s names several packages", pattern)
		}
		src, goFiles = &source{path: p.ImportPath, name: p.Name, dir: p.Dir, fset: token.NewFileSet()}, p.GoFiles
	}
	if src == nil {
		return nil, fmt.Errorf("%s names no package", pattern)
	}
	return src, src.check(goFiles, exports)
}

func list(ctx context.Context, dir, pattern string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-trimpath", "-deps", "-export",
		"-json=ImportPath,Name,Dir,Export,GoFiles,DepOnly", pattern)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", pattern, err, stderr.Bytes())
	}

	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list says: %w", err)
		}
		packages = append(packages, p)
	}
}

func (s *source) check(names []string, exports map[string]string) error {
	var trees []*ast.File
	for _, name := range names {
		path := filepath.Join(s.dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(s.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.files = append(s.files, &file{path, text, tree})
		trees = append(trees, tree)
	}

	s.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Uses:  map[*ast.Ident]types.Object{},
		Defs:  map[*ast.Ident]types.Object{},
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s was not compiled", path)
		}
		return os.Open(exports[path])
	}
	config := types.Config{Importer: importer.ForCompiler(s.fset, "gc", lookup)}
	_, err := config.Check(s.path, s.fset, trees, s.info)
	return err
}
