package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// databases are two of all advisories of SHARED. The second one is newer by an advisory.
type databases struct{ first, second string }

// feed builds the databases, which the image scanner does.
func (b *bench) feed(ctx context.Context) error {
	if b.databases.first != "" {
		return nil
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	all, err := filepath.Abs(filepath.Join(b.shared, "data", "vuln"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(all); err != nil {
		return fmt.Errorf("there are no advisories: %w: set SHARED", err)
	}
	more := filepath.Join(b.Dir, "more")
	if err := writeAdvisory(more); err != nil {
		return err
	}
	d := databases{filepath.Join(b.Dir, "first.db"), filepath.Join(b.Dir, "second.db")}
	b.Say("building two databases of all advisories")
	for to, inputs := range map[string][]string{d.first: {all}, d.second: {all, more}} {
		if _, err := rig.Output(ctx, "", b.programs.image,
			append([]string{"db", "build", "-q", "--db-path", to}, inputs...)...); err != nil {
			return err
		}
	}
	b.databases = d
	return nil
}

// writeAdvisory writes one that is newer than all others, about the package whose arrival
// makes the service look at its database.
func writeAdvisory(dir string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	raw, err := json.Marshal(map[string]any{
		"id": "GHSA-2222-3333-4444", "schema_version": "1.6.0", "modified": now, "published": now,
		"summary": "made by a benchmark",
		"affected": []any{map[string]any{
			"package":  map[string]any{"ecosystem": "npm", "name": lateName},
			"ranges":   []any{map[string]any{"type": "SEMVER", "events": []any{map[string]any{"introduced": "0"}}}},
			"versions": []any{},
		}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "GHSA-2222-3333-4444.json"), raw, 0o600)
}

// put puts a database in the place of the one that a service uses, as a whole.
func put(database, to string) error {
	from, err := os.Open(database)
	if err != nil {
		return err
	}
	defer from.Close()
	part, err := os.Create(to + ".part")
	if err != nil {
		return err
	}
	_, err = io.Copy(part, from)
	if err := errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), to)
}
