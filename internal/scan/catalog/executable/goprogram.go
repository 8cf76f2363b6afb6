package executable

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/golang"
)

// Stdlib is the name of the package that stands for Go's standard library, as Go's vulnerability database has it.
const Stdlib = "stdlib"

// GoProgram is a Go program for one machine.
type GoProgram struct {
	Content io.ReaderAt // of the whole program; the symbols of Mach-O and PE files are hidden
	Info    *debug.BuildInfo
}

// GoModule is a module of a program.
type GoModule struct {
	Package catalog.Package // that the module is: the one that replaces it, if any
	Path    string          // with which the import paths of its packages begin; "" for the standard library
}

// OpenGo returns the Go programs in a file: several in one that is universal, none in a file that is not a program or
// not one of Go.
func OpenGo(r io.ReaderAt, size int64) ([]GoProgram, error) {
	programs, err := openProgram(r, size, func() error { return nil })
	if err != nil {
		return nil, err
	}
	var out []GoProgram
	for _, p := range programs {
		if !p.hasGoBuildInfo {
			continue
		}
		info, err := readBuildInfo(p.r)
		if err != nil {
			return nil, err
		}
		p.r.bytesLeft = math.MaxInt64 // readers of sections have limits
		out = append(out, GoProgram{p.r, info})
	}
	return out, nil
}

// Setting returns a setting of the build, such as GOOS; "" where the program does not have it.
func (p GoProgram) Setting(key string) string {
	for _, s := range p.Info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// Modules returns the modules of the program, and the standard library that it was built with; of a Go between two
// releases that has golang.DevelVersion.
func (p GoProgram) Modules() []GoModule {
	var out []GoModule
	version, _, _ := strings.Cut(strings.TrimPrefix(p.Info.GoVersion, "go"), " ")
	if version != "" {
		if version[0] < '0' || version[0] > '9' {
			version = golang.DevelVersion
		}
		out = append(out, GoModule{Package: catalog.Package{Kind: catalog.Go, Name: Stdlib, Version: version}})
	}
	modules := p.Info.Deps
	if p.Info.Main.Path != "" && p.Info.Main.Version != "" {
		modules = append([]*debug.Module{&p.Info.Main}, modules...)
	}
	for _, m := range modules {
		var by module.Version
		if m.Replace != nil {
			by = module.Version{Path: m.Replace.Path, Version: m.Replace.Version}
		}
		out = append(out, GoModule{golang.PackageOf(module.Version{Path: m.Path, Version: m.Version}, by), m.Path})
	}
	return out
}

// goPackages lists the modules of a Go program, and the standard library that it was built with.
func goPackages(r *guardedReader) ([]catalog.Package, error) {
	info, err := readBuildInfo(r)
	if err != nil {
		return nil, err
	}
	var out []catalog.Package
	for _, m := range (GoProgram{r, info}).Modules() {
		out = append(out, m.Package)
	}
	return out, nil
}

func readBuildInfo(r *guardedReader) (*debug.BuildInfo, error) {
	r.bytesLeft = maxOpenBytes + maxInfoBytes // it reads the headers again
	info, err := buildinfo.Read(r)
	if err != nil {
		return nil, fmt.Errorf("read the list of Go modules: %w", r.openError(err))
	}
	return info, nil
}
