package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

const (
	grownFiles    = 200
	grownPackages = 500 // in each
	grownKnown    = 20  // of them that have an advisory, as far as there are so many
)

// grow measures a service that knows many packages. Those figures have no target: they show how the
// figures grow.
func (b *bench) grow(ctx context.Context) (err error) {
	if err := b.feed(ctx); err != nil {
		return err
	}
	if err := b.stage.end(); err != nil {
		return err
	}
	tree := filepath.Join(b.Dir, "grown")
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	b.Say("writing lock files of %d packages", grownFiles*grownPackages)
	if err := writeLocks(tree, b.databases.first); err != nil {
		return err
	}
	s, err := b.setUp(ctx, "large")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if _, err := s.rest(ctx, b); err != nil {
		b.Say("the large catalogue at rest is not measured: %v", err)
	}
	b.grown = &s.figures
	return nil
}

// writeLocks writes lock files of npm, and of Python such as have advisories.
func writeLocks(dir, database string) error {
	known, err := knownPython(database)
	if err != nil {
		return err
	}
	for i := range grownFiles {
		to := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		some := known[min(i*grownKnown, len(known)):min((i+1)*grownKnown, len(known))]
		packages := map[string]any{"": map[string]string{"name": "p"}}
		for j := range grownPackages - len(some) {
			packages[fmt.Sprintf("node_modules/grown-%d-%d", i, j)] = map[string]string{"version": fmt.Sprintf("1.%d.0",
				j)}
		}
		raw, err := json.Marshal(map[string]any{"name": "p", "lockfileVersion": 3, "packages": packages})
		if err != nil {
			return err
		}
		var poetry strings.Builder
		for _, p := range some {
			fmt.Fprintf(&poetry, "[[package]]\nname = %q\nversion = %q\n\n", p[0], p[1])
		}
		if err := errors.Join(
			os.WriteFile(filepath.Join(to, "package-lock.json"), raw, 0o600),
			os.WriteFile(filepath.Join(to, "poetry.lock"), []byte(poetry.String()), 0o600),
		); err != nil {
			return err
		}
	}
	return nil
}

// knownPython returns packages of Python with an advisory in a database, at an affected version
// where one is named.
func knownPython(database string) (known [][2]string, err error) {
	db, err := vulndb.Open(database)
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // it is only read
	seen := map[string]bool{}
	for a, err := range db.AllAdvisories() {
		if err != nil {
			return nil, err
		}
		if a.Ecosystem != vulndb.PyPI || seen[a.Name] || len(a.Ranges) == 0 {
			continue
		}
		seen[a.Name] = true
		version := "0.0.1"
		if in := a.Ranges[0].Introduced; in != "" && in != "0" {
			version = in
		}
		known = append(known, [2]string{a.Name, version})
	}
	return known, nil
}
