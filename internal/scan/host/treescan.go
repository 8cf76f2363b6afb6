package host

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
)

// readMode decides which files a pass reads.
type readMode int

const (
	readChanged         readMode = iota // files that are not known, or changed since
	readChangedAndNoted                 // these, and files that were only noted: a change was reported for each of them
	readAll
)

// treeScan walks a directory once and updates the inventory to match it.
type treeScan struct {
	host   *Host
	finder *catalog.Finder
	dir    string // path in the tree
	mode   readMode
	// notedBefore limits reading: an unknown file last changed earlier is only noted. Zero: all unknown
	// files are read.
	notedBefore time.Time
	workers     int
	changes     *changeCollector
	counters    *progressCounters

	owners       *catalog.Owners // of all files of the walk; nil: they are found for each batch
	databaseRead atomic.Bool     // a database of an operating system's packages was read
}

// progressCounters counts the progress of a pass.
type progressCounters struct {
	filesSeen                        atomic.Int64 // of the walk
	wantedFiles, filesRead, packages atomic.Int64
}

const (
	rangeFiles    = 128  // that a goroutine takes at a time
	batchFiles    = 2048 // about, per transaction of the inventory
	maxStaleTries = 3
)

// fileRange is a contiguous part of the list of files.
type fileRange struct {
	wanted               []catalog.WantedFile
	afterPath, untilPath string
	files                []inventorydb.File
	warnings             []catalog.Warning
	err                  error
}

// treeScanResult is the result of a pass.
type treeScanResult struct {
	listing       *catalog.Listing // without its files
	warnings      []catalog.Warning
	filesRead     int
	packageHashes map[uint64]struct{} // packages of the files read, by a hash of their identity
}

