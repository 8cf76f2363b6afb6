package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// scanner is the image scanner as users have it, with a license.
type scanner struct {
	program, dir string
	flags        []string
}

func newScanner(ctx context.Context, dir string) (*scanner, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	c := &scanner{program: filepath.Join(dir, "imagescan"), dir: dir}
	if err := rig.BuildSmall(ctx, c.program, "cmd/imagescan"); err != nil {
		return nil, err
	}
	var err error
	c.flags, err = rig.LicenseScanner(ctx, c.program, dir, 24*time.Hour)
	return c, err
}

// exitPartial is the exit status of a scan that lacks advisories for a kind of packages, or could not read a file.
const exitPartial = 7

// run runs the scanner. A partial report is not an error: its reader looks at the reasons.
func (c *scanner) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.program, append(args, c.flags...)...)
	cmd.Dir = c.dir
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitPartial {
		return nil
	}
	if err != nil {
		return fmt.Errorf("imagescan %v: %w: %s", args, err, text)
	}
	return nil
}

// build builds a database of feeds and returns its path.
func (c *scanner) build(ctx context.Context, name string, feeds ...string) (string, error) {
	file := filepath.Join(c.dir, name+".db")
	return file, c.run(ctx, slices.Concat([]string{"db", "build"}, feeds, []string{"--db-path", file})...)
}

// match returns the report on a directory.
func (c *scanner) match(ctx context.Context, db, dir string) (*api.ScanReport, error) {
	out := &api.ScanReport{}
	if err := c.scan(ctx, out, "dir:"+dir, "--db-path", db, "-u"); err != nil {
		return nil, err
	}
	return out, complete(out.Coverage)
}

// list returns the packages of a directory.
func (c *scanner) list(ctx context.Context, dir string) (*api.ScanPackages, error) {
	out := &api.ScanPackages{}
	if err := c.scan(ctx, out, "dir:"+dir, "-p"); err != nil {
		return nil, err
	}
	return out, complete(out.Coverage)
}

func (c *scanner) scan(ctx context.Context, into any, args ...string) error {
	file := filepath.Join(c.dir, "report.json")
	if err := c.run(ctx, append(args, "-q", "-f", "json", "-o", file)...); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// complete returns an error for a report that does not cover all files.
func complete(c *api.ScanCoverage) error {
	switch {
	case c == nil:
		return errors.New("the report has no coverage")
	case c.Unreads > 0:
		return fmt.Errorf("%d files could not be read: %s: %s", c.Unreads, c.Unread[0].Path, c.Unread[0].Reason)
	case c.Unjudgeds > 0:
		return fmt.Errorf("%d packages were not evaluated: %+v", c.Unjudgeds, c.Unjudged[0])
	}
	return nil
}
