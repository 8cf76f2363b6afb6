package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("openapi", run) }

// options are the command line.
type options struct {
	tools string // directory of the generators
	keep  bool
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("openapi", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.tools, "tools", "", "directory where scripts/need.sh has installed the generators")
	fs.BoolVar(&o.keep, "keep", false, "keep the clients")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.tools == "" || fs.NArg() > 0 {
		return o, errors.New("usage: openapi -tools DIR [-keep]")
	}
	return o, nil
}

// limit limits the duration of a run.
const limit = 10 * time.Minute

// step is one thing that has to work. It returns what it has seen.
type step struct {
	name string
	do   func(ctx context.Context, w *workplace) (evidence string, err error)
}

// steps run in this order; a step that builds on a failed one fails too.
var steps = []step{
	{"oapi-codegen makes a Go client", makeGo},
	{"the Go client has a method for every operation", checkMethods},
	{"the Go client compiles", compileGo},
	{"openapi-typescript makes types", makeTypeScript},
	{"the TypeScript types compile", compileTypeScript},
	{"the Go client starts and terminates an instance", useGo},
}

// workplace is where the clients are made.
type workplace struct {
	tools, dir string
}

func (w *workplace) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

// run makes the clients and reports whether every step worked.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tools, err := filepath.Abs(o.tools)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("openapi", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	w := &workplace{tools: tools, dir: dir}
	if err := w.prepare(); err != nil {
		return false, err
	}
	passed := 0
	for _, s := range steps {
		began := time.Now()
		evidence, err := s.do(ctx, w)
		if err != nil {
			fmt.Fprintf(out, "FAILED  %s: %v\n", s.name, err)
			continue
		}
		passed++
		fmt.Fprintf(out, "ok      %s: %s (%.1f s)\n", s.name, evidence, time.Since(began).Seconds())
	}
	fmt.Fprintf(out, "%d passed, %d failed, 0 skipped\n", passed, len(steps)-passed)
	return passed == len(steps), nil
}

// installed returns the path of a generator; an error if it is not there.
func (w *workplace) installed(names ...string) (string, error) {
	path := filepath.Join(append([]string{w.tools}, names...)...)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not installed; run: scripts/need.sh openapi-clients", names[len(names)-1])
	}
	return path, nil
}
