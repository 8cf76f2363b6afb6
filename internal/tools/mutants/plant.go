package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
)

// The operators: how a mutant changes the code.
const (
	guardRemoved    = "guard removed"     // if cond { ...; return } is never entered
	conditionNegate = "condition negated" // if cond is if !cond
	boundaryMoved   = "boundary moved"    // a < b is a <= b
	constantOff     = "constant off"      // a < 8 is a < 7
	operandDropped  = "operand dropped"   // a && b is a
	errorDropped    = "error dropped"     // return err is return nil
	callRemoved     = "call removed"      // f() does nothing, and returns a nil error
	boolFlipped     = "bool flipped"      // return true is return false
)

// mutant is one error that can be planted.
type mutant struct {
	ID       int    `json:"id"`
	File     string `json:"file"` // relative to the module
	Line     int    `json:"line"`
	Function string `json:"function"`
	Operator string `json:"operator"`
	Source   string `json:"source"` // the text that it replaces, on one line
	Result   string `json:"result,omitempty"`
}

// edit inserts text into a file, replacing the number of bytes that it removes.
type edit struct {
	at, remove int
	text       string
}

// planter adds all mutants of a file, each with a switch.
type planter struct {
	*source
	makers  map[*types.Func]bool // see errorMakers
	file    *file
	name    string // of the file, relative to the module
	mutants []*mutant
	opens   []edit // in the order of the walk: outer nodes come first
	closes  []edit
	swaps   []edit
	parents []ast.Node
}

//go:embed switch.go.txt
var switchText string

// plant returns the mutants of a package, numbered from 1, and its files with all of them inside.
// Lines keep their numbers. One file is new: it contains the switch.
func (s *source) plant(moduleDir string) ([]*mutant, map[string]string, error) {
	var mutants []*mutant
	makers := s.errorMakers()
	texts := map[string]string{} // path -> text
	for _, f := range s.files {
		if ast.IsGenerated(f.ast) {
			continue
		}
		name, err := filepath.Rel(moduleDir, f.path)
		if err != nil {
			return nil, nil, err
		}
		p := &planter{source: s, makers: makers, file: f, name: filepath.ToSlash(name), mutants: mutants}
		p.walk()
		mutants = p.mutants
		texts[f.path] = p.text()
	}
	texts[filepath.Join(s.dir, "mutant_switch.go")] = fmt.Sprintf(switchText, s.name, len(mutants))
	return mutants, texts, nil
}

func (p *planter) walk() {
	ast.Inspect(p.file.ast, func(n ast.Node) bool {
		if n == nil {
			p.parents = p.parents[:len(p.parents)-1]
			return false
		}
		if !p.visit(n) {
			return false
		}
		p.parents = append(p.parents, n)
		return true
	})
}

// visit plants the mutants of a node, and reports whether its children may be changed.
func (p *planter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return !slices.Contains(texting, n.Name.Name)
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.IfStmt:
		if n.Else == nil && p.onlyQuiet(n.Body.List) {
			return false
		}
		p.condition(n.Cond, n, isGuard(n))
	case *ast.CaseClause:
		p.cases(n)
	case *ast.BinaryExpr:
		p.binary(n)
	case *ast.ReturnStmt:
		p.returned(n)
	case *ast.ExprStmt:
		p.statement(n)
	case *ast.CallExpr:
		if p.quiet(n) {
			return false
		}
		p.call(n)
	}
	return true
}

// add numbers a mutant that changes the text from one position to another.
func (p *planter) add(operator string, from, to token.Pos) int {
	m := &mutant{
		ID: len(p.mutants) + 1, File: p.name, Line: p.fset.Position(from).Line, Function: p.function(),
		Operator: operator,
		Source:   strings.Join(strings.Fields(string(p.file.text[p.offset(from):p.offset(to)])), " "),
	}
	p.mutants = append(p.mutants, m)
	return m.ID
}

func (p *planter) addNode(operator string, n ast.Node) int { return p.add(operator, n.Pos(), n.End()) }

func (p *planter) wrap(n ast.Node, before, after string) {
	p.opens = append(p.opens, edit{at: p.offset(n.Pos()), text: before})
	p.closes = append(p.closes, edit{at: p.offset(n.End()), text: after})
}

func (p *planter) offset(pos token.Pos) int { return p.fset.Position(pos).Offset }

// function names the function of the node: "name", "(T).name" or "(*T).name".
func (p *planter) function() string {
	for _, n := range p.parents {
		d, ok := n.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if d.Recv == nil {
			return d.Name.Name
		}
		return "(" + types.ExprString(d.Recv.List[0].Type) + ")." + d.Name.Name
	}
	return "var"
}

// text returns the file with all edits applied: at one position, ends come before beginnings, the
// inner end before the outer one, and the outer beginning before the inner one.
func (p *planter) text() string {
	slices.Reverse(p.closes)
	all := slices.Concat(p.closes, p.swaps, p.opens)
	slices.SortStableFunc(all, func(a, b edit) int { return a.at - b.at })
	var b strings.Builder
	at := 0
	for _, e := range all {
		b.Write(p.file.text[at:e.at])
		b.WriteString(e.text)
		at = e.at + e.remove
	}
	b.Write(p.file.text[at:])
	return b.String()
}
