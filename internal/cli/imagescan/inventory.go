package imagescan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/container"
	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/glob"
	"github.com/buildyard/buildyard/internal/scan/scanned"
	"github.com/buildyard/buildyard/internal/scan/stepcache"
)

// inventoryOptions select the parts of a source to scan.
type inventoryOptions struct {
	storageDir   string
	ignoreSystem bool
	macOS        bool
	snapshotName string
	platform     string
	keyFile      string
	keys         [][]byte // of keyFile, once it was read
	allTags      bool
	includeDev   bool
	exclude      []string  // patterns of the flag
	excluded     *glob.Set // those of the flag and of the configuration file; nil: none
	cacheOptions
	noCache    bool
	nameSource bool // messages name the source
}

// cacheOptions select the directory with results of scans of templates.
type cacheOptions struct {
	cacheDir string // "": in the user's cache directory
}

func (o *cacheOptions) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.cacheDir, "cache-dir", "",
		"directory for results of template scans (default: in the user's cache directory)")
	_ = cmd.MarkFlagDirname("cache-dir")
}

// path returns the directory; "" is none.
func (o *cacheOptions) path() string {
	if o.cacheDir != "" {
		return o.cacheDir
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "" // without a home directory nothing is kept
	}
	return filepath.Join(user, "buildyard", "imagescan")
}

// versions returns where the packages of scanned versions are kept; nil is nowhere.
func (o *cacheOptions) versions() *scanned.Versions {
	dir := o.path()
	if dir == "" {
		return nil
	}
	return scanned.Open(filepath.Join(dir, "versions"))
}

func (o *inventoryOptions) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&o.storageDir, "storage-dir", "s", "/mnt", "storage directory of the registry")
	fs.BoolVarP(&o.ignoreSystem, "ignore-system-volume", "i", false, "skip the system volume of a VM")
	fs.BoolVar(&o.macOS, "macos", false, "also catalog macOS itself as a package")
	fs.StringVar(&o.snapshotName, "snapshot", "",
		"APFS snapshot to scan; other volumes are skipped (default: current files)")
	fs.StringVar(&o.platform, "platform", "",
		"platform of a container image, such as linux/arm64 (default: that of this machine, or the only one)")
	fs.StringArrayVar(&o.exclude, "exclude", nil,
		"pattern of paths that are not scanned, such as /usr/share/doc, node_modules or '/home/*/.cache'; repeatable")
	fs.BoolVar(&o.includeDev, "include-dev", false,
		"also report packages that lock files list for development alone")
	fs.StringVar(&o.keyFile, "key-file", "",
		"file with the password, recovery key or key of disks encrypted with LUKS or FileVault (default: name them "+
			"as not read)")
	_ = cmd.MarkFlagFilename("key-file")
	o.addFlag(cmd)
	fs.BoolVar(&o.noCache, "no-cache", false, "scan templates in full and keep nothing for later versions")
	_ = cmd.MarkFlagDirname("storage-dir")
}

// compileExclude compiles the patterns of the flag and of the configuration file.
func (o *inventoryOptions) compileExclude(s settings) (err error) {
	if o.excluded, err = glob.NewSet(slices.Concat(s.Exclude, o.exclude)); err != nil {
		err = fmt.Errorf("--exclude: %w", err)
	}
	return err
}

// cache returns where steps of scans of templates are kept; nil is nowhere.
func (o *inventoryOptions) cache() *stepcache.Cache {
	dir := o.path()
	if o.noCache || dir == "" {
		return nil
	}
	return stepcache.Open(dir, stepcache.MaxBytes)
}

// keptVersions returns where the packages of scanned versions are kept; nil is nowhere.
func (o *inventoryOptions) keptVersions() *scanned.Versions {
	if o.noCache || o.snapshotName != "" || o.excluded != nil {
		return nil
	}
	return o.versions()
}

// keep keeps the packages of a scanned version for later vulnerability databases.
func (o *inventoryOptions) keep(g *globals, inv *scan.Inventory) {
	kept := o.keptVersions()
	if kept == nil || inv.ID == "" {
		return
	}
	storage, err := filepath.Abs(o.storageDir)
	if err == nil {
		err = kept.Save(o.versionOf(inv, storage))
	}
	if err != nil {
		g.printMessage("Note: the packages were not kept for later vulnerability databases: %v", err)
	}
}

// versionOf returns what is kept of a scanned template.
func (o *inventoryOptions) versionOf(inv *scan.Inventory, storage string) *scanned.Version {
	return &scanned.Version{
		TemplateID: inv.ID, Tag: inv.Tag, ContentID: inv.ContentID, Storage: storage, Packages: inv.Packages,
		Partial: inv.Partial() || o.ignoreSystem || o.snapshotName != "" || o.excluded != nil,
	}
}

// containerGCPercent is the GC percentage while the layers of a container image are read. Most of the heap is content
// of files, without pointers: collecting it more often takes little time and saves a quarter of the memory. GOGC
// overrides it.
const containerGCPercent = 30

