package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// excluded are directories without product code, in addition to those whose names end in test.
var excluded = []string{".git", ".ci", "bin", "testdata", "vendor", "node_modules"}

// collect returns the names and texts of all product code below dir, in the order of their files.
func collect(dir string) (names, texts []sample, err error) {
	tree := os.DirFS(dir)
	packages := map[string]bool{}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if slices.Contains(excluded, base) || strings.HasSuffix(base, "test") || name == "internal/tools" {
				return fs.SkipDir
			}
			return nil
		}

		read := readerOf(name)
		if read == nil {
			return nil
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		n, t, err := read(name, content)
		if len(n) > 0 && !packages[path.Dir(name)] {
			packages[path.Dir(name)] = true
			names = append(names, sample{kind: "package", text: path.Base(path.Dir(name)), place: path.Dir(name)})
		}
		names, texts = append(names, n...), append(texts, t...)
		return err
	})
	return names, texts, err
}

// readerOf returns what reads the samples of a file; nil for other files.
func readerOf(name string) func(name string, content []byte) (names, texts []sample, err error) {
	switch base := path.Base(name); {
	case strings.HasSuffix(base, "_test.go"), base == "deprecated.go":
		return nil
	case strings.HasSuffix(base, ".go"):
		return readGo
	case strings.HasPrefix(name, "internal/portal/") && strings.HasSuffix(base, ".html"):
		return readTemplate
	case name == "api/openapi.yaml":
		return readDescription
	}
	return nil
}

// readGo returns the names that a Go file declares, and its texts.
func readGo(name string, content []byte) (names, texts []sample, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, nil, err
	}

	lines := strings.Split(string(content), "\n")
	in := path.Dir(name)
	names = append(names, sample{kind: "file", text: path.Base(name), place: in})
	add := func(kind, text string, at token.Pos) {
		if text != "_" && text != "main" && text != "init" {
			decl := strings.TrimSpace(lines[set.Position(at).Line-1])
			names = append(names, sample{kind: kind, text: text, place: in, decl: decl})
		}
	}

	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			kind := "function"
			if node.Recv != nil {
				kind = "method"
			}
			add(kind, node.Name.Name, node.Name.Pos())
		case *ast.TypeSpec:
			add("type", node.Name.Name, node.Name.Pos())
			for _, field := range fieldsOf(node.Type) {
				add("field", node.Name.Name+"."+field.Name, field.Pos())
			}
		}
		return true
	})
	return names, goTexts(set, file, name), nil
}

// fieldsOf returns the named fields of a struct, and the methods of an interface.
func fieldsOf(expr ast.Expr) (names []*ast.Ident) {
	var list *ast.FieldList
	switch t := expr.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		names = append(names, f.Names...)
	}
	return names
}
