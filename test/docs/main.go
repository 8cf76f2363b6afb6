package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("docs", run) }

// options are the command line.
type options struct {
	only  *regexp.Regexp // pages by path; links are checked in all files
	keep  bool
	limit time.Duration // of one page
}

func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("docs", flag.ContinueOnError)
	fs.SetOutput(out)
	only := fs.String("only", "", "run only the pages whose path matches this regular expression")
	fs.BoolVar(&o.keep, "keep", false, "keep the directories and outputs of the pages")
	fs.DurationVar(&o.limit, "limit", defaultLimit, "time of one page")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("usage: docs [-only REGEXP] [-keep] [-limit DURATION]")
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// defaultLimit is how long a page may take.
const defaultLimit = 5 * time.Minute

// maxSkipped is the share of blocks that may be skipped, in percent.
const maxSkipped = 10

// run is one run.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("docs", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	programs, err := rig.BuildAll(ctx, dir)
	if err != nil {
		return false, err
	}

	r := &report{out: out}
	pages, err := loadPages(ctx, programs.Root())
	if err != nil {
		return false, err
	}
	checkPages(r, programs.Root(), pages)

	box, err := newSandbox(ctx, programs, filepath.Join(dir, "probe"))
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\nblocks: %s\n", box.describe())
	for i, p := range pages {
		if runs(p.path) && o.only.MatchString(p.path) && len(p.blocks) > 0 {
			if err := box.play(ctx, r, p, filepath.Join(dir, fmt.Sprint(i)), o.limit); err != nil {
				return false, err
			}
		}
	}
	return r.sum(), ctx.Err()
}

// runs reports whether the blocks of a page are run.
func runs(path string) bool {
	switch {
	case path == "README.md", path == "CONTRIBUTING.md":
		return true
	case strings.HasPrefix(path, "docs/decisions/"), strings.HasPrefix(path, "docs/reference/"):
		return false
	}
	return strings.HasPrefix(path, "docs/")
}

// checkPages checks the text of all Markdown files.
func checkPages(r *report, root string, pages []*page) {
	byPath := map[string]*page{}
	for _, p := range pages {
		byPath[p.path] = p
	}
	links := 0
	for _, p := range pages {
		problems := append(p.problems, p.checkLinks(root, byPath)...)
		problems = append(problems, p.checkBlocks()...)
		links += len(p.links)
		if len(problems) == 0 {
			r.passed++
			continue
		}
		for _, text := range problems {
			r.fail("%s:%s", p.path, text)
		}
	}
	fmt.Fprintf(r.out, "links: %d relative links in %d files\n", links, len(pages))
}
