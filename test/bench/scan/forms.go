package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/scantree"
)

// form is a storage format of the tree on a disk.
type form struct {
	name   string
	what   string
	wall   float64 // target, as a multiple of the directory's
	memory float64 // target above the directory's in MB; 0: no target
	// make creates the form in a separate directory, from the directory of the ext4 image where it
	// needs that. source returns the scanner's arguments for it.
	make   func(ctx context.Context, b *bench, w works) error
	source func(dir string) []string
}

// works are the directories that a form is made from and in.
type works struct{ tree, ext4, to string }

var forms = []form{
	{"ext4", "an ext4 image", 1.5, 128, makeExt4, image(ext4File)},
	{"xfs", "an XFS image", 1.5, 128, makeXFS, image(xfsFile)},
	{"btrfs", "a Btrfs image", 1.5, 128, makeBtrfs, image(btrfsFile)},
	{"lvm", "the ext4 image in a logical volume", 1.5, 128, makeLVM, image(lvmFile)},
	{"apfs", "an APFS image", 1.5, 128, makeAPFS, image(apfsFile)},
	{"hfsplus", "an HFS+ image", 1.5, 128, makeHFSPlus, image(hfsFile)},
	{"vmdk", "the ext4 image as sparse VMDK", 1.5, 128, makeVMDK("monolithicSparse"), image(vmdkFile)},
	{"vmdk-stream", "the ext4 image as compressed VMDK", 1.5, 128, makeVMDK("streamOptimized"), image(vmdkFile)},
	{"udif", "the ext4 image as compressed DMG", 1.5, 128, makeUDIF, image(udifFile)},
	{"oci", "an OCI archive of one layer, gzip", 1.3, 128, makeOCI, container},
	{"oci-zstd", "an OCI archive of one layer, zstd", 1.3, 128, makeOCIZstd, container},
	{"docker", "an archive of docker save", 1.3, 128, makeDocker, container},
	{"template-1", "a template of one layer", 1.6, 0, makeTemplate(1), inStorage},
	{"template-8", "a template of eight layers", 2, 0, makeTemplate(8), inStorage},
}

func (f form) rowWall() string   { return f.name + "-wall" }
func (f form) rowMemory() string { return f.name + "-memory" }

var formsPart = part{
	rows: func(rounds int) []row.Row {
		var out []row.Row
		for _, f := range forms {
			out = append(out, row.Row{
				Name: f.rowWall(), What: "time of " + f.what + " / that of the folder", Unit: "x", Target: f.wall,
				Digits: 2, Need: rounds,
				How: "the same tree in turns, after one turn each that does not count and in which the packages must " +
					"be equal",
			})
			if f.memory > 0 {
				out = append(out, row.Row{
					Name: f.rowMemory(), What: "memory of " + f.what + " above the folder's", Unit: "MB",
					Target: f.memory, Digits: 1, Need: rounds,
					How: "difference of the largest resident sets in the same turns",
				})
			}
		}
		return out
	},
	measure: formRows,
}

// wanted reports whether one of a form's rows is selected.
func (b *bench) wanted(f form) bool {
	return b.Wants(f.rowWall()) || f.memory > 0 && b.Wants(f.rowMemory())
}

// formRows measures each form against the directory.
func formRows(ctx context.Context, b *bench) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	tree, err := scantree.Make(ctx, b.Say)
	if err != nil {
		return err
	}
	wanted := slices.DeleteFunc(slices.Clone(forms), func(f form) bool { return !b.wanted(f) })
	sources := make([][]string, len(wanted))
	for i, f := range wanted {
		dir, err := b.kept(ctx, tree, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		sources[i] = f.source(dir)
	}
	for n := range b.rounds + 1 {
		dirUsage, err := b.list(ctx, "dir:"+tree)
		if err != nil {
			return err
		}
		b.Say("round %d: folder %s", n, dirUsage)
		packages, err := b.packages()
		if err != nil {
			return err
		}
		for i, f := range wanted {
			u, err := b.list(ctx, sources[i][0], sources[i][1:]...)
			if err != nil {
				return err
			}
			b.Say("round %d: %s %s", n, f.name, u)
			if n > 0 {
				b.addForm(f, u, dirUsage)
				continue
			}
			if err := b.equal(packages); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}

// addForm adds the usage of a form, relative to the directory's.
func (b *bench) addForm(f form, u, dirUsage usage) {
	b.Add(f.rowWall(), u.wall.Seconds()/dirUsage.wall.Seconds())
	if f.memory > 0 {
		b.Add(f.rowMemory(), float64(u.memory-dirUsage.memory)/(1<<20))
	}
	b.Note(f.rowWall(), "processor %.1f x, memory %d MB beside %d MB in the last turn",
		u.cpu.Seconds()/dirUsage.cpu.Seconds(), u.memory>>20, dirUsage.memory>>20)
}

// packages reads the packages that the scanner listed last, each as a line of JSON.
func (b *bench) packages() ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(b.Dir, "out"))
	if err != nil {
		return nil, err
	}
	var list api.ScanPackages
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	var out []string
	for _, p := range list.Packages {
		line, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		out = append(out, string(line))
	}
	return out, nil
}

// equal compares the packages that were listed last with those of the directory.
func (b *bench) equal(dirUsage []string) error {
	got, err := b.packages()
	if err != nil {
		return err
	}
	if len(got) != len(dirUsage) {
		return fmt.Errorf("it has %d packages and the folder has %d", len(got), len(dirUsage))
	}
	for i := range got {
		if got[i] != dirUsage[i] {
			return fmt.Errorf("%s instead of the folder's %s", got[i], dirUsage[i])
		}
	}
	return nil
}
