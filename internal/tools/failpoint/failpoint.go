// Package failpoint reads from the sources where a crash test can kill a process: the named steps
// before every sync and rename of the packages that write a registry's storage.
//
// It runs nothing and is not part of a program: tests and the fault suite use its list.
//
// Invariant: every sync and rename in those packages has its own step before it, and every step
// that names a sync is followed by one, or Read fails and names the line.
package failpoint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Dirs are the packages that write a registry's storage.
var Dirs = []string{"internal/blob/disk", "internal/layout", "internal/registry"}

// durable are the calls that make something survive a crash.
// Rename of the storage has a label
var durable = []string{"Sync", "Fsync", "Fdatasync", "SyncData", "SyncDir", "SyncWith", "Rename"}

// bare are functions whose callers announce the step.
var bare = []string{"Sync", "SyncWith", "SyncDir", "syncDir", "SyncData"}

// Read returns the names of all steps, sorted. root is the module's directory.
func Read(root string) ([]string, error) {
	s := &sources{fset: token.NewFileSet(), labelled: map[string][]string{}}
	for _, dir := range Dirs {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(names) == 0 {
			return nil, errors.Join(err, fmt.Errorf("no sources in %s", dir))
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(s.fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			s.files = append(s.files, f)
		}
	}
	for range 3 { // methods that pass their label on are known after those that they call
		s.learn()
	}
	return s.points()
}

type sources struct {
	fset  *token.FileSet
	files []*ast.File
	// labelled maps methods whose first argument is a label to the suffixes of the steps that they announce.
	labelled map[string][]string
}

// functions calls do for every function that has a body.
func (s *sources) functions(do func(*ast.FuncDecl)) {
	for _, f := range s.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				do(fn)
			}
		}
	}
}

// called returns the name of a called method or function and its arguments.
func called(n ast.Node) (string, []ast.Expr, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", nil, false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", nil, false
	}
	return sel.Sel.Name, call.Args, true
}

// learn finds methods with a parameter "label" and the steps that they announce under it.
func (s *sources) learn() {
	s.functions(func(fn *ast.FuncDecl) {
		params := fn.Type.Params.List
		if len(params) == 0 || len(params[0].Names) == 0 || params[0].Names[0].Name != "label" {
			return
		}
		suffixes := map[string]bool{}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			name, args, ok := called(n)
			if !ok || len(args) == 0 {
				return true
			}
			if sum, ok := args[0].(*ast.BinaryExpr); ok && name == "AnnounceStep" && isLabel(sum.X) {
				suffixes[text(sum.Y)] = true
			}
			if isLabel(args[0]) {
				for _, suffix := range s.labelled[name] {
					suffixes[suffix] = true
				}
			}
			return true
		})
		s.labelled[fn.Name.Name] = slices.Sorted(maps.Keys(suffixes))
	})
}

func isLabel(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "label"
}

// text returns the value of a string literal, "" for anything else.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return value
}

// syncStep returns the end of the name of a step that announces a sync, "" for others.
func syncStep(args []ast.Expr) string {
	if len(args) == 0 {
		return ""
	}
	name := text(args[0])
	if sum, ok := args[0].(*ast.BinaryExpr); ok {
		name = text(sum.Y)
	}
	if strings.HasSuffix(name, "sync") {
		return name
	}
	return ""
}

// points collects the names and complains about syncs and renames without a step.
func (s *sources) points() ([]string, error) {
	all := map[string]bool{}
	var errs []error
	s.functions(func(fn *ast.FuncDecl) {
		announced, unsynced := false, ""
		missed := func() {
			if unsynced != "" {
				errs = append(errs, fmt.Errorf("%s: no sync follows the step %q in %s", s.fset.Position(fn.Pos()),
					unsynced, fn.Name.Name))
			}
			unsynced = ""
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			name, args, ok := called(n)
			if !ok {
				return true
			}
			first := ""
			if len(args) > 0 {
				first = text(args[0])
			}
			suffixes := s.labelled[name]
			switch {
			case name == "AnnounceStep":
				missed()
				announced, unsynced = true, syncStep(args)
				if first != "" {
					all[first] = true
				}
			case len(suffixes) > 0 && (first != "" || len(args) > 0 && isLabel(args[0])):
				for _, suffix := range suffixes {
					if first != "" {
						all[first+suffix] = true
					}
				}
			case slices.Contains(durable, name) && !slices.Contains(bare, fn.Name.Name):
				if !announced {
					errs = append(errs, fmt.Errorf("%s: %s in %s has no separate step before it",
						s.fset.Position(n.Pos()), name, fn.Name.Name))
				}
				announced = false
				if name != "Rename" {
					unsynced = ""
				}
			}
			return true
		})
		missed()
	})
	return slices.Sorted(maps.Keys(all)), errors.Join(errs...)
}
