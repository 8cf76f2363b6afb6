package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

const modulePath = "github.com/buildyard/buildyard"

// names are the cases of the Go packages that users import.
func names(b *builds, dir string) group {
	g := group{name: "Go packages"}
	for _, pkg := range []string{"api", "client"} {
		g.steps = append(g.steps, step{name: "every exported name of " +
			pkg, loose: true, play: func(ctx context.Context) (string, error) {
			return compileNames(ctx, b, filepath.Join(dir, pkg+"_names.go"), pkg)
		}})
	}
	return g
}

// renamedFields are fields whose name in Go changed. No alias can keep such a name. All are of the
// messages between a node and its controller, which only the programs of the product exchange; what
// is sent has its old name.
var renamedFields = map[string]string{
	"api.PollAnswer.Errands": "CacheJobs",
	"api.Report.Errands":     "CacheJobs",
}

// compileNames writes a Go file that refers to everything the old package exports, with its old type,
// and compiles it against the new package.
func compileNames(ctx context.Context, b *builds, file, pkg string) (string, error) {
	old, err := importOld(ctx, b.old.root, pkg)
	if err != nil {
		return "", err
	}
	w := &referrer{pkg: old, imports: map[string]string{modulePath + "/" + pkg: pkg}}
	for _, name := range old.Scope().Names() {
		if token.IsExported(name) {
			w.object(old.Scope().Lookup(name))
		}
	}
	if err := os.WriteFile(file, []byte(w.file()), 0o600); err != nil {
		return "", err
	}
	// The file is not in the new sources: an overlay puts it there for the compiler.
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(b.new.root, "test", "upgrade", pkg+"names", "names.go"): file,
	}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file+".json", overlay, 0o600); err != nil {
		return "", err
	}
	res, err := execute(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-C", b.new.root, "-trimpath", "-gcflags=-e",
		"-overlay", file+".json", "-o", os.DevNull, "./test/upgrade/"+pkg+"names")
	if err != nil {
		return "", err
	}
	if res.code != 0 {
		return "", w.explain(res.stderr)
	}
	return fmt.Sprintf("%d names and members compile with their old types", len(w.lines)), nil
}

// importOld returns a package of the old sources, from what the compiler exported of it.
func importOld(ctx context.Context, root, pkg string) (*types.Package, error) {
	list, err := rig.Output(ctx, root, "env", "CGO_ENABLED=0", "go", "list", "-export", "-trimpath", "-deps", "-f",
		"{{.ImportPath}} {{.Export}}", modulePath+"/"+pkg)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for line := range strings.SplitSeq(list, "\n") {
		path, file, _ := strings.Cut(line, " ")
		files[path] = file
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", lookup).Import(modulePath + "/" + pkg)
}

// referrer writes declarations that refer to the names of a package.
type referrer struct {
	pkg     *types.Package
	imports map[string]string // names by paths
	lines   []reference
}

// reference is one declaration and what it refers to.
type reference struct{ name, text string }

func (w *referrer) add(name, format string, args ...any) {
	w.lines = append(w.lines, reference{name, fmt.Sprintf(format, args...)})
}

// object refers to a constant, variable, function or type.
func (w *referrer) object(o types.Object) {
	name := w.pkg.Name() + "." + o.Name()
	switch o := o.(type) {
	case *types.Const:
		w.constant(name, o)
	case *types.Var:
		w.typed(name, o.Type(), name)
	case *types.Func:
		if o.Signature().TypeParams().Len() > 0 {
			w.add(name, "var _ = %s[%s]", name, anys(o.Signature().TypeParams()))
			return
		}
		w.typed(name, o.Type(), name)
	case *types.TypeName:
		w.typeName(name, o)
	}
}

// constant refers to a constant and its value: two equal keys of a map do not compile, and those
// of false are equal unless the comparison is true.
func (w *referrer) constant(name string, o *types.Const) {
	value := o.Val().ExactString()
	if o.Val().Kind() == constant.Float {
		value = o.Val().String()
	}
	w.add(name, "var _ = map[bool]int{false: 0, %s == %s: 1}", name, value)
}

// typed assigns an expression to a variable of its old type. Types that only the package can name
// are left out.
func (w *referrer) typed(name string, t types.Type, expression string) {
	if text, ok := w.text(t); ok {
		w.add(name, "var _ %s = %s", text, expression)
		return
	}
	w.add(name, "var _ = %s", expression)
}

// hiddenName is a name that a package keeps to itself.
var hiddenName = regexp.MustCompile(`\b[a-z]\w*\.[a-z]`)

func (w *referrer) text(t types.Type) (string, bool) {
	used := map[string]string{}
	text := types.TypeString(t, func(p *types.Package) string {
		used[p.Path()] = p.Name()
		return p.Name()
	})
	if hiddenName.MatchString(text) {
		return "", false
	}
	maps.Copy(w.imports, used)
	return text, true
}

// typeName refers to a type, its fields and its methods.
func (w *referrer) typeName(name string, o *types.TypeName) {
	named, ok := types.Unalias(o.Type()).(*types.Named)
	if ok && named.TypeParams().Len() > 0 {
		name += "[" + anys(named.TypeParams()) + "]"
		w.add(name, "type _ = %s", name)
		return
	}
	w.add(name, "type _ = %s", name)
	if i, ok := o.Type().Underlying().(*types.Interface); ok {
		w.interfaceType(name, i)
		return
	}
	if s, ok := o.Type().Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() {
				w.field(name, f)
			}
		}
	}
	set := types.NewMethodSet(types.NewPointer(o.Type()))
	for m := range set.Methods() {
		if m.Obj().Exported() {
			w.method(name, m)
		}
	}
}

