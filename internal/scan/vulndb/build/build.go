// Package build builds a vulnerability database from public feeds.
//
// It fetches nothing: the feeds are on the disk. It does not decide which source is right about a
// package either; it only joins the records of one vulnerability.
//
// Invariant: the same inputs produce the same bytes, whatever order they are read in, and the
// target is replaced by a whole database or not at all.
package build

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// Options configure a build.
type Options struct {
	Inputs []string // files and directories of feeds
	Target string   // file of the database; its directory exists
	Temp   string   // directory of temporary files; "" is the target's directory

	MaxMemory int       // bytes for sorting; 0 is 64 MiB
	Now       time.Time // that the database is dated with; zero is the date of its newest source
	Progress  func(Progress)
}

// Progress is the progress of a build.
type Progress struct {
	Stage    string // "read", "join", "write"
	Input    string // that is being read
	Records  int    // that were read
	Rejected int
}

const (
	defaultMemory = 64 << 20
	progressEvery = 1000 // records
	queueLength   = 64   // items between reader, parsers and collector
)

// Build reads all inputs and writes a database. Its report is valid even where records were bad; an
// input that cannot be read at all is an error.
func Build(ctx context.Context, o Options) (*Report, error) {
	if o.MaxMemory == 0 {
		o.MaxMemory = defaultMemory
	}
	if o.Temp == "" {
		o.Temp = filepath.Dir(o.Target)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	target, err := atomicfile.Create(o.Target)
	if err != nil {
		return nil, fmt.Errorf("build the database: %w", err)
	}
	defer target.Discard()
	if err := checkWritable(o.Temp); err != nil {
		return nil, fmt.Errorf("build the database: %w", err)
	}
	c := newCollector(o)
	defer c.close()
	for _, from := range o.Inputs {
		if err := c.readInput(ctx, from); err != nil {
			return nil, fmt.Errorf("build the database: %w", err)
		}
	}
	report, err := c.writeDatabase(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("build the database: %w", err)
	}
	return report, nil
}

// checkWritable returns an error before the work if temporary files cannot be written.
func checkWritable(dir string) error {
	f, err := atomicfile.CreateUnnamed(dir)
	if err != nil {
		return fmt.Errorf("create temporary files: %w", err)
	}
	return f.Close()
}

// readInput sends the items of an input to parsers, and their records to the sorters.
func (c *collector) readInput(ctx context.Context, from string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items := make(chan feed.Item, queueLength)
	records := make(chan []feed.Record, queueLength)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(items)
		return c.sendItems(ctx, from, items)
	})
	var parsers sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)) {
		parsers.Add(1)
		g.Go(func() error {
			defer parsers.Done()
			return parseItems(ctx, items, records)
		})
	}
	go func() {
		parsers.Wait()
		close(records)
	}()
	var failed error
	for list := range records {
		for _, r := range list {
			if failed == nil {
				failed = c.addRecord(from, r)
			}
		}
		if failed != nil {
			cancel()
		}
	}
	if err := g.Wait(); failed == nil {
		failed = err
	}
	return failed
}

// sendItems reads the items of an input.
func (c *collector) sendItems(ctx context.Context, from string, items chan<- feed.Item) error {
	n, err := feed.Read(ctx, from, func(it feed.Item) error {
		select {
		case items <- it:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, c.rejectFile)
	c.addFileCounts(n)
	return err
}

// parseItems parses items until there are no more.
func parseItems(ctx context.Context, items <-chan feed.Item, records chan<- []feed.Record) error {
	for it := range items {
		select {
		case records <- it.Parse():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// buildDate returns the date of the database.
func (o Options) buildDate(sources []vulndb.SourceInfo) time.Time {
	if !o.Now.IsZero() {
		return o.Now
	}
	var t time.Time
	for _, s := range sources {
		if s.Date.After(t) {
			t = s.Date
		}
	}
	return t
}
