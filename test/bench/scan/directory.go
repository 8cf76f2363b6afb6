package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/scantree"
)

// The rows of a directory.
const (
	rowWall   = "dir-wall"
	rowCPU    = "dir-cpu"
	rowMemory = "dir-memory"
)

// scalibrPlugins are those that find the same kinds of packages.
var scalibrPlugins = []string{
	"javascript/packagejson", "javascript/packagelockjson", "javascript/yarnlock", "javascript/pnpmlock",
	"javascript/bunlock", "javascript/electronasar",
	"python/wheelegg", "python/requirements", "python/poetrylock", "python/uvlock", "python/pdmlock",
	"python/pipfilelock", "python/pylock",
	"java/archive", "java/pomxml", "java/gradlelockfile", "go/binary", "go/gomod", "rust/cargolock",
	"rust/cargoauditable",
	"ruby/gemspec", "ruby/gemfilelock", "swift/podfilelock", "os/homebrew", "os/macapps",
}

var directoryPart = part{
	rows: func(rounds int) []row.Row {
		how := fmt.Sprintf(
			"both scan the large tree (>= %d entries) in turns, after one turn each that does not count; scalibr "+
				"with the plug-ins of the same kinds", scantree.Least)
		return []row.Row{
			{
				Name: rowWall, What: "time of a folder / that of scalibr", Unit: "x", Target: 0.5, Digits: 2,
				Need: rounds,
				How:  how,
			},
			{
				Name: rowCPU, What: "processor time of a folder / that of scalibr", Unit: "x", Target: 0.85, Digits: 2,
				Need: rounds, How: "user and system time in the same turns",
			},
			{
				Name: rowMemory, What: "memory while a folder is scanned", Unit: "MB", Target: 64, Digits: 1,
				Need: rounds,
				How:  "the largest resident set of our process in the same turns",
			},
		}
	},
	measure: directoryRows,
}

// directoryRows measures a directory.
func directoryRows(ctx context.Context, b *bench) error {
	if b.scalibr == "" {
		return errors.New("there is no program of osv-scalibr to measure beside ours: make bench-scan")
	}
	tree, err := scantree.Make(ctx, b.Say)
	if err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for n := range b.rounds + 1 {
		ours, err := b.list(ctx, "dir:"+tree)
		if err != nil {
			return err
		}
		theirs, err := b.measured(ctx, b.scalibr, "-offline", "-root", tree, "-o",
			"cdx-json="+filepath.Join(b.Dir, "scalibr.json"), "-plugins", strings.Join(scalibrPlugins, ","))
		if err != nil {
			return err
		}
		b.Say("round %d: ours %s, scalibr %s", n, ours, theirs)
		if n == 0 {
			continue
		}
		b.Add(rowWall, ours.wall.Seconds()/theirs.wall.Seconds())
		b.Add(rowCPU, ours.cpu.Seconds()/theirs.cpu.Seconds())
		b.Add(rowMemory, float64(ours.memory)/(1<<20))
	}
	return nil
}
