package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

const rowProgram = "program-size"

var programPart = part{
	rows: func(int) []row.Row {
		return []row.Row{{Name: rowProgram, What: "size of the program", Unit: "MB", Target: 35, Digits: 1, Need: 1, How: "the file imagescan, built without cgo and without symbols, in units of 10^6 bytes"}}
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

// prepare builds the scanner as users get it, and gives it a licence.
func (b *bench) prepare(ctx context.Context) error {
	if b.scanner != "" {
		return nil
	}
	program := filepath.Join(b.dir, "imagescan")
	if err := build(ctx, program, "cmd/imagescan"); err != nil {
		return err
	}
	secret, public := filepath.Join(b.dir, "a.key"), b.authority()
	if err := license.Keygen(secret, public); err != nil {
		return err
	}
	signer, err := license.ReadSecret(secret)
	if err != nil {
		return err
	}
	key, err := license.Issue(signer, license.Licence{Product: license.ImageScanner, Tier: farm.TierBasic, Expires: time.Now().Add(2 * limit)})
	if err != nil {
		return err
	}
	if _, err := rig.Output(ctx, b.dir, program, "license", "activate", key, "-q", "-l", b.licence(), "--license-authority", public); err != nil {
		return err
	}
	b.scanner = program
	return nil
}

// build builds a program of this module.
func build(ctx context.Context, to, dir string) error {
	_, err := rig.Output(ctx, "", "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "github.com/buildyard/buildyard/"+dir)
	return err
}

func (b *bench) authority() string { return filepath.Join(b.dir, "a.pub") }
func (b *bench) licence() string   { return filepath.Join(b.dir, "scanner.lic") }

// list has the scanner list the packages of a source, with more flags.
func (b *bench) list(ctx context.Context, source string, more ...string) (usage, error) {
	args := append([]string{source, "-p", "-q", "-f", "json", "-l", b.licence(), "--license-authority", b.authority()}, more...)
	return b.measured(ctx, b.scanner, args...)
}

// measured runs a program with its output in a file.
func (b *bench) measured(ctx context.Context, program string, args ...string) (usage, error) {
	out, err := os.Create(filepath.Join(b.dir, "out"))
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
