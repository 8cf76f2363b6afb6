package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// texting are methods whose result is for people or for metrics.
var texting = []string{"String", "GoString", "Error", "Format", "LogValue", "Describe", "Collect"}

// quietPackages are those whose calls do not affect the results of a program: logs and metrics.
var quietPackages = []string{
	"log", "log/slog", "go.uber.org/zap", "runtime",
	"github.com/prometheus/client_golang/prometheus",
}

// keptCalls are functions whose call is not removed: no test can detect that, or only by hanging.
var keptCalls = []string{
	"Lock", "Unlock", "RLock", "RUnlock", "Add", "Done", "Close", "Stop", "cancel", "stop", "close", "Sleep", "Grow",
}

// condition plants mutants of the condition of an if or a case.
func (p *planter) condition(cond ast.Expr, whole ast.Node, guard bool) {
	if !p.isBool(cond) {
		return
	}
	if guard {
		id := p.add(guardRemoved, whole.Pos(), cond.End())
		p.wrap(cond, "(", fmt.Sprintf(") && !mutantIs(%d)", id))
	}
	id := p.addNode(conditionNegate, cond)
	p.wrap(cond, "(", fmt.Sprintf(") != mutantIs(%d)", id))
}

// cases plants mutants of the conditions of a switch without a value.
func (p *planter) cases(n *ast.CaseClause) {
	s, ok := p.parents[len(p.parents)-2].(*ast.SwitchStmt)
	if !ok || s.Tag != nil || p.onlyQuiet(n.Body) {
		return
	}
	for _, cond := range n.List {
		p.condition(cond, n, false)
	}
}

// isGuard reports whether an if only leaves the function or loop: the branch that rejects invalid
// values.
func isGuard(n *ast.IfStmt) bool { return n.Else == nil && leaves(n.Body.List) }

func leaves(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	switch body[len(body)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// binary plants wrong operators: of a comparison, the boundary and the constant; of a conjunction
// or disjunction, the removal of each operand.
func (p *planter) binary(n *ast.BinaryExpr) {
	if p.info.Types[n].Value != nil || !guards(n, p.parents) {
		return
	}
	switch n.Op {
	case token.LAND, token.LOR:
		if p.isBool(n) {
			p.operand(n, n.X)
			p.operand(n, n.Y)
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
		p.comparison(n)
	}
}

// guards reports whether an expression with these parents is part of the decision to leave, or of
// the result of a predicate.
func guards(n ast.Node, parents []ast.Node) bool {
	for _, parent := range slices.Backward(parents) {
		switch parent := parent.(type) {
		case *ast.BinaryExpr, *ast.ParenExpr, *ast.UnaryExpr:
			n = parent
		case *ast.IfStmt:
			return parent.Cond == n && isGuard(parent)
		case *ast.CaseClause:
			return leaves(parent.Body) // whether n is in the list or in the body, it is complete there
		case *ast.ReturnStmt:
			return true
		default:
			return false
		}
	}
	return false
}

func (p *planter) operand(n *ast.BinaryExpr, side ast.Expr) {
	if inner, ok := side.(*ast.BinaryExpr); ok && inner.Op == n.Op || !p.isBool(side) {
		return // the operands of a chain are dropped one by one
	}
	id := p.addNode(operandDropped, side)
	neutral := fmt.Sprintf(" || mutantIs(%d))", id)
	if n.Op == token.LOR {
		neutral = fmt.Sprintf(" && !mutantIs(%d))", id)
	}
	p.wrap(side, "(", neutral)
}

// comparisons are the functions of the switch that compare.
var comparisons = map[token.Token]string{
	token.LSS: "mutantLess", token.LEQ: "mutantLessEqual", token.GTR: "mutantGreater", token.GEQ: "mutantGreaterEqual",
	token.EQL: "mutantEqual", token.NEQ: "mutantNotEqual",
}

func (p *planter) comparison(n *ast.BinaryExpr) {
	t, ok := p.info.Types[n.X].Type.Underlying().(*types.Basic)
	if !ok || p.shifts(n.X) || p.shifts(n.Y) {
		return
	}
	counts := t.Info()&types.IsInteger != 0 && (p.isCount(n.X) || p.isCount(n.Y))
	var arguments string
	function := comparisons[n.Op]
	switch equality := n.Op == token.EQL || n.Op == token.NEQ; {
	case equality && !(counts && types.Identical(p.info.Types[n.X].Type, types.Typ[t.Kind()])):
		return // members of an enumeration are not counts
	case equality:
		function += "Const"
		arguments = fmt.Sprint(p.addNode(constantOff, n))
	case counts:
		function += "Const"
		arguments = fmt.Sprintf("%d, %d", p.addNode(boundaryMoved, n), p.addNode(constantOff, n))
	case t.Info()&types.IsOrdered != 0:
		arguments = fmt.Sprint(p.addNode(boundaryMoved, n))
	default:
		return
	}
	p.wrap(n, fmt.Sprintf("%s(%s, ", function, arguments), ")")
	p.swaps = append(p.swaps, edit{at: p.offset(n.OpPos), remove: len(n.Op.String()), text: ","})
}

// isCount reports whether an operand is a constant, and neither a character nor a zero that stands
// for none.
func (p *planter) isCount(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return p.info.Types[e].Value != nil && !(ok && (literal.Kind == token.CHAR || literal.Value == "0"))
}

// shifts reports whether an operand shifts an untyped constant, whose type comes from its surroundings.
func (p *planter) shifts(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.SHL || b.Op == token.SHR) {
			found = found || p.info.Types[e].Value == nil && p.info.Types[b.X].Value != nil
		}
		return !found
	})
	return found
}