// catalogSources catalogs every selected source, and passes each inventory to do.
func (o *inventoryOptions) catalogSources(
	ctx context.Context, g *globals, src scan.Source, do func(*scan.Inventory) error,
) error {
	if err := o.loadKeys(); err != nil {
		return err
	}
	if src.Type == scan.Container && os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(containerGCPercent))
	}
	line := g.newProgressLine()
	defer line.Clear()
	so := scan.Options{
		Storage: o.storageDir, AllTags: o.allTags, IgnoreSystem: o.ignoreSystem, IncludeMacOS: o.macOS,
		Snapshot: o.snapshotName, Platform: o.platform, Keys: o.keys, Cache: o.cache(), Exclude: o.excluded,
		Development: o.includeDev,
		Progress: func(volume string, files, packages int) {
			line.Show("Cataloging %s: %d files, %d packages", volume, files, packages)
		},
	}
	none := true
	each := func(inv *scan.Inventory) error {
		line.Clear()
		if none = false; o.nameSource || src.HasManyTags() {
			g.printMessage("%s:", inv.Source)
		}
		if inv.Name != "" {
			g.printMessage("Template: %s, tag %s", inv.Name, inv.Tag)
		}
		printInventory(g, inv)
		o.keep(g, inv)
		return do(inv)
	}
	err := scan.CatalogEach(ctx, src, so, each)
	if err == nil && none {
		g.printMessage("No templates in the storage %s", o.storageDir)
	}
	return err
}

// checkSource opens a source and closes it again, so that an invalid source is reported before the database is
// updated.
func (o *inventoryOptions) checkSource(src scan.Source) error {
	isDisk := src.Type == scan.Image || src.Type == scan.Template
	switch {
	case !isDisk && o.snapshotName != "":
		return cli.Usage(errors.New("--snapshot requires an image or a template"))
	case !isDisk && o.keyFile != "":
		return cli.Usage(errors.New("--key-file requires an image or a template"))
	case src.Type != scan.Container && o.platform != "":
		return cli.Usage(errors.New("--platform requires a container image"))
	}
	if err := o.loadKeys(); err != nil {
		return err
	}
	if src.Type == scan.Template {
		return o.checkTemplate(src)
	}
	var c io.Closer
	var err error
	switch src.Type {
	case scan.Image:
		c, err = disk.OpenImage(src.Target)
	case scan.Container:
		c, err = container.Open(src.Target, o.platform)
	case scan.SBOM:
		c, err = os.Open(src.Target)
	default:
		_, c, err = catalog.OpenDir(src.Target)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", src, errorWithoutPath(err, src.Target))
	}
	return c.Close()
}

func (o *inventoryOptions) checkTemplate(src scan.Source) error {
	storage, err := disk.OpenStorage(o.storageDir)
	if err != nil {
		return fmt.Errorf("%s: registry storage (-s) %s: %w", src, o.storageDir, notStorageError(err, o.storageDir))
	}
	defer func() { _ = storage.Close() }()
	if src.IsAllTemplates() {
		return nil
	}
	id, tag, _ := strings.Cut(src.Target, ":")
	t, err := storage.Open(strings.ToLower(id), tag)
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	return t.Close()
}

// notStorageError explains that a directory is not a storage.
func notStorageError(err error, path string) error {
	at, ok := errors.AsType[*fs.PathError](err)
	if ok && errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(at.Op, "at") {
		return fmt.Errorf("not a registry storage: directory %s not found", at.Path)
	}
	return errorWithoutPath(err, path)
}

// errorWithoutPath removes a path from an error, because it was printed already.
func errorWithoutPath(err error, path string) error {
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
	g.printMessage("Cataloged packages: %d [%s]", len(inv.Packages), strings.Join(parts, ", "))
	for _, v := range inv.Volumes {
		for _, n := range v.Notes {
			g.printMessage("Note: %s: %s", v.Name, n)
		}
	}
	if inv.Excluded > 0 {
		g.printMessage("Excluded: %s", cli.Plural(inv.Excluded, "path"))
	}
	if inv.LeftOut > 0 {
		g.printMessage("Left out: %s that lock files list for development alone (--include-dev reports them)",
			cli.Plural(inv.LeftOut, "package"))
	}
	for _, n := range inv.Notes {
		g.printMessage("Note: %s", n)
	}
	for _, s := range inv.Skipped {
		word := "Skipped"
		if s.MayHavePackages {
			word = "Could not read"
		}
		g.printMessage("%s: %s", word, prefixSubject(s.Name, s.Reason))
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
		case w.InvalidContent:
			odd++
		case unread < most:
			g.printMessage("Could not read: %s: %s", w.Path, w.Message)
			unread++
		default:
			unread++
		}
	}
	if unread > most {
		g.printMessage("and %d more (listed in the JSON report)", unread-most)
	}
	if odd > 0 {
		text := "1 file does not match its name"
		if odd > 1 {
			text = fmt.Sprintf("%d files do not match their names", odd)
		}
		g.printMessage("%s (listed in the JSON report)", text)
	}
}

// completeSource completes the source on the command line.
func (o *inventoryOptions) completeSource(
	_ *cobra.Command, args []string, word string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, target, ok := strings.Cut(word, ":")
	switch {
	case !ok:
		return []string{"vm_image:", "registry_template:", "container:", "sbom:", "dir:"},
			cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	case kind == string(scan.Template):
		var out []string
		for _, id := range scan.Templates(o.storageDir) {
			if strings.HasPrefix(id, target) {
				out = append(out, kind+":"+cli.EscapeName(id))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	return completePath(kind+":", target), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}
