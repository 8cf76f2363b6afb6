package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
	"github.com/buildyard/buildyard/test/scantree"
)

// rowNext is the row of the scan of a next tag.
const rowNext = "next-tag"

// changedShare is the share of the bytes of files that the next tag replaces.
const changedShare = 0.03

var nextPart = part{
	rows: func(rounds int) []row.Row {
		return []row.Row{{
			Name: rowNext, What: "time of a template's next tag, of which 3 % changed / that of its full scan",
			Unit: "x", Target: 0.15, Digits: 3, Need: rounds,
			How: "every file of some directories is replaced, 3 % of the bytes of all files; the first tag was scanned " +
				"before; in turns, after one turn each that does not count and in which the packages must be equal",
		}}
	},
	measure: nextRows,
}

// nextForm is the form of the tree with a second tag.
var nextForm = form{name: "template-next", what: "a template with a next tag", make: makeNext}

func makeNext(ctx context.Context, _ *bench, w works) error {
	next := filepath.Join(w.to, "next.img")
	if _, err := rig.Output(ctx, w.to, "cp", "--sparse=always", w.ext4, next); err != nil {
		return err
	}
	defer os.Remove(next)
	if err := replaceFiles(ctx, w, next); err != nil {
		return err
	}
	return apart(ctx, makingNext, w.to, w.ext4, next)
}

// plainName matches names that need no quotes in debugfs.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._+@-]+$`)

// replaceFiles replaces every file of some directories in an image of the tree.
func replaceFiles(ctx context.Context, w works, image string) error {
	work, err := os.MkdirTemp(w.to, "files-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var script strings.Builder
	seen, replaced := 0.0, 0.0
	err = filepath.WalkDir(w.tree, func(dir string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		files, size, err := plainFiles(dir)
		name, relErr := filepath.Rel(w.tree, dir)
		if err != nil || relErr != nil || len(files) == 0 {
			return errors.Join(err, relErr)
		}
		plain := !slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return !plainName.MatchString(s) })
		if seen += size; !plain || replaced+size/2 > changedShare*seen {
			return nil
		}
		replaced += size
		fmt.Fprintf(&script, "cd /%s\n", name)
		for _, f := range files {
			copied := filepath.Join(work, fmt.Sprint(script.Len()))
			if err := copyWithNewline(filepath.Join(dir, f), copied); err != nil {
				return err
			}
			fmt.Fprintf(&script, "rm %s\nwrite %s %s\n", f, copied, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	commands := filepath.Join(work, "commands")
	if err := os.WriteFile(commands, []byte(script.String()), 0o600); err != nil {
		return err
	}
	_, err = rig.Output(ctx, w.to, "debugfs", "-w", "-f", commands, image)
	return err
}

// plainFiles returns the files of a directory with plain names, and their bytes.
func plainFiles(dir string) (names []string, size float64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() && plainName.MatchString(path.Base(e.Name())) {
			info, err := e.Info()
			if err != nil {
				return nil, 0, err
			}
			names = append(names, e.Name())
			size += float64(info.Size())
		}
	}
	return names, size, err
}

func copyWithNewline(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(b, '\n'), st.Mode().Perm())
}

// writeNext pushes an image as the first tag of a template, and its changes in another image as the next.
func writeNext(ctx context.Context, dir, image, next string) error {
	overlay := filepath.Join(dir, "overlay.qcow2")
	var chunkErr error
	err := rewrite(ctx, overlay, next, func(size int64) iter.Seq[int64] {
		return func(yield func(int64) bool) { chunkErr = differences(image, next, size, yield) }
	})
	if err = errors.Join(err, chunkErr); err != nil {
		return err
	}
	defer os.Remove(overlay)
	return withRegistry(ctx, dir, func(c *transfer.Client) error {
		disk := diskfile.Disk{Path: image}
		tip, err := push(ctx, c, "v0", disk, nil)
		if err != nil {
			return err
		}
		disk.Overlays = []string{overlay}
		_, err = push(ctx, c, "v1", disk, &transfer.PushParent{ChainID: tip, FileCount: 1})
		return err
	})
}

// differences yields the chunks in which two files of a size differ.
func differences(a, b string, size int64, yield func(int64) bool) error {
	one, err := os.Open(a)
	if err != nil {
		return err
	}
	defer one.Close()
	two, err := os.Open(b)
	if err != nil {
		return err
	}
	defer two.Close()
	x, y := make([]byte, piece), make([]byte, piece)
	for off := int64(0); off+piece <= size; off += piece {
		if _, err := io.ReadFull(one, x); err != nil {
			return err
		}
		if _, err := io.ReadFull(two, y); err != nil {
			return err
		}
		if !bytes.Equal(x, y) && !yield(off) {
			return nil
		}
	}
	return nil
}

// nextRows measures the scan of a next tag.
func nextRows(ctx context.Context, b *bench) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	tree, err := scantree.Make(ctx, b.Say)
	if err != nil {
		return err
	}
	dir, err := b.kept(ctx, tree, nextForm)
	if err != nil {
		return err
	}
	source := func(tag, cache string) []string {
		return append([]string{
			"registry_template:" + templateID + ":" + tag, "-s", filepath.Join(dir, storageDir), "-p", "-q", "-f", "json",
			"--cache-dir", cache,
		}, b.license...)
	}
	first := filepath.Join(b.Dir, "steps")
	u, err := b.measured(ctx, b.scanner, source("v0", first)...)
	if err != nil {
		return err
	}
	b.Say("first tag, in full and kept: %s", u)
	for n := range b.rounds + 1 {
		full, err := b.measured(ctx, b.scanner, append(source("v1", first), "--no-cache")...)
		if err != nil {
			return err
		}
		want, err := b.packages()
		if err != nil {
			return err
		}
		cache := filepath.Join(b.Dir, fmt.Sprintf("steps-%d", n))
		if err := os.CopyFS(cache, os.DirFS(first)); err != nil {
			return err
		}
		next, err := b.measured(ctx, b.scanner, source("v1", cache)...)
		if err != nil {
			return err
		}
		b.Say("round %d: full %s, from the first tag %s", n, full, next)
		if n == 0 {
			if err := b.equal(want); err != nil {
				return fmt.Errorf("next tag: %w", err)
			}
			continue
		}
		b.Add(rowNext, next.wall.Seconds()/full.wall.Seconds())
		b.Note(rowNext, "%.2f s instead of %.2f s, memory %d MB instead of %d MB in the last turn", next.wall.Seconds(),
			full.wall.Seconds(), next.memory>>20, full.memory>>20)
	}
	return nil
}
