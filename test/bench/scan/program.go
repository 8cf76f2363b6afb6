package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

const rowProgram = "program-size"

var programPart = part{
	rows: func(int) []row.Row {
		return []row.Row{{
			Name: rowProgram, What: "size of the program", Unit: "MB", Target: 35, Digits: 1, Need: 1,
			How: "the file imagescan, built without cgo and without symbols, in units of 10^6 bytes",
		}}
	},
	measure: func(ctx context.Context, b *bench) error {
		if err := b.prepare(ctx); err != nil {
			return err
		}
		st, err := os.Stat(b.scanner)
		if err == nil {
			b.Add(rowProgram, float64(st.Size())/1e6)
		}
		return err
	},
}

// prepare builds the scanner as users get it, and a license for it.
func (b *bench) prepare(ctx context.Context) error {
	if b.scanner != "" {
		return nil
	}
	program := filepath.Join(b.Dir, "imagescan")
	if err := rig.BuildSmall(ctx, program, "cmd/imagescan"); err != nil {
		return err
	}
	var err error
	if b.license, err = rig.LicenseScanner(ctx, program, b.Dir, 2*limit); err == nil {
		b.scanner = program
	}
	return err
}

// list runs the scanner to list the packages of a source in full, with more flags.
func (b *bench) list(ctx context.Context, source string, more ...string) (usage, error) {
	args := slices.Concat([]string{source, "-p", "-q", "-f", "json", "--no-cache"}, b.license, more)
	return b.measured(ctx, b.scanner, args...)
}

// measured runs a program with its output in a file.
func (b *bench) measured(ctx context.Context, program string, args ...string) (usage, error) {
	out, err := os.Create(filepath.Join(b.Dir, "out"))
	if err != nil {
		return usage{}, err
	}
	defer out.Close()
	u, err := measure(ctx, out, program, args...)
	if err != nil {
		return u, fmt.Errorf("%s %s: %w", filepath.Base(program), args[0], err)
	}
	return u, nil
}
