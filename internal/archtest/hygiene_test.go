package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	fileLimit     = 700 // lines of a Go file
	fileWarning   = 500
	functionLimit = 80 // lines of a function outside tests
	mainLimit     = 40 // lines of a program's main file
	columnLimit   = 120
	tabWidth      = 4 // columns of a tab
)

var (
	sentenceEnd = regexp.MustCompile(`[.!?:](\s|$)`)
	denial      = regexp.MustCompile(`(?i)\b(not|no|never|nothing|none|neither|without|only)\b`)
	directive   = regexp.MustCompile(`//(nolint|go):`)
	invariant   = regexp.MustCompile(`(?m)^Invariants?: `)
)

// checkPackageComments lists packages whose comment does not describe what they are, what they are
// not, and what always holds. A program's package comment is its help text, so only its presence is
// checked.
func checkPackageComments(t *tree) []string {
	docs, names := map[string]string{}, map[string]string{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		names[f.dir] = f.ast.Name.Name
		docs[f.dir] += f.ast.Doc.Text()
	}
	var out []string
	for dir, name := range names {
		doc := docs[dir]
		switch {
		case doc == "":
			out = append(out, dir+" has no package comment")
		case name == "main":
		case !strings.HasPrefix(doc, "Package "+name+" "):
			out = append(out, dir+": the package comment does not begin with \"Package "+name+"\", or there are two")
		case len(sentenceEnd.FindAllString(doc, -1)) < 3:
			out = append(out, dir+": the package comment has fewer than three sentences")
		case !denial.MatchString(doc):
			out = append(out, dir+": the package comment does not say what the package is not")
		case !invariant.MatchString(doc):
			out = append(out, dir+": the package comment has no line that begins with \"Invariant:\"")
		}
	}
	slices.Sort(out)
	return out
}

// checkLengths lists files and functions over their limits, and separately the files that come close.
func checkLengths(t *tree) (bad, near []string) {
	for _, f := range t.files {
		switch {
		case f.lines > fileLimit:
			bad = append(bad, fmt.Sprintf("%s has %d lines, the limit is %d", f.path, f.lines, fileLimit))
		case f.lines > fileWarning:
			near = append(near, fmt.Sprintf("%s has %d lines", f.path, f.lines))
		}
		if ok, _ := path.Match("cmd/*/main.go", f.path); ok && f.lines > mainLimit {
			bad = append(bad, fmt.Sprintf("%s has %d lines, the limit of a main is %d", f.path, f.lines, mainLimit))
		}
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			if lines > functionLimit {
				bad = append(bad, fmt.Sprintf("%s: %s has %d lines, the limit is %d", t.where(fn.Pos()), fn.Name.Name,
					lines, functionLimit))
			}
		}
	}
	return bad, near
}

// checkColumns lists lines over the limit. Lines of raw string literals, which cannot be broken, and lines with a
// directive for a tool may be longer.
func checkColumns(t *tree) []string {
	var out []string
	for _, f := range t.files {
		raw := rawLines(t, f)
		n := 0
		for line := range strings.Lines(f.text) {
			n++
			line = strings.TrimRight(line, "\r\n")
			columns := utf8.RuneCountInString(line) + strings.Count(line, "\t")*(tabWidth-1)
			if columns > columnLimit && !raw[n] && !directive.MatchString(line) {
				out = append(out, fmt.Sprintf("%s:%d has %d columns, the limit is %d", f.path, n, columns, columnLimit))
			}
		}
	}
	return out
}

// rawLines returns the lines of a file that raw string literals are on.
func rawLines(t *tree, f *source) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && s.Value[0] == '`' {
			for l := t.fset.Position(s.Pos()).Line; l <= t.fset.Position(s.End()).Line; l++ {
				lines[l] = true
			}
		}
		return true
	})
	return lines
}

// checkExportedComments lists exported declarations without a comment. A comment on a group of
// constants or variables covers its members, and methods that only implement an interface of the
// standard library need none.
func checkExportedComments(t *tree) []string {
	var out []string
	for _, f := range t.files {
		if f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !wellKnown[d.Name.Name] {
					out = append(out, t.where(d.Pos())+" "+d.Name.Name)
				}
			case *ast.GenDecl:
				out = append(out, uncommented(t, d)...)
			}
		}
	}
	return out
}

