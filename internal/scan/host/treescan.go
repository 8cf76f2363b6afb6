package host

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
)

// reading decides which files a pass reads.
type reading int

const (
	whatDiffers reading = iota // files that are not known, or changed since
	whatIsNamed                // these, and files that were only noted: a change was reported for each of them
	everything
)

// treeScan walks a directory once and updates the inventory to match it.
type treeScan struct {
	host   *Host
	finder *catalog.Finder
	from   string // path in the tree
	reads  reading
	// before limits reading: an unknown file last changed earlier is only noted. Zero: all unknown
	// files are read.
	before  time.Time
	workers int
	step    *step
	meter   *meter
}

// meter counts the progress of a pass.
type meter struct {
	files                  atomic.Int64 // of the walk
	wanted, read, packages atomic.Int64
}

const (
	pieceFiles = 128  // that a goroutine takes at a time
	batchFiles = 2048 // about, per transaction of the inventory
	staleTries = 3
)

// fileRange is a contiguous part of the list of files.
type fileRange struct {
	wanted       []catalog.Wanted
	after, until string
	files        []inventorydb.File
	warnings     []catalog.Warning
	err          error
}

// passed is the result of a pass.
type passed struct {
	listing  *catalog.Listing // without its files
	warnings []catalog.Warning
	read     int
	distinct map[uint64]struct{} // packages of the files read, by a hash of their identity
}

