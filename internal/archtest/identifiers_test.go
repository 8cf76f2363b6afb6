package archtest

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
	"unicode"
)

// namesOf returns the names that non-test Go files declare, as lines of words: what is declared is written in the
// language of the texts. Tags of fields do not count: they are the names on the wire and in stored records.
func namesOf(t *tree) []prose {
	var out []prose
	for _, f := range t.files {
		if f.test {
			continue
		}
		free := freeLines(t, f)
		for _, id := range declared(f.ast) {
			line := t.fset.Position(id.Pos()).Line
			if words := wordsOf(id.Name); !free[line] && words != "" {
				out = append(out, prose{f.path, line, fmt.Sprintf("%s (%s)", words, id.Name), words})
			}
		}
	}
	return out
}

// freeLines returns the lines of a file with the mark that allows banned words.
func freeLines(t *tree, f *source) map[int]bool {
	free := map[int]bool{}
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if strings.Contains(c.Text, allowed) {
				free[t.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return free
}

// declared returns the identifiers that a file declares: functions, types, constants, variables, fields, methods,
// parameters, labels and names of imports.
func declared(file *ast.File) []*ast.Ident {
	var out []*ast.Ident
	add := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok && id != nil {
				out = append(out, id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ImportSpec:
			add(n.Name)
		case *ast.LabeledStmt:
			add(n.Label)
		case *ast.ValueSpec:
			out = append(out, n.Names...)
		case *ast.Field:
			out = append(out, n.Names...)
		case *ast.AssignStmt:
			if n.Tok.String() == ":=" {
				add(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok.String() == ":=" {
				add(n.Key, n.Value)
			}
		}
		return true
	})
	return out
}

// wordsOf splits a name at capitals and underscores: "serveHTTP_now" is "serve http now".
func wordsOf(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case r == '_':
			out.WriteByte(' ')
			continue
		case i == 0 || !unicode.IsUpper(r):
		case !unicode.IsUpper(runes[i-1]), i+1 < len(runes) && unicode.IsLower(runes[i+1]):
			out.WriteByte(' ')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

func TestNamesAreReadAsWords(t *testing.T) {
	for name, want := range map[string]string{
		"_": "", "goOut": "go out", "GoesOut2": "goes out2", "serveHTTP_now": "serve http now",
		"HTTPServer": "http server", "ID": "id", "onTop": "on top", "PLUGH": "plugh",
	} {
		if got := wordsOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	tr := small(t, map[string]string{
		"a/a.go": "package a\n\nimport plugh \"fmt\"\n\ntype Plugh[plugh any] struct {\n\tA, isPlugh int " +
			"`json:\"plugh\"`\n}\n\ntype i interface{ OfPlugh() }\n\nvar plughs = plugh.Sprint(plugh.X)\n\n" +
			"func (plugh i) ToPlugh(a int) (thePlugh int) {\nPlugh:\n\tfor plugh, x := range a {\n\t\tb, other := " +
			"plugh, x\n\t\tplugh = 1\n\t\tcontinue Plugh\n\t}\n}\n\nconst PlughOnWire = 1 // glossary:allow\n",
		"a/a_test.go": "package a\n\nvar plugh int\n",
	})
	words, err := parseBanned("\\bplugh\\b\tname the actor\t0\t0\n")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, having(namesOf(tr), words[0]), "a/a.go:3: plugh (plugh)", "a/a.go:5: plugh (Plugh)",
		"a/a.go:5: plugh (plugh)", "a/a.go:6: is plugh (isPlugh)", "a/a.go:9: of plugh (OfPlugh)",
		"a/a.go:13: to plugh (ToPlugh)", "a/a.go:13: plugh (plugh)", "a/a.go:13: the plugh (thePlugh)",
		"a/a.go:14: plugh (Plugh)", "a/a.go:15: plugh (plugh)")
}
