package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Other nodes may read the versions of the cache, also while they are pulled.

var _ peers.Provider = (*Cache)(nil)

// Holding returns what is here of a version; false: nothing is.
func (c *Cache) Holding(ctx context.Context, contentID string) (transfer.Holding, bool) {
	c.mu.Lock()
	e, f, l := c.entries[contentID], c.pulls[contentID], c.lazyPulls[contentID]
	c.mu.Unlock()
	switch {
	case e != nil:
		return transfer.Holding{Complete: true}, true
	case l != nil:
		h, err := l.supervisor.Holding(ctx)
		return h, err == nil
	case f != nil && f.partial.Load() != nil:
		return f.partial.Load().Holding(), true
	}
	return transfer.Holding{}, false
}

// OpenRuns returns the bytes of ranges of a file, one after the other. transfer.ErrNotHere: not all of them are here.
func (c *Cache) OpenRuns(
	ctx context.Context, contentID, file string, runs []blob.Run,
) (io.ReadCloser, error) {
	c.mu.Lock()
	e, f, l := c.entries[contentID], c.pulls[contentID], c.lazyPulls[contentID]
	disk, ok := c.diskChainLocked(contentID, file)
	holder := fmt.Sprintf("peer:%d", readers.Add(1))
	if e != nil && ok {
		c.pins[contentID] = pinnedBy(c.pins[contentID], holder) // without touchLocked: this node does not use it
	}
	c.mu.Unlock()
	switch {
	case e != nil && ok:
		unpin := func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.unpinLocked(contentID, holder)
		}
		r, err := openDiskRuns(disk, runs)
		if err != nil {
			unpin()
			return nil, err
		}
		return closer{r, func() error {
			defer unpin()
			return r.Close()
		}}, nil
	case e == nil && l != nil:
		return l.supervisor.OpenRuns(ctx, file, runs)
	case e == nil && f != nil && f.partial.Load() != nil:
		return f.partial.Load().OpenRuns(file, runs)
	}
	return nil, transfer.ErrNotHere
}

// readers numbers the reads of other nodes.
var readers atomic.Int64

func pinnedBy(holders map[string]struct{}, holder string) map[string]struct{} {
	if holders == nil {
		holders = map[string]struct{}{}
	}
	holders[holder] = struct{}{}
	return holders
}

// openDiskRuns opens ranges of a file of a cached version. A file without overlays is read as it is, whatever its
// format.
func openDiskRuns(d diskfile.Disk, runs []blob.Run) (io.ReadCloser, error) {
	if len(d.Overlays) == 0 {
		f, info, err := diskfile.OpenRegular(d.Path)
		if err != nil {
			return nil, err
		}
		return newRuns(f, f, info.Size(), runs)
	}
	open, err := d.Open()
	if err != nil {
		return nil, err
	}
	return newRuns(open, open, open.Size(), runs)
}

func newRuns(r io.ReaderAt, c io.Closer, size int64, runs []blob.Run) (io.ReadCloser, error) {
	var parts []io.Reader
	for _, run := range runs {
		if run.Off+run.Len > size {
			return nil, errors.Join(transfer.ErrNotHere, c.Close())
		}
		parts = append(parts, io.NewSectionReader(r, run.Off, run.Len))
	}
	return closer{io.MultiReader(parts...), c.Close}, nil
}

// closer is a reader with a function that closes it.
type closer struct {
	io.Reader
	close func() error
}

func (c closer) Close() error { return c.close() }

// GuestsWait reports whether a VM waits for parts of its disk.
func (c *Cache) GuestsWait() bool {
	for _, s := range c.LazyPulls() {
		if s.Phase == lazyfill.Opening && len(s.VMs) > 0 { // its process follows one that was killed
			return true
		}
		if s.Phase != lazyfill.Serving {
			continue
		}
		for _, d := range s.Disks {
			if d.Readers > 0 {
				return true
			}
		}
	}
	return false
}
