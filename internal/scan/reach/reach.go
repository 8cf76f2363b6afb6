package reach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/executable"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// DB is the part of a vulnerability database that says which functions are vulnerable.
type DB interface {
	// AffectedCode returns the code that an advisory names in a module; nil where it names none.
	AffectedCode(advisory, module string) ([]vulndb.AffectedCode, error)
}

var _ DB = (*vulndb.DB)(nil)

// Files are the files of a scanned source, safe for concurrent use.
type Files interface {
	// OpenFile opens a file at a location of a package, and returns its size.
	OpenFile(ctx context.Context, location string) (catalog.Content, int64, io.Closer, error)
	Close() error
}

const (
	maxWorkers     = 4           // programs that are read at the same time
	programTimeout = time.Minute // for one program
	maxFunctions   = 10          // that are named for a finding at a location
)

// Unread is a program whose functions could not be read.
type Unread struct {
	Location string
	Err      error
}

// Resolve sets Reachable of the findings of Go packages. Open opens the files of the source, and is called only when
// a program has to be read. It returns the programs that could not be, sorted by location; they are unknown. The error
// is that of the database, or of ctx.
func Resolve(ctx context.Context, db DB, findings []match.Finding, open func() (Files, error)) ([]Unread, error) {
	r := resolver{code: map[codeKey]vulnerableCode{}, db: db, findings: findings}
	programs, err := r.plan()
	if err != nil || len(programs) == 0 {
		return nil, err
	}
	files, err := open()
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return []Unread{{"/", err}}, nil
	}
	err = r.readAll(ctx, files, programs)
	if closeErr := files.Close(); closeErr != nil {
		r.unread = append(r.unread, Unread{"/", closeErr})
	}
	slices.SortFunc(r.unread, func(a, b Unread) int { return cmp.Compare(a.Location, b.Location) })
	return r.unread, err
}

// target is a finding at one location.
type target struct {
	state *match.LinkState
	pkg   *catalog.Package
	code  vulnerableCode
}

type resolver struct {
	db       DB
	findings []match.Finding
	code     map[codeKey]vulnerableCode // looked up before

	mu     sync.Mutex // guards the field below
	unread []Unread
}

// plan marks the findings of Go packages as unknown, and returns those that a program decides, by location.
func (r *resolver) plan() (map[string][]target, error) {
	programs := map[string][]target{}
	for i := range r.findings {
		f := &r.findings[i]
		if f.Package.Kind != catalog.Go {
			continue
		}
		f.Reachable = make([]match.LinkState, len(f.Package.Locations))
		code, err := r.codeOf(f)
		if err != nil {
			return nil, err
		}
		for k, location := range f.Package.Locations {
			f.Reachable[k].State = match.LinkUnknown
			if len(code.packages) > 0 && path.Base(location) != "go.mod" {
				programs[location] = append(programs[location], target{&f.Reachable[k], &f.Package, code})
			}
		}
	}
	return programs, nil
}

// readAll reads the programs, some of them at the same time.
func (r *resolver) readAll(ctx context.Context, files Files, programs map[string][]target) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(min(runtime.GOMAXPROCS(0), maxWorkers))
	for _, location := range slices.Sorted(maps.Keys(programs)) {
		g.Go(func() error {
			err := readProgram(ctx, files, location, programs[location])
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.unread = append(r.unread, Unread{location, err})
			}
			return nil
		})
	}
	return g.Wait()
}

// readProgram decides the findings of one file. Input that makes a reader panic is a damaged program.
func readProgram(ctx context.Context, files Files, location string, targets []target) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error of the reader: %.100v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	content, size, closer, err := files.OpenFile(ctx, location)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	programs, err := executable.OpenGo(content, size)
	if err != nil {
		return err
	}
	results := make([]result, len(targets))
	for _, p := range programs {
		w := newWantedCode(p)
		for i := range targets {
			w.add(&results[i], targets[i])
		}
		if err = w.read(ctx); err != nil {
			break
		}
	}
	for i := range targets {
		results[i].decide(targets[i].state, err != nil)
	}
	return err
}

// codeKey identifies the code that a finding is about.
type codeKey struct{ advisory, module, version string }

// vulnerableCode is what advisories name for one version of a module.
type vulnerableCode struct {
	advisory string
	packages []vulndb.CodePackage
	isPart   bool // of an entry about the version that names nothing
}

// codeOf returns the code of the advisory that decided on a finding. Where that names none, the record of Go's
// vulnerability database about the same vulnerability does.
func (r *resolver) codeOf(f *match.Finding) (vulnerableCode, error) {
	ids := []string{f.Advisory}
	for _, id := range append([]string{f.Vulnerability.ID}, f.Vulnerability.Related...) {
		if strings.HasPrefix(id, "GO-") && id != f.Advisory {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		key := codeKey{id, f.Package.Name, f.Package.Version}
		code, known := r.code[key]
		if !known {
			list, err := r.db.AffectedCode(id, f.Package.Name)
			if err != nil {
				return vulnerableCode{}, err
			}
			code = codeOfVersion(f, list)
			code.advisory = id
			r.code[key] = code
		}
		if len(code.packages) > 0 {
			return code, nil
		}
	}
	return vulnerableCode{}, nil
}

// codeOfVersion returns the code that is vulnerable in the version of a finding.
func codeOfVersion(f *match.Finding, list []vulndb.AffectedCode) (out vulnerableCode) {
	for _, a := range list {
		if len(a.Ranges) > 0 && !match.InRanges(&f.Package, a.Ranges) {
			continue
		}
		out.packages = append(out.packages, a.Packages...)
		out.isPart = out.isPart || len(a.Packages) == 0
	}
	return out
}