// wellKnown are methods whose meaning is defined by their name and interface.
var wellKnown = map[string]bool{
	"Error": true, "Unwrap": true, "String": true, "Len": true, "Less": true, "Swap": true, "Close": true,
	"Read": true, "Write": true, "ReadAt": true, "WriteAt": true, "Seek": true, "Is": true, "As": true,
	"MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true, "ServeHTTP": true,
	"LogValue": true, "Set": true, "Type": true,
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}

func uncommented(t *tree, d *ast.GenDecl) []string {
	var out []string
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				out = append(out, t.where(s.Pos())+" "+s.Name.Name)
			}
		case *ast.ValueSpec:
			if d.Doc != nil || s.Doc != nil || s.Comment != nil {
				continue
			}
			for _, n := range s.Names {
				if n.IsExported() {
					out = append(out, t.where(n.Pos())+" "+n.Name)
				}
			}
		}
	}
	return out
}

// checkTests lists fuzz tests without seeds and skips without a reason.
func checkTests(t *tree) []string {
	var out []string
	for _, f := range t.files {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") && !t.seeded(f, fn) {
				out = append(out, t.where(fn.Pos())+" "+fn.Name.Name+" has no seeds")
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if ok && (sel.Sel.Name == "SkipNow" || sel.Sel.Name == "Skip" && len(call.Args) == 0) {
					out = append(out, t.where(call.Pos())+" skips without a reason")
				}
				return true
			})
		}
	}
	return out
}

// seeded reports whether a fuzz test adds seeds, passes its f to a function that may, or has a
// corpus next to it.
func (t *tree) seeded(f *source, fn *ast.FuncDecl) bool {
	corpus := path.Join(f.dir, "testdata/fuzz", fn.Name.Name) + "/"
	if slices.ContainsFunc(t.names, func(n string) bool { return strings.HasPrefix(n, corpus) }) {
		return true
	}
	if len(fn.Type.Params.List) != 1 || len(fn.Type.Params.List[0].Names) != 1 {
		return false
	}
	name, found := fn.Type.Params.List[0].Names[0].Name, false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Add" && isName(sel.X, name) {
			found = true
		}
		for _, a := range call.Args {
			found = found || isName(a, name)
		}
		return true
	})
	return found
}

// growers are packages with delays that grow without internal/retry.
var growers = []string{
	"client", // imports nothing internal
}

// checkBackoffs lists assignments that multiply a variable up to a limit, like wait = min(2*wait, longest): delays
// that grow without jitter.
func checkBackoffs(t *tree) []string {
	var out []string
	for _, f := range t.product() {
		if matchesAny(growers, f.dir) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			set, ok := n.(*ast.AssignStmt)
			if !ok || len(set.Lhs) != 1 || len(set.Rhs) != 1 {
				return true
			}
			call, ok := set.Rhs[0].(*ast.CallExpr)
			if ok && isName(call.Fun, "min") && multiplies(call, types.ExprString(set.Lhs[0])) {
				out = append(out, t.where(n.Pos())+" multiplies "+types.ExprString(set.Lhs[0]))
			}
			return true
		})
	}
	return out
}

// multiplies reports whether an expression has a product of something that is written as name.
func multiplies(e ast.Expr, name string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if p, ok := n.(*ast.BinaryExpr); ok && p.Op == token.MUL {
			found = found || types.ExprString(p.X) == name || types.ExprString(p.Y) == name
		}
		return true
	})
	return found
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func TestHygiene(t *testing.T) {
	tr := theTree(t)
	report(t,
		"a package says what it is, what it is not, and its one invariant, since new readers read that first",
		checkPackageComments(tr))
	report(t, "exported things are commented, since callers read the comment and not the code",
		checkExportedComments(tr))
	report(t, "a fuzz test has seeds to start from, and a skip says why, since both are silent otherwise",
		checkTests(tr))
	report(t, "delays between attempts come from internal/retry, so that many nodes do not try again simultaneously",
		checkBackoffs(tr))
	report(t, "a line is short enough to be read in a side-by-side diff", checkColumns(tr))
	bad, near := checkLengths(tr)
	report(t, "files and functions stay short enough to be held in the head", bad)
	for _, n := range near {
		t.Log(n)
	}
}

