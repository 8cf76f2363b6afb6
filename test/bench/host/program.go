package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

const rowProgram = "program-size"

var programPart = part{
	rows: func(int) []row.Row {
		return []row.Row{{
			Name: rowProgram, What: "size of the program", Unit: "MB", Target: 30, Digits: 1, Need: 1,
			How: "the file hostscan, built without cgo and without symbols, in units of 10^6 bytes",
		}}
	},
	measure: func(ctx context.Context, b *bench) error {
		if err := b.build(ctx); err != nil {
			return err
		}
		st, err := os.Stat(b.programs.host)
		if err == nil {
			b.Add(rowProgram, float64(st.Size())/1e6)
		}
		return err
	},
}

// programs are those that are measured. The image scanner has a license.
type programs struct {
	host, image  string
	licenseFlags []string // flags
}

// build builds the programs as users get them.
func (b *bench) build(ctx context.Context) error {
	if b.programs.host != "" {
		return nil
	}
	p := programs{host: filepath.Join(b.Dir, "hostscan"), image: filepath.Join(b.Dir, "imagescan")}
	for _, to := range []string{p.host, p.image} {
		if err := rig.BuildSmall(ctx, to, "cmd/"+filepath.Base(to)); err != nil {
			return err
		}
	}
	var err error
	if p.licenseFlags, err = rig.LicenseScanner(ctx, p.image, b.Dir, 2*limit); err == nil {
		b.programs = p
	}
	return err
}
