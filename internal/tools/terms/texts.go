package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// textCalls are the functions and methods whose first text a user reads, by the kind of text.
var textCalls = map[string]string{
	"Errorf": "error", "New": "error", "Invalid": "error", "Refused": "error", "Unavailable": "error",
	"Debug": "log", "Info": "log", "Warn": "log", "Error": "log",
	"DebugContext": "log", "InfoContext": "log", "WarnContext": "log", "ErrorContext": "log",
	"GaugeFamily": "metric", "CounterFamily": "metric", "HistogramFamily": "metric", "Family": "metric",
}

// textFields are the fields of literals that a user reads.
var textFields = map[string]string{"Short": "help", "Long": "help", "Help": "help", "Title": "portal"}

var flagCall = regexp.MustCompile(`^(Bool|Duration|Int|String|StringArray|StringSlice|StringToString|Uint)?VarP?$`)

// goTexts returns the texts of a Go file.
func goTexts(set *token.FileSet, file *ast.File, name string) (texts []sample) {
	add := func(kind string, lit *ast.BasicLit, text string) {
		place := fmt.Sprintf("%s:%d", name, set.Position(lit.Pos()).Line)
		texts = append(texts, sample{kind: kind, text: text, place: place})
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			called := calledName(node)
			kind, first := textCalls[called], true
			if flagCall.MatchString(called) {
				kind, first = "help", false
			}
			if lit, text := literal(node.Args, first); kind != "" && lit != nil {
				add(kind, lit, field(called, node.Args)+text)
			}
		case *ast.KeyValueExpr:
			key, ok := node.Key.(*ast.Ident)
			if !ok {
				break
			}
			if lit, text := literal([]ast.Expr{node.Value}, true); textFields[key.Name] != "" && lit != nil {
				add(textFields[key.Name], lit, text)
			}
		}
		return true
	})
	return texts
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// field returns the name that an error about a field begins with: Invalid("name", "is required") reads
// "name: is required".
func field(called string, args []ast.Expr) string {
	if called != "Invalid" || len(args) == 0 {
		return ""
	}
	lit, ok := args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	name, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return name + ": "
}

// words matches a text of two words or more, verbs of a format aside.
var words = regexp.MustCompile(`(^|[^%a-z])[A-Za-z]{2,}\W+(%\S+\W+)*[A-Za-z]{2,}`)

// literal returns the first or last argument that is a text of several words.
func literal(args []ast.Expr, first bool) (found *ast.BasicLit, text string) {
	for _, arg := range args {
		lit, ok := arg.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || found != nil && first {
			continue
		}
		if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(s, " ") && words.MatchString(s) {
			found, text = lit, s
		}
	}
	return found, text
}

var (
	templateText = regexp.MustCompile(`>([^<>{}]*[a-z]{2}[^<>{}]*)<`)
	inlineTag    = regexp.MustCompile(`</?(?:b|code|em|i|kbd|strong)>`)
	description  = regexp.MustCompile(`^\s*(?:summary|description): ([^{].*\w.*)$`)
)

// readTemplate returns the texts between the tags of a page of the portal; tags within a sentence do not part it.
func readTemplate(name string, content []byte) (_, texts []sample, err error) {
	return nil, matches("portal", templateText, name, inlineTag.ReplaceAll(content, nil)), nil
}

// readDescription returns the summaries and descriptions of the API.
func readDescription(name string, content []byte) (_, texts []sample, err error) {
	return nil, matches("API", description, name, content), nil
}

func matches(kind string, pattern *regexp.Regexp, name string, content []byte) (texts []sample) {
	for i, line := range strings.Split(string(content), "\n") {
		for _, m := range pattern.FindAllStringSubmatch(line, -1) {
			place := fmt.Sprintf("%s:%d", name, i+1)
			texts = append(texts, sample{kind: kind, text: strings.TrimSpace(m[1]), place: place})
		}
	}
	return texts
}