func TestHygieneRulesCatch(t *testing.T) {
	long, wide := strings.Repeat("\n", fileLimit), strings.Repeat("x", columnLimit)
	tr := small(t, map[string]string{
		"none/a.go":  "package none\n",
		"short/a.go": "// Package short is short.\npackage short\n",
		"twice/a.go": "// Package twice is it. It is not that.\n//\n// Invariant: it never is.\npackage twice\n",
		"twice/b.go": "// It is also this.\npackage twice\n",
		"other/a.go": "// Package another is it. It is not that.\n//\n// Invariant: it never is.\npackage other\n",
		"vague/a.go": "// Package vague is it. It is not that. It never is.\npackage vague\n",
		"proud/a.go": "// Package proud is fine. It is good. It shines.\npackage proud\n",
		"fine/a.go": "// Package fine is it. It is not that.\n//\n// Invariant: it never is.\npackage fine\nfunc F() " +
			"{}\ntype T int\nfunc (T) String() string { return \"\" }\nfunc (*T) M() {}\nfunc (t) N() {}\ntype t " +
			"int\nconst C = 1\n// Said.\nvar A, B = 1, 2\n",
		"fine/long.go":   "package fine\nfunc f() {" + strings.Repeat("\n", functionLimit) + "}\n",
		"fine/longer.go": "package fine" + long + "\n",
		"cmd/x/main.go":  "// X does it.\npackage main\n" + strings.Repeat("\n", mainLimit),
		"fine/a_test.go": "package fine\nimport \"testing\"\nfunc FuzzA(f *testing.F) { f.Fuzz(nil) " +
			"}\nfunc FuzzB(f *testing.F) { f.Add(1) }\nfunc FuzzC(f *testing.F) { seed(f) }\nfunc FuzzD(f " +
			"*testing.F) " +
			"{}\nfunc TestS(t *testing.T) { t.Skip(); t.SkipNow(); t.Skip(\"no\") }\n",
		"fine/testdata/fuzz/FuzzD/1": "x",
		"fine/wait.go": "package fine\nfunc g() {\nfor wait := 1; ; wait = min(2*wait, 9) {\na.b = " +
			"min(max(a.b*2, 1), 9)\nwait = min(2*a, wait)\n}\n}\n",
		"fine/wide.go": "package fine\n//" + wide[2:] + "\n//" + wide[2:] + "é\nvar w = `" + wide + "` // \n//go:" +
			wide +
			"\n\tvar t = " + wide[12:] + "\n",
		"client/wait.go": "// Package client is it. It is not that.\n//\n// Invariant: it never is.\npackage client\n" +
			"func g() { wait = min(2*wait, 9) }\n",
	})
	expect(t, checkPackageComments(tr),
		"none has no package comment",
		"other: the package comment does not begin with \"Package other\", or there are two",
		"proud: the package comment does not say what the package is not",
		"short: the package comment has fewer than three sentences",
		"vague: the package comment has no line that begins with \"Invariant:\"")
	expect(t, checkExportedComments(tr), "fine/a.go:5 F", "fine/a.go:6 T", "fine/a.go:8 M", "fine/a.go:11 C")
	expect(t, checkTests(tr), "fine/a_test.go:3 FuzzA has no seeds", "fine/a_test.go:7 skips without a reason",
		"fine/a_test.go:7 skips without a reason")
	expect(t, checkBackoffs(tr), "fine/wait.go:3 multiplies wait", "fine/wait.go:4 multiplies a.b")
	expect(t, checkColumns(tr), "fine/wide.go:3 has 121 columns, the limit is 120")
	bad, _ := checkLengths(tr)
	expect(t, bad,
		"cmd/x/main.go has 42 lines, the limit of a main is 40",
		"fine/long.go:2: f has 81 lines, the limit is 80",
		"fine/longer.go has 701 lines, the limit is 700")
}