// returned plants lost errors and wrong results. The result of a guard is not changed: it matters
// where the guard's absence does.
func (p *planter) returned(n *ast.ReturnStmt) {
	results := p.signature().Results()
	if results.Len() != len(n.Results) || endsGuard(n, p.parents) {
		return
	}
	for i, r := range n.Results {
		switch t := results.At(i).Type(); {
		case types.Identical(t, types.Universe.Lookup("error").Type()) && !p.info.Types[r].IsNil():
			p.wrap(r, fmt.Sprintf("mutantError(%d, ", p.addNode(errorDropped, r)), ")")
		case types.Identical(t, types.Typ[types.Bool]) && p.isBool(r):
			p.wrap(r, "(", fmt.Sprintf(") != mutantIs(%d)", p.addNode(boolFlipped, r)))
		}
	}
}

func (p *planter) signature() *types.Signature {
	for _, n := range slices.Backward(p.parents) {
		switch n := n.(type) {
		case *ast.FuncLit:
			return p.info.Types[n].Type.(*types.Signature)
		case *ast.FuncDecl:
			return p.info.Defs[n.Name].Type().(*types.Signature)
		}
	}
	panic("a return outside of functions")
}

// endsGuard reports whether a return with these parents is the last statement of a guard.
func endsGuard(n *ast.ReturnStmt, parents []ast.Node) bool {
	guard, ok := parents[len(parents)-2].(*ast.IfStmt)
	return ok && isGuard(guard) && guard.Body.List[len(guard.Body.List)-1] == n
}

// statement plants the removal of a call whose result is not used.
func (p *planter) statement(n *ast.ExprStmt) {
	call, ok := n.X.(*ast.CallExpr)
	if !ok || p.quiet(call) || !inBlock(p.parents[len(p.parents)-1]) {
		return
	}
	if value := p.info.Types[call]; !value.IsVoid() && !isError(value.Type) ||
		slices.Contains(keptCalls, callName(call)) {
		return
	}
	p.wrap(n, fmt.Sprintf("if !mutantIs(%d) { ", p.addNode(callRemoved, n)), " }")
}

