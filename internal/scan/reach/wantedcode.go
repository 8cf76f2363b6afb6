package reach

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog/executable"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/reach/gosymbols"
)

// result is what the programs of a file say about one finding.
type result struct {
	functions map[string]bool // vulnerable ones that were found
	hasModule bool            // one of the programs has the module
	isPart    bool            // not all that is vulnerable is known
}

// decide sets the state. After an incomplete reading only what was found is certain.
func (r *result) decide(s *match.LinkState, incomplete bool) {
	switch {
	case len(r.functions) > 0:
		s.State = match.Linked
		s.Functions = slices.Sorted(maps.Keys(r.functions))
		s.Functions = s.Functions[:min(len(s.Functions), maxFunctions)]
	case r.hasModule && !r.isPart && !incomplete:
		s.State = match.NotLinked
	default:
		s.State = match.LinkUnknown
	}
}

// wantedCode is the vulnerable code that is searched in one program.
type wantedCode struct {
	program  executable.GoProgram
	modules  []executable.GoModule
	packages map[string]*wantedPackage // import path in the program -> what is searched in it
}

// wantedPackage is what is searched in a package.
type wantedPackage struct {
	whole   []finder            // any function
	symbols map[string][]finder // by function
}

// finder is a finding that a function decides.
type finder struct {
	result *result
	path   string // import path as the advisory has it
}

func newWantedCode(p executable.GoProgram) *wantedCode {
	return &wantedCode{program: p, modules: p.Modules(), packages: map[string]*wantedPackage{}}
}

// add adds a finding, if its module is part of the program.
func (w *wantedCode) add(r *result, t target) {
	i := slices.IndexFunc(w.modules, func(m executable.GoModule) bool {
		return m.Package.Name == t.pkg.Name && m.Package.Version == t.pkg.Version
	})
	if i < 0 {
		return
	}
	r.hasModule, r.isPart = true, r.isPart || t.code.isPart
	goos, goarch := w.program.Setting("GOOS"), w.program.Setting("GOARCH")
	for _, p := range t.code.packages {
		if !p.AppliesTo(goos, goarch) {
			continue
		}
		found := w.wanted(importPath(w.modules[i], p.Path))
		if len(p.Symbols) == 0 {
			found.whole = append(found.whole, finder{r, p.Path})
		}
		for _, s := range p.Symbols {
			found.symbols[s] = append(found.symbols[s], finder{r, p.Path})
		}
	}
}

func (w *wantedCode) wanted(path string) *wantedPackage {
	p := w.packages[path]
	if p == nil {
		p = &wantedPackage{symbols: map[string][]finder{}}
		w.packages[path] = p
	}
	return p
}

// importPath returns the import path that a package has in a program. A module that replaces another one is imported
// by the path of that.
func importPath(m executable.GoModule, path string) string {
	if rest, ok := strings.CutPrefix(path, m.Package.Name); ok && m.Path != "" {
		return m.Path + rest
	}
	return path
}

// read reads the functions of the program.
func (w *wantedCode) read(ctx context.Context) error {
	if len(w.packages) == 0 {
		return nil
	}
	return gosymbols.Each(ctx, w.program.Content, func(f gosymbols.Function) {
		path := f.Package
		if path == "main" && w.program.Info.Path != "" {
			path = w.program.Info.Path
		}
		wanted := w.packages[path]
		if wanted == nil {
			return
		}
		for _, x := range wanted.whole {
			x.result.add(x.path)
		}
		for _, x := range wanted.symbols[f.Name] {
			x.result.add(x.path + "." + f.Name)
		}
	})
}

func (r *result) add(function string) {
	if r.functions == nil {
		r.functions = map[string]bool{}
	}
	r.functions[function] = true
}