// run walks the directory.
func (p *treeScan) run(ctx context.Context) (passed, error) {
	defer p.host.o.Calm.working()()
	listing, err := p.finder.Walk(ctx, p.from)
	if err != nil {
		return passed{}, err
	}
	out := passed{listing: listing, distinct: map[uint64]struct{}{}}
	p.meter.files.Store(int64(listing.Files))
	p.meter.wanted.Store(int64(len(listing.Wanted)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pieces := cut(listing.Wanted)
	listing.Wanted = nil
	done := make(chan *fileRange, batchFiles/pieceFiles) // they read on while a batch is stored
	var next atomic.Int64
	var all sync.WaitGroup
	for range p.workers {
		all.Go(func() {
			yield()
			for i := next.Add(1) - 1; int(i) < len(pieces) && ctx.Err() == nil; i = next.Add(1) - 1 {
				p.read(ctx, pieces[i])
				done <- pieces[i]
				pieces[i] = nil
			}
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	err = p.collect(ctx, done, &out)
	if err != nil {
		cancel()
		for range done { // so that the others end
		}
	}
	if ctx.Err() != nil && err == nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// cut divides a list into file ranges.
func cut(wanted []catalog.Wanted) []*fileRange {
	var out []*fileRange
	after := ""
	for len(wanted) > pieceFiles {
		until := wanted[pieceFiles-1].Path
		out = append(out, &fileRange{wanted: wanted[:pieceFiles], after: after, until: until})
		wanted, after = wanted[pieceFiles:], until
	}
	return append(out, &fileRange{wanted: wanted, after: after})
}

// read reads those files of a range that are to be read.
func (p *treeScan) read(ctx context.Context, c *fileRange) {
	seen := make([]inventorydb.Seen, 0, len(c.wanted))
	marks := make([]catalog.FileStamp, 0, len(c.wanted))
	still := make([]catalog.Wanted, 0, len(c.wanted))
	for _, w := range c.wanted {
		m, err := p.finder.StampOf(w.Path)
		if err != nil {
			continue // it was removed
		}
		seen, marks, still = append(seen, inventorydb.Seen{Path: w.Path, Stamp: m.Print}), append(marks, m),
			append(still, w)
	}
	known := make([]inventorydb.Knowledge, len(seen))
	if p.reads != everything {
		if known, c.err = p.host.book.Look(seen); c.err != nil {
			return
		}
	}
	c.wanted = still
	for i, w := range still {
		switch {
		case known[i] == inventorydb.Same && !leans(w.Path) || known[i] == inventorydb.Silent ||
			known[i] == inventorydb.Noted && p.reads == whatDiffers:
		case known[i] == inventorydb.Unknown && marks[i].Changed.Before(p.before):
			c.files = append(c.files, inventorydb.File{Path: w.Path, Stamp: seen[i].Stamp, Quiet: true})
		default:
			f, warnings := p.one(ctx, w, seen[i].Stamp)
			c.files = append(c.files, f)
			c.warnings = append(c.warnings, warnings...)
		}
		p.meter.read.Add(1)
		if ctx.Err() != nil {
			return
		}
	}
}

// leans reports whether the packages of a file also depend on its neighbors: copies of casks on the
// directories of their versions, kegs and lists of requirements on other files.
func leans(path string) bool {
	return strings.Contains(path, "Caskroom/") || strings.HasSuffix(path, "/INSTALL_RECEIPT.json") ||
		strings.HasSuffix(path, ".txt")
}

// one reads one file.
func (p *treeScan) one(ctx context.Context, w catalog.Wanted, mark uint64) (inventorydb.File, []catalog.Warning) {
	found := p.finder.Read(ctx, w)
	p.meter.packages.Add(int64(len(found.Packages)))
	p.host.work.read.Add(1)
	return inventorydb.File{Path: w.Path, Stamp: mark, Packages: found.Packages}, found.Warnings
}

// collect stores what was read, many files in one transaction: each waits for the disk.
func (p *treeScan) collect(ctx context.Context, done <-chan *fileRange, out *passed) error {
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
			p.put(&b, c, out)
		}
		if len(b.Sweep) == 0 {
			continue
		}
		if err := p.keep(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// put adds a range to a batch.
func (p *treeScan) put(b *inventorydb.Batch, c *fileRange, out *passed) {
	keep := make([]string, len(c.wanted))
	for i, w := range c.wanted {
		keep[i] = w.Path
	}
	b.Files = append(b.Files, c.files...)
	b.Sweep = append(b.Sweep, inventorydb.Sweep{Folder: p.from, After: c.after, Until: c.until, Keep: keep})
	out.read += len(c.files)
	for i := range c.files {
		for k := range c.files[i].Packages {
			out.distinct[keyOf(&c.files[i].Packages[k]).hash()] = struct{}{}
		}
	}
	room := max(maxWarnings-len(out.warnings), 0)
	out.warnings = append(out.warnings, c.warnings[:min(room, len(c.warnings))]...)
}

const maxWarnings = 10_000

// keep stores a batch in the inventory. Files that changed since they were read are read again; a
// file that changes all the time is reported by its next change, or found by the next scan.
func (p *treeScan) keep(ctx context.Context, b inventorydb.Batch) error {
	b.At, b.Stamp, b.There = p.host.now(), p.mark, p.there
	for try := 0; ; try++ {
		changes, err := p.host.book.Put(b)
		p.step.add(changes)
		if err != nil || len(changes.Stale) == 0 || try == staleTries {
			return err
		}
		b.Files, b.Sweep, b.Drop = nil, nil, nil
		for _, path := range changes.Stale {
			if f, ok := p.again(ctx, path); ok {
				b.Files = append(b.Files, f)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// again reads a file in its current state.
func (p *treeScan) again(ctx context.Context, path string) (inventorydb.File, bool) {
	w, ok := p.finder.At(path)
	m, err := p.finder.StampOf(path)
	if !ok || err != nil {
		return inventorydb.File{}, false
	}
	f, _ := p.one(ctx, w, m.Print)
	return f, true
}

// mark returns the current stamp of a file.
func (p *treeScan) mark(path string) (uint64, bool) {
	m, err := p.finder.StampOf(path)
	return m.Print, err == nil
}

func (p *treeScan) there(path string) bool {
	_, ok := p.finder.At(path)
	return ok
}
