// Command dist writes the files of a release: archives, packages for Debian and RPM systems, an OCI image, manifests
// for containers, a formula for Homebrew, bills of materials and the list of checksums.
//
// It neither signs nor publishes them, and needs no container engine.
//
// Invariant: the files of a commit have the same bytes, wherever and whenever they are built.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/release/checksums"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	out := flag.String("out", "dist", "directory for the files; its content is replaced")
	only := flag.String("platforms", "", "comma-separated platforms such as linux/amd64 (default: all)")
	nfpm := flag.String("nfpm", "nfpm", "program that writes packages")
	flag.Parse()

	r, err := newRelease(ctx, *out, *nfpm)
	if err != nil {
		return err
	}
	if *only != "" {
		if err := r.restrict(strings.Split(*only, ",")); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		name string
		make func(context.Context) error
	}{
		{"programs", r.buildPrograms},
		{"manual pages and completions", r.writeManuals},
		{"archives", r.writeArchives},
		{"agent packages", r.writeAgentPackages},
		{"bills of materials", r.writeSBOMs},
		{"packages", r.writePackages},
		{"image", r.writeImage},
		{"manifests", r.writeManifests},
		{"formula", r.writeFormula},
	} {
		_, _ = fmt.Fprintf(os.Stderr, "dist: %s\n", step.name)
		if err := step.make(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	names, err := checksums.WriteList(r.out)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s: %d files of %s\n", filepath.Clean(*out), len(names)+1, r.version)
	return err
}