// run walks the directory.
func (p *treeScan) run(ctx context.Context) (treeScanResult, error) {
	defer p.host.opts.GC.hold()()
	listing, err := p.finder.Walk(ctx, p.dir)
	if err != nil {
		return treeScanResult{}, err
	}
	out := treeScanResult{listing: listing, packageHashes: map[uint64]struct{}{}}
	p.counters.filesSeen.Store(int64(listing.Files))
	p.counters.wantedFiles.Store(int64(len(listing.Wanted)))
	p.noteWalk(listing.Warnings)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.mode == readAll || len(listing.Wanted) > batchFiles {
		if err := p.findOwners(ctx, listing.Wanted); err != nil {
			return treeScanResult{}, err
		}
	}
	pieces := splitRanges(listing.Wanted)
	listing.Wanted = nil
	done := make(chan *fileRange, batchFiles/rangeFiles) // they read on while a batch is stored
	var next atomic.Int64
	var all sync.WaitGroup
	for range p.workers {
		all.Go(func() {
			lowerPriority()
			for i := next.Add(1) - 1; int(i) < len(pieces) && ctx.Err() == nil; i = next.Add(1) - 1 {
				p.readRange(ctx, pieces[i])
				done <- pieces[i]
				pieces[i] = nil
			}
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	err = p.storeRanges(ctx, done, &out)
	if err != nil {
		cancel()
		for range done { // so that the others end
		}
	}
	if ctx.Err() != nil && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && p.databaseRead.Load() && (p.dir != "." || p.mode != readAll) {
		err = p.updateOwners(ctx)
	}
	return out, err
}

// splitRanges divides a list into file ranges.
func splitRanges(wanted []catalog.WantedFile) []*fileRange {
	var out []*fileRange
	after := ""
	for len(wanted) > rangeFiles {
		until := wanted[rangeFiles-1].Path
		out = append(out, &fileRange{wanted: wanted[:rangeFiles], afterPath: after, untilPath: until})
		wanted, after = wanted[rangeFiles:], until
	}
	return append(out, &fileRange{wanted: wanted, afterPath: after})
}

// readRange reads those files of a range that are to be read.
func (p *treeScan) readRange(ctx context.Context, c *fileRange) {
	seen := make([]inventorydb.FileStamp, 0, len(c.wanted))
	marks := make([]catalog.FileStamp, 0, len(c.wanted))
	still := make([]catalog.WantedFile, 0, len(c.wanted))
	for _, w := range c.wanted {
		m, err := p.finder.StampOf(w.Path)
		if err != nil {
			continue // it was removed
		}
		seen, marks, still = append(seen, inventorydb.FileStamp{Path: w.Path, Stamp: m.Hash}), append(marks, m),
			append(still, w)
	}
	known := make([]inventorydb.FileStatus, len(seen))
	if p.mode != readAll {
		if known, c.err = p.host.inventory.CompareFiles(seen); c.err != nil {
			return
		}
	}
	c.wanted = still
	for i, w := range still {
		switch {
		case known[i] == inventorydb.Unchanged && !dependsOnNeighbors(w.Path) ||
			known[i] == inventorydb.KnownBeforeReset ||
			known[i] == inventorydb.Noted && p.mode == readChanged:
		case known[i] == inventorydb.Unknown && marks[i].ChangedAt.Before(p.notedBefore):
			c.files = append(c.files, inventorydb.File{Path: w.Path, Stamp: seen[i].Stamp, Unreported: true})
		default:
			f, warnings := p.readFile(ctx, w, seen[i].Stamp)
			c.files = append(c.files, f)
			c.warnings = append(c.warnings, warnings...)
		}
		p.counters.filesRead.Add(1)
		if ctx.Err() != nil {
			return
		}
	}
}

// dependsOnNeighbors reports whether the packages of a file also depend on its neighbors: copies of casks on the
// directories of their versions, kegs and lists of requirements on other files.
func dependsOnNeighbors(path string) bool {
	return strings.Contains(path, "Caskroom/") || strings.HasSuffix(path, "/INSTALL_RECEIPT.json") ||
		strings.HasSuffix(path, ".txt")
}

// readFile reads one file.
func (p *treeScan) readFile(
	ctx context.Context, w catalog.WantedFile, mark uint64,
) (inventorydb.File, []catalog.Warning) {
	found := p.finder.ReadFile(ctx, w)
	p.counters.packages.Add(int64(len(found.Packages)))
	p.host.counters.filesRead.Add(1)
	if p.finder.IsDatabase(w.Path) {
		p.databaseRead.Store(true)
	}
	if ctx.Err() == nil {
		p.host.noteRead(toSystemPath(w.Path), mark, found.Warnings)
	}
	return inventorydb.File{Path: w.Path, Stamp: mark, Packages: found.Packages}, found.Warnings
}

// storeRanges stores what was read, many files in one transaction: each waits for the disk.
func (p *treeScan) storeRanges(ctx context.Context, done <-chan *fileRange, out *treeScanResult) error {
	for more := true; more; {
		var b inventorydb.Batch
		for n := 0; n < batchFiles; {
			var c *fileRange
			if c, more = <-done; !more {
				break
			}
			if c.err != nil {
				return c.err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx) // a partly read range is not stored
			}
			n += len(c.wanted)
			p.addToBatch(&b, c, out)
		}
		if len(b.Prune) == 0 {
			continue
		}
		if err := p.storeBatch(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// addToBatch adds a range to a batch.
func (p *treeScan) addToBatch(b *inventorydb.Batch, c *fileRange, out *treeScanResult) {
	keep := make([]string, len(c.wanted))
	for i, w := range c.wanted {
		keep[i] = w.Path
	}
	b.Files = append(b.Files, c.files...)
	b.Prune = append(b.Prune, inventorydb.DirPrune{Dir: p.dir, After: c.afterPath, Until: c.untilPath, Existing: keep})
	out.filesRead += len(c.files)
	for i := range c.files {
		for k := range c.files[i].Packages {
			out.packageHashes[packageKeyOf(&c.files[i].Packages[k]).hash()] = struct{}{}
		}
	}
	room := max(maxScanWarnings-len(out.warnings), 0)
	out.warnings = append(out.warnings, c.warnings[:min(room, len(c.warnings))]...)
}

const maxScanWarnings = 10_000

// storeBatch stores a batch in the inventory. Files that changed since they were read are read again; a
// file that changes all the time is reported by its next change, or found by the next scan.
func (p *treeScan) storeBatch(ctx context.Context, b inventorydb.Batch) error {
	b.Time, b.CurrentStamp, b.Exists = p.host.monotonicNow(), p.stamp, p.exists
	for try := 0; ; try++ {
		if err := p.assignOwners(ctx, b.Files); err != nil {
			return err
		}
		p.host.saveUnread()
		changes, err := p.host.inventory.Put(b)
		p.changes.addBatch(changes)
		if err != nil || len(changes.Stale) == 0 || try == maxStaleTries {
			return err
		}
		b.Files, b.Prune, b.RemovePaths = nil, nil, nil
		for _, path := range changes.Stale {
			if f, ok := p.rereadFile(ctx, path); ok {
				b.Files = append(b.Files, f)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// rereadFile reads a file in its current state.
func (p *treeScan) rereadFile(ctx context.Context, path string) (inventorydb.File, bool) {
	w, ok := p.finder.WantedAt(path)
	m, err := p.finder.StampOf(path)
	if !ok || err != nil {
		return inventorydb.File{}, false
	}
	f, _ := p.readFile(ctx, w, m.Hash)
	return f, true
}

// stamp returns the current stamp of a file.
func (p *treeScan) stamp(path string) (uint64, bool) {
	m, err := p.finder.StampOf(path)
	return m.Hash, err == nil
}

func (p *treeScan) exists(path string) bool {
	_, ok := p.finder.WantedAt(path)
	return ok
}

// systemKinds are the kinds of packages of operating systems.
var systemKinds = []catalog.PackageType{catalog.Deb, catalog.RPM, catalog.APK}

// maxSystemPackages limits the packages of operating systems whose databases are looked for.
const maxSystemPackages = 200_000

// databases returns the package databases of this machine: those of the inventory, and those among some files.
func (p *treeScan) databases(files []string) ([]string, error) {
	known, err := p.host.inventory.PackagesOfKinds(systemKinds, maxSystemPackages)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for i := range known {
		for _, l := range known[i].Locations {
			found[toTreePath(l)] = true
		}
	}
	for _, name := range files {
		if p.finder.IsDatabase(name) {
			found[name] = true
		}
	}
	out := make([]string, 0, len(found))
	for name := range found {
		out = append(out, name)
	}
	return out, nil
}

// findOwners finds the owners of all files of a walk.
func (p *treeScan) findOwners(ctx context.Context, wanted []catalog.WantedFile) error {
	files := make([]string, len(wanted))
	for i, w := range wanted {
		files[i] = w.Path
	}
	databases, err := p.databases(files)
	if err == nil {
		p.owners = p.ownersIn(ctx, databases, files)
	}
	return err
}

// ownersIn finds the owners of files in databases. What could not be read is logged: the packages are reported, without
// their owners.
func (p *treeScan) ownersIn(ctx context.Context, databases, files []string) *catalog.Owners {
	out := p.finder.FindOwners(ctx, databases, files)
	for _, w := range out.Warnings {
		if ctx.Err() == nil {
			p.host.log.Warn("The owners of files are not all known.", "path", w.Path, "error", w.Message)
		}
	}
	return out
}

// assignOwners sets the owners of packages that are to be stored. The lists of the databases are only read when one of
// the packages may have an owner.
func (p *treeScan) assignOwners(ctx context.Context, files []inventorydb.File) error {
	owners := p.owners
	if owners == nil {
		var names []string
		for i := range files {
			if slices.ContainsFunc(files[i].Packages, func(c catalog.Package) bool { return c.Kind.HasOwner() }) {
				names = append(names, files[i].Path)
			}
		}
		if len(names) == 0 {
			return nil
		}
		databases, err := p.databases(nil)
		if err != nil {
			return err
		}
		owners = p.ownersIn(ctx, databases, names)
	}
	for i := range files {
		files[i].Packages = p.finder.AssignOwners(owners, files[i].Path, files[i].Packages)
	}
	return nil
}

// updateOwners reads the files again whose owner is another since a database changed: an upgrade changes the version
// of an owner, a removal leaves files without one.
func (p *treeScan) updateOwners(ctx context.Context) error {
	p.databaseRead.Store(false)
	var names []string
	owned := map[string]catalog.Package{} // one of the packages of each file, with its owner
	var after inventorydb.PackageCursor
	for {
		list, next, err := p.host.inventory.PackagesByName(after, batchFiles)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		for i := range list {
			if !list[i].Kind.HasOwner() {
				continue
			}
			for _, l := range list[i].Locations {
				if name := toTreePath(l); owned[name].Name == "" {
					owned[name] = catalog.Package{
						Name: list[i].Name, Owner: list[i].Owner, Distribution: list[i].Distribution,
					}
					names = append(names, name)
				}
			}
		}
		after = next
	}
	databases, err := p.databases(nil)
	if err != nil {
		return err
	}
	p.owners = p.ownersIn(ctx, databases, names)
	names = slices.DeleteFunc(names, func(name string) bool {
		known := owned[name]
		return p.owners.Owns(&known, "/"+strings.TrimPrefix(name, "/"))
	})
	for some := range slices.Chunk(names, batchFiles) {
		var b inventorydb.Batch
		for _, name := range some {
			if f, ok := p.rereadFile(ctx, name); ok {
				b.Files = append(b.Files, f)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.storeBatch(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
