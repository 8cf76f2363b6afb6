package imagescan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/disk"
)

// inventoryOptions select the parts of a source to scan.
type inventoryOptions struct {
	storage      string
	ignoreSystem bool
	macOS        bool
	snapshot     string
	several      bool // messages name the source
}

func (o *inventoryOptions) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&o.storage, "storage-dir", "s", "/mnt", "storage directory of the registry")
	fs.BoolVarP(&o.ignoreSystem, "ignore-system-volume", "i", false, "skip the system volume of a VM")
	fs.BoolVar(&o.macOS, "macos", false, "also catalog macOS itself as a package")
	fs.StringVar(&o.snapshot, "snapshot", "",
		"APFS snapshot to scan; other volumes are skipped (default: current files)")
	_ = cmd.MarkFlagDirname("storage-dir")
}

// take catalogs every selected source, and passes each inventory to do.
func (o *inventoryOptions) take(
	ctx context.Context, g *globals, src scan.Source, do func(*scan.Inventory) error,
) error {
	line := g.line()
	defer line.Clear()
	so := scan.Options{
		Storage: o.storage, IgnoreSystem: o.ignoreSystem, MacOS: o.macOS, Snapshot: o.snapshot,
		Progress: func(volume string, files, packages int) {
			line.Show("Cataloging %s: %d files, %d packages", volume, files, packages)
		},
	}
	none := true
	each := func(inv *scan.Inventory) error {
		line.Clear()
		if none = false; o.several || src.All() {
			g.say("%s:", inv.Source)
		}
		printInventory(g, inv)
		return do(inv)
	}
	err := scan.Each(ctx, src, so, each)
	if err == nil && none {
		g.say("No templates in the storage %s", o.storage)
	}
	return err
}

// check opens a source and closes it again, so that an invalid source is reported before the database is
// updated.
func (o *inventoryOptions) check(src scan.Source) error {
	if src.Type == scan.Folder && o.snapshot != "" {
		return cli.Usage(errors.New("--snapshot requires an image or a template"))
	}
	if src.Type == scan.Template {
		return o.checkTemplate(src)
	}
	var c io.Closer
	var err error
	if src.Type == scan.Image {
		c, err = disk.OpenImage(src.Target)
	} else {
		_, c, err = catalog.OpenDir(src.Target)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", src, without(err, src.Target))
	}
	return c.Close()
}

func (o *inventoryOptions) checkTemplate(src scan.Source) error {
	storage, err := disk.OpenStorage(o.storage)
	if err != nil {
		return fmt.Errorf("%s: registry storage (-s) %s: %w", src, o.storage, notStorage(err, o.storage))
	}
	defer func() { _ = storage.Close() }()
	if src.All() {
		return nil
	}
	id, tag, _ := strings.Cut(src.Target, ":")
	t, err := storage.Open(strings.ToLower(id), tag)
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	return t.Close()
}

// notStorage explains that a directory is not a storage.
func notStorage(err error, path string) error {
	at, ok := errors.AsType[*fs.PathError](err)
	if ok && errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(at.Op, "at") {
		return fmt.Errorf("not a registry storage: directory %s not found", at.Path)
	}
	return without(err, path)
}

// without removes a path from an error, because it was printed already.
func without(err error, path string) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok && at.Path == path {
		return at.Err
	}
	text := strings.TrimPrefix(err.Error(), "opening a directory: ")
	if rest, ok := strings.CutPrefix(text, path); ok {
		if text, ok = strings.CutPrefix(rest, ": "); !ok {
			text = "it" + rest
		}
	}
	return errors.New(text)
}

// printInventory prints the line about cataloged packages, and names what was not read.
func printInventory(g *globals, inv *scan.Inventory) {
	var parts []string
	for _, v := range inv.Volumes {
		name := ""
		switch {
		case v.Role == "data", v.Role == "system":
			name = v.Role + " volume: "
		case len(inv.Volumes) > 1:
			name = "volume " + v.Name + ": "
		}
		parts = append(parts, fmt.Sprintf("%s%d", name, v.Packages))
	}
	g.say("Cataloged packages: %d [%s]", len(inv.Packages), strings.Join(parts, ", "))
	for _, v := range inv.Volumes {
		for _, n := range v.Notes {
			g.say("Note: %s: %s", v.Name, n)
		}
	}
	for _, s := range inv.Skipped {
		word := "Skipped"
		if s.Partial {
			word = "Could not read"
		}
		g.say("%s: %s", word, about(s.Name, s.Reason))
	}
	printWarnings(g, inv.Warnings)
}

// printWarnings lists the first unreadable files, and counts the files whose content does not match
// their names.
func printWarnings(g *globals, warnings []catalog.Warning) {
	const most = 5
	unread, odd := 0, 0
	for _, w := range warnings {
		switch {
		case w.Odd:
			odd++
		case unread < most:
			g.say("Could not read: %s: %s", w.Path, w.What)
			unread++
		default:
			unread++
		}
	}
	if unread > most {
		g.say("and %d more (listed in the JSON report)", unread-most)
	}
	if odd > 0 {
		g.say("%s not match the file name (listed in the JSON report)",
			map[bool]string{true: "1 file does", false: fmt.Sprintf("%d files do", odd)}[odd == 1])
	}
}

// complete completes the source on the command line.
func (o *inventoryOptions) complete(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, target, ok := strings.Cut(word, ":")
	switch {
	case !ok:
		return []string{"vm_image:", "registry_template:", "dir:"},
			cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	case kind == string(scan.Template):
		var out []string
		for _, id := range scan.Templates(o.storage) {
			if strings.HasPrefix(id, target) {
				out = append(out, kind+":"+cli.Plain(id))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	return pathsAt(kind+":", target), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}
