package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/sanitize"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// maxTemplateOutput limits the output of a template, which may repeat its parts, in bytes.
const maxTemplateOutput = 256 << 20

// TemplateData is what a template is executed with.
type TemplateData struct {
	Tool    string
	Version string    // of the program
	Now     time.Time // in UTC
	Reports []TemplateReport
}

// TemplateReport is the report of one source for a template. The types are those of package api.
type TemplateReport struct {
	Source   api.ScanSource
	Packages []api.ScanPackage // sorted by name
	Matches  []api.ScanMatch   // sorted by package name; none when packages are only listed
	Coverage api.ScanCoverage
}

// templateFuncs are the functions of templates, besides those of text/template.
var templateFuncs = template.FuncMap{
	"join":  func(sep string, list []string) string { return strings.Join(list, sep) },
	"upper": strings.ToUpper,
	"lower": strings.ToLower,
	"md":    escapeMarkdown,
	"json":  toJSON,
	"paths": func(p api.ScanPackage) []string {
		out := make([]string, len(p.Locations))
		for i, l := range p.Locations {
			out[i] = l.Path
		}
		return out
	},
	"severity": func(severity string, list []api.ScanMatch) []api.ScanMatch {
		var out []api.ScanMatch
		for _, m := range list {
			if m.Vulnerability.Severity == severity {
				out = append(out, m)
			}
		}
		return out
	},
	"default": func(other, s string) string {
		if s == "" {
			return other
		}
		return s
	},
}

func toJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// ParseTemplate parses the text of a template in the language of Go's text/template.
func ParseTemplate(text string) (*template.Template, error) {
	t, err := template.New("template").Funcs(templateFuncs).Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	for _, defined := range t.Templates() {
		addStops(defined.Root)
		addStop(defined.Root)
	}
	return t, nil
}

// addStops adds stops to all loops in a list.
func addStops(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		var branch *parse.BranchNode
		switch n := n.(type) {
		case *parse.RangeNode:
			branch = &n.BranchNode
			addStop(n.List)
		case *parse.IfNode:
			branch = &n.BranchNode
		case *parse.WithNode:
			branch = &n.BranchNode
		default:
			continue
		}
		addStops(branch.List)
		addStops(branch.ElseList)
	}
}

// addStop makes a list begin with an empty text: the output of a template, which may end its execution, then receives
// something in every turn of a loop and in every template that is called.
func addStop(list *parse.ListNode) {
	list.Nodes = slices.Insert(list.Nodes, 0, parse.Node(&parse.TextNode{NodeType: parse.NodeText}))
}

// maxTemplateBytes limits the text of a template, in bytes.
const maxTemplateBytes = 1 << 20

// LoadTemplate reads and parses the file of a template, which the format template requires and others refuse: they
// have nil.
func LoadTemplate(ctx context.Context, f Format, path string) (*template.Template, error) {
	switch {
	case f != Template && path == "":
		return nil, nil
	case f != Template:
		return nil, fmt.Errorf("--template requires --report-format template, not %s", f)
	case path == "":
		return nil, errors.New("--report-format template requires a file: --template FILE")
	}
	raw, err := input.ReadAll(ctx, path, maxTemplateBytes)
	if err != nil {
		return nil, fmt.Errorf("read the template %s: %w", path, err)
	}
	t, err := ParseTemplate(string(raw))
	if err != nil {
		return nil, fmt.Errorf("parse the template %s: %w", path, err)
	}
	return t, nil
}

// writeTemplate executes a template. Control characters of names are replaced in what it writes.
func writeTemplate(w io.Writer, reports []Report, o Options) error {
	if o.Template == nil {
		return errors.New("the report format template has no template")
	}
	data := TemplateData{Tool: o.Tool, Version: o.Version, Now: o.Now.UTC()}
	for _, r := range reports {
		data.Reports = append(data.Reports, TemplateReport{r.Source, r.Packages, r.Matches, r.Coverage})
	}
	out := &limitedBuffer{limit: maxTemplateOutput, stop: o.Stop}
	if err := o.Template.Execute(out, data); err != nil {
		if failed := (template.ExecError{}); errors.As(err, &failed) { // its text names the template and the place
			return fmt.Errorf("execute the %s", strings.TrimPrefix(err.Error(), "template: "))
		}
		return fmt.Errorf("execute the template: %w", err)
	}
	_, err := io.WriteString(w, sanitize.EscapeLines(out.String()))
	return err
}

// limitedBuffer is a buffer that refuses more than limit bytes, and all after stop has returned an error.
type limitedBuffer struct {
	bytes.Buffer
	limit int
	stop  func() error // may be nil
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.stop != nil {
		if err := b.stop(); err != nil {
			return 0, err
		}
	}
	if b.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("the output is larger than %d MiB", b.limit>>20)
	}
	return b.Buffer.Write(p)
}