// field refers to a field, in a literal as programs write them.
func (w *referrer) field(name string, f *types.Var) {
	if renamedFields[name+"."+f.Name()] != "" {
		return
	}
	if text, ok := w.text(f.Type()); ok {
		w.add(name+"."+f.Name(), "func _(v %s) { _ = %s{%s: v} }", text, name, f.Name())
		return
	}
	w.add(name+"."+f.Name(), "func _(v %s) { _ = v.%s }", name, f.Name())
}

// method calls for a method with the old parameters and results.
func (w *referrer) method(name string, m *types.Selection) {
	sig, _ := m.Type().(*types.Signature)
	text, ok := w.text(types.NewSignatureType(nil, nil, nil, sig.Params(), sig.Results(), sig.Variadic()))
	if !ok {
		w.add(name+"."+m.Obj().Name(), "func _(v *%s) { _ = v.%s }", name, m.Obj().Name())
		return
	}
	w.add(name+"."+m.Obj().Name(), "func _(v *%s) { var _ %s = v.%s }", name, text, m.Obj().Name())
}

// interfaceType requires that what implemented the old interface implements the new one, and that
// it has the old methods.
func (w *referrer) interfaceType(name string, i *types.Interface) {
	if text, ok := w.text(i.Complete()); ok {
		w.add(name, "func _(v %s) { var _ %s = v }", text, name)
		w.add(name, "func _(v %s) { var _ %s = v }", name, text)
	}
}

func anys(list *types.TypeParamList) string {
	return strings.TrimSuffix(strings.Repeat("any, ", list.Len()), ", ")
}

// file is the Go file: one line for each declaration.
func (w *referrer) file() string {
	var s strings.Builder
	s.WriteString("package names; import (")
	for _, path := range slices.Sorted(maps.Keys(w.imports)) {
		fmt.Fprintf(&s, "%s %q; ", w.imports[path], path)
	}
	s.WriteString(")\n")
	for _, l := range w.lines {
		s.WriteString(l.text + "\n")
	}
	return s.String()
}

// atLine is the place of a message of the compiler.
var atLine = regexp.MustCompile(`^\S+\.go:(\d+):\d+: (.*)$`)

// explain names what the compiler did not find.
func (w *referrer) explain(said string) error {
	var errs []error
	for line := range strings.SplitSeq(said, "\n") {
		m := atLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if n, _ := strconv.Atoi(m[1]); n >= 2 && n < len(w.lines)+2 {
			errs = append(errs, fmt.Errorf("%s: %s", w.lines[n-2].name, m[2]))
		}
	}
	if len(errs) == 0 {
		return errors.New(said)
	}
	return errors.Join(errs...)
}