func inBlock(parent ast.Node) bool {
	switch parent.(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		return true
	}
	return false
}

// call plants the removal of a call whose only result is an error, such as Sync.
func (p *planter) call(n *ast.CallExpr) {
	if !isError(p.info.Types[n].Type) || p.info.Types[n.Fun].IsType() || p.makesError(n) || p.closesFile(n) {
		return
	}
	switch parent := p.parents[len(p.parents)-1].(type) {
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt:
		return
	case *ast.ReturnStmt:
		if endsGuard(parent, p.parents[:len(p.parents)-1]) {
			return
		}
	case *ast.AssignStmt:
		if name, ok := parent.Lhs[0].(*ast.Ident); ok && name.Name == "_" {
			return
		}
	}
	p.wrap(n, fmt.Sprintf("mutantCall(%d, func() error { return ", p.addNode(callRemoved, n)), " })")
}

// makesError reports whether a call only converts something to an error.
func (p *planter) makesError(n *ast.CallExpr) bool {
	f, ok := p.callee(n).(*types.Func)
	if ok && f.Pkg() != nil && (f.Pkg().Path() == "errors" || f.Pkg().Path() == "fmt") || p.makers[f] {
		return true
	}
	name := strings.ToLower(callName(n))
	return strings.HasPrefix(name, "err") || strings.HasSuffix(name, "err") ||
		strings.HasSuffix(name, "error") || strings.HasSuffix(name, "errorf")
}

// errorMakers returns the functions of the package that only make an error from a text.
func (s *source) errorMakers() map[*types.Func]bool {
	makers := map[*types.Func]bool{}
	for _, f := range s.files {
		for _, d := range f.ast.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil || len(d.Body.List) != 1 {
				continue
			}
			r, ok := d.Body.List[0].(*ast.ReturnStmt)
			if !ok || len(r.Results) != 1 {
				continue
			}
			call, ok := r.Results[0].(*ast.CallExpr)
			p := &planter{source: s}
			if ok && isError(s.info.Types[call].Type) && p.makesError(call) {
				makers[s.info.Defs[d.Name].(*types.Func)] = true
			}
		}
	}
	return makers
}

// closesFile reports whether a call closes a file of the system. A file that stays open is not
// detected by a test; another operator drops the error of its Close.
func (p *planter) closesFile(n *ast.CallExpr) bool {
	f, ok := p.callee(n).(*types.Func)
	return ok && f.Name() == "Close" && f.Pkg() != nil && f.Pkg().Path() == "os"
}

// quiet reports whether a call does not affect the results of the program: it logs, counts, makes
// the text of an error, or panics over a programming error.
func (p *planter) quiet(n *ast.CallExpr) bool {
	switch f := p.callee(n).(type) {
	case *types.Builtin:
		return f.Name() == "panic"
	case *types.Func:
		return f.Pkg() != nil && (slices.Contains(quietPackages, f.Pkg().Path()) || f.FullName() == "fmt.Errorf")
	}
	return false
}

func (p *planter) callee(n *ast.CallExpr) types.Object {
	switch f := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		return p.info.Uses[f]
	case *ast.SelectorExpr:
		return p.info.Uses[f.Sel]
	}
	return nil
}

// onlyQuiet reports whether statements only log, count or panic.
func (p *planter) onlyQuiet(body []ast.Stmt) bool {
	for _, s := range body {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		if call, ok := e.X.(*ast.CallExpr); !ok || !p.quiet(call) {
			return false
		}
	}
	return len(body) > 0
}

func callName(n *ast.CallExpr) string {
	switch f := ast.Unparen(n.Fun).(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// isBool reports whether an expression is of the unnamed boolean type and not a constant.
func (p *planter) isBool(e ast.Expr) bool {
	t, ok := types.Unalias(p.info.Types[e].Type).(*types.Basic)
	return ok && t.Info()&types.IsBoolean != 0
}

func isError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}
