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

// The next tag replaces a share of the bytes of files, in a run of neighboring directories at each of some places,
// as updates of packages do.
const (
	changedShare  = 0.03
	changedPlaces = 10
)

var nextPart = part{
	rows: func(rounds int) []row.Row {
		return []row.Row{{
			Name: rowNext, What: "time of a template's next tag, of which 3 % changed / that of its full scan",
			Unit: "x", Target: 0.15, Digits: 3, Need: rounds,
			How: "every file of neighboring directories at ten places is replaced, 3 % of the bytes of all files; " +
				"the first tag was scanned before; in turns, after one turn each that does not count and in which " +
				"the packages must be equal",
		}}
	},
	measure: nextRows,
}

// nextForm is the form of the tree with a second tag.
var nextForm = form{name: "template-next", what: "a template with a next tag", make: makeNext}

func makeNext(ctx context.Context, b *bench, w works) error {
	next := filepath.Join(w.to, "next.img")
	if _, err := rig.Output(ctx, w.to, "cp", "--sparse=always", w.ext4, next); err != nil {
		return err
	}
	defer os.Remove(next)
	if err := replaceFiles(ctx, b, w, next); err != nil {
		return err
	}
	return apart(ctx, makingNext, w.to, w.ext4, next)
}

// plainName matches names that need no quotes in debugfs.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._+@-]+$`)

// replaceFiles replaces every file of some directories in an image of the tree.
func replaceFiles(ctx context.Context, b *bench, w works, image string) error {
	work, err := os.MkdirTemp(w.to, "files-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	dirs, total, err := plainDirs(w.tree)
	if err != nil {
		return err
	}
	var script strings.Builder
	seen, replaced := int64(0), int64(0)
	for _, d := range dirs {
		seen += d.size
		endOfPlace := (seen*changedPlaces/total + 1) * total / changedPlaces
		if float64(replaced+d.size/2) > changedShare*float64(endOfPlace) {
			continue // those at the beginning of the place are enough
		}
		replaced += d.size
		fmt.Fprintf(&script, "cd /%s\n", d.name)
		for _, f := range d.files {
			copied := filepath.Join(work, fmt.Sprint(script.Len()))
			if err := copyWithNewline(filepath.Join(w.tree, d.name, f), copied); err != nil {
				return err
			}
			fmt.Fprintf(&script, "rm %s\nwrite %s %s\n", f, copied, f)
		}
	}
	b.Say("replaced %d of %d MiB", replaced>>20, total>>20)
	commands := filepath.Join(work, "commands")
	if err := os.WriteFile(commands, []byte(script.String()), 0o600); err != nil {
		return err
	}
	_, err = rig.Output(ctx, w.to, "debugfs", "-w", "-f", commands, image)
	return err
}

// plainDir is a directory with files that have plain names.
type plainDir struct {
	name  string // in the tree
	files []string
	size  int64 // bytes of these files
}

// plainDirs returns the directories with a plain path in the order of a walk, and the bytes of their files.
func plainDirs(tree string) (out []plainDir, total int64, err error) {
	err = filepath.WalkDir(tree, func(dir string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		d := plainDir{}
		if d.name, err = filepath.Rel(tree, dir); err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		for _, f := range entries {
			if !f.Type().IsRegular() || !plainName.MatchString(f.Name()) {
				continue
			}
			info, err := f.Info()
			if err != nil {
				return err
			}
			d.files = append(d.files, f.Name())
			d.size += info.Size()
		}
		isOdd := func(s string) bool { return !plainName.MatchString(s) }
		if len(d.files) > 0 && !slices.ContainsFunc(strings.Split(d.name, "/"), isOdd) {
			out = append(out, d)
			total += d.size
		}
		return err
	})
	return out, total, err
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
			"registry_template:" + templateID + ":" + tag, "-s", filepath.Join(dir, storageDir), "--cache-dir", cache,
			"-p", "-q", "-f", "json",
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
		b.Note(rowNext, "%.2f s instead of %.2f s, processor %.2f x, memory %d MiB instead of %d MiB in the last turn",
			next.wall.Seconds(), full.wall.Seconds(), next.cpu.Seconds()/full.cpu.Seconds(), next.memory>>20,
			full.memory>>20)
	}
	return nil
}
