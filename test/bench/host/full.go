package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
	"github.com/buildyard/buildyard/test/scantree"
)

const rowFull = "full-scan"

var fullPart = part{
	rows: func(rounds int) []row.Row {
		return []row.Row{{
			Name: rowFull, What: "time of a full scan / that of the image scanner", Unit: "x", Target: 1.1, Digits: 2,
			Need: rounds,
			How: fmt.Sprintf(
				"both look through the same large tree (>= %d entries) and compare with the same database in turns, "+
					"after one turn each that does not count; "+
					"each full scan fills an empty catalogue; from the request until the status says that it ended, "+
					"the "+
					"image scanner from start to end", scantree.Least),
		}}
	},
	measure: fullRows,
}

// fullRows measures full scans compared to the image scanner.
func fullRows(ctx context.Context, b *bench) error {
	tree, err := scantree.Make(ctx, b.Say)
	if err != nil {
		return err
	}
	if err := b.feed(ctx); err != nil {
		return err
	}
	for n := range b.rounds + 1 {
		ours, err := b.fullScan(ctx, tree)
		if err != nil {
			return err
		}
		image, err := b.imageScan(ctx, tree)
		if err != nil {
			return err
		}
		b.Say("round %d: host %.2f s (again %.2f s), image %.2f s", n, ours.first.Seconds(), ours.again.Seconds(),
			image.Seconds())
		if n == 0 {
			if err := b.same(ctx, tree, ours.packages); err != nil {
				return err
			}
			continue
		}
		b.Add(rowFull, ours.first.Seconds()/image.Seconds())
	}
	return nil
}

// scanned is what two full scans of a directory took and found.
type scanned struct {
	first, again time.Duration
	packages     []api.HostPackage
}

// fullScan scans with a new catalog, and once more.
func (b *bench) fullScan(ctx context.Context, tree string) (out scanned, err error) {
	s, err := b.serve(ctx, "full", b.databases.first)
	defer func() { err = errors.Join(err, s.end()) }()
	if err != nil {
		return out, err
	}
	if out.first, _, err = s.scan(ctx, tree, nil); err != nil {
		return out, err
	}
	if out.packages, err = s.packages(ctx, time.Time{}); err != nil {
		return out, err
	}
	out.again, _, err = s.scan(ctx, tree, nil)
	return out, err
}

// imageScan has the image scanner do the same.
func (b *bench) imageScan(ctx context.Context, tree string) (time.Duration, error) {
	began := time.Now()
	err := b.image(ctx, tree, "-u", "--db-path", b.databases.first)
	return time.Since(began), err
}

func (b *bench) image(ctx context.Context, tree string, more ...string) error {
	args := append([]string{"dir:" + tree, "-q", "-f", "json", "-o", b.imageReport()}, b.programs.licenseFlags...)
	_, err := rig.Output(ctx, "", b.programs.image, append(args, more...)...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == cli.ExitPartly &&
		!strings.Contains(err.Error(), "could not be read") {
		return nil // there are no advisories for one of the kinds
	}
	return err
}

func (b *bench) imageReport() string { return filepath.Join(b.Dir, "image.json") }

// rootOnly is where a directory holds packages only if it lies so in the root of a system. For
// the image scanner the tree is one, for the host scanner it is not.
const rootOnly = "/usr/share/nodejs/"

// same compares what both found.
func (b *bench) same(ctx context.Context, tree string, host []api.HostPackage) error {
	if err := b.image(ctx, tree, "-p"); err != nil {
		return err
	}
	raw, err := os.ReadFile(b.imageReport())
	if err != nil {
		return err
	}
	var image struct {
		Packages []api.ScanPackage `json:"packages"`
	}
	if err := json.Unmarshal(raw, &image); err != nil {
		return err
	}
	found := map[[3]string]bool{}
	for _, p := range host {
		found[[3]string{p.Type, p.Name, p.Version}] = true
	}
	tied := 0
	for _, p := range image.Packages {
		key := [3]string{p.Type, p.Name, p.Version}
		if !found[key] {
			if !within(p.Locations, rootOnly) {
				return fmt.Errorf("the host scanner does not find %s %s %s", p.Type, p.Name, p.Version)
			}
			tied++
		}
		delete(found, key)
	}
	for key := range found {
		return fmt.Errorf("the image scanner does not find %s %s %s", key[0], key[1], key[2])
	}
	if len(host) == 0 {
		return errors.New("nothing was found")
	}
	b.Note(rowFull, "%d packages, and %d that only a root folder has", len(host), tied)
	return nil
}

// within reports whether all locations are in a directory.
func within(locations []api.ScanLocation, dir string) bool {
	for _, l := range locations {
		if !strings.HasPrefix(l.Path, dir) {
			return false
		}
	}
	return true
}
