package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

// evictFor evicts the least recently used versions until a version of whole bytes fits in addition
// to the reserve and the other pulls, and books that space for the pull. What an interrupted pull
// already wrote to the directory part needs no more space.
func (c *Cache) evictFor(ctx context.Context, f *sharedPull, whole int64, part string) error {
	c.evictionMu.Lock()
	defer c.evictionMu.Unlock()
	need := max(whole-c.pulledBytes(part), 0)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		free, total, err := c.opts.DiskSpace()
		if err != nil {
			return err
		}
		reserve := c.opts.Reserve.Of(total)
		if need == 0 || free-reserve-c.bookedBytes() >= need {
			break
		}
		removed, err := c.removeOldest(f.ref.ContentID)
		if err != nil {
			return err
		}
		if !removed {
			err := farm.Refused(
				"the disk has %s free of which %s are reserved; the version needs %s, and no cached template can "+
					"be removed: remove VMs or other files from the node",
				bytesize.Format(free), bytesize.Format(reserve), bytesize.Format(need))
			return farm.MarkFailure(err, farm.FailureDisk, "")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.neededBytes, f.unwrittenBytes = need, need
	return nil
}

// EnsureFreeSpace evicts the least recently used versions until that many bytes are free in addition to
// what pulls may still write, or nothing is left that may be removed. The reserve counts as free:
// the space is for other data than templates.
func (c *Cache) EnsureFreeSpace(ctx context.Context, bytes int64) error {
	c.evictionMu.Lock()
	defer c.evictionMu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		free, _, err := c.opts.DiskSpace()
		if err != nil || free-c.bookedBytes() >= bytes {
			return err
		}
		if removed, err := c.removeOldest(""); err != nil || !removed {
			return err
		}
	}
}

// pulledBytes returns the bytes that an interrupted pull has written; what it linked or cloned never
// needed space.
func (c *Cache) pulledBytes(part string) int64 {
	files := host.ExclusiveBytes(part)
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for inode, bytes := range files {
		if !c.isKnownLocked(inode) {
			sum += bytes
		}
	}
	return sum
}

// isKnownLocked reports whether a file belongs to a cached version.
func (c *Cache) isKnownLocked(inode host.Inode) bool {
	for _, e := range c.entries {
		if _, ok := e.inodeBytes[inode]; ok {
			return true
		}
	}
	return false
}

// bookedBytes returns the bytes that the running pulls may still write.
func (c *Cache) bookedBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, f := range c.pulls {
		sum += f.unwrittenBytes
	}
	return sum
}

// removeOldest removes one item: first interrupted pulls that no running pull resumes, then the least
// recently used version that is neither pinned nor the base of another one. keep is the version
// that the space is for.
func (c *Cache) removeOldest(keep string) (bool, error) {
	if name := c.oldestPartial(keep); name != "" {
		return true, c.removeDir(name)
	}
	for {
		c.mu.Lock()
		oldest := ""
		for id, e := range c.entries {
			if !c.isInUseLocked(id) && (oldest == "" || e.usedAt.Before(c.entries[oldest].usedAt)) {
				oldest = id
			}
		}
		c.mu.Unlock()
		if oldest == "" {
			return false, nil
		}
		if err := c.evict(oldest); !errors.Is(err, errPinned) {
			return err == nil, err
		}
	}
}

// oldestPartial returns the name of an interrupted pull that no running pull resumes.
func (c *Cache) oldestPartial(keep string) string {
	list, err := os.ReadDir(c.opts.Dir)
	if err != nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, item := range list {
		id, partial := strings.CutSuffix(item.Name(), partSuffix)
		if partial && id != keep && c.pulls[id] == nil {
			return item.Name()
		}
	}
	return ""
}

// RemoveStalePulls removes interrupted pulls that have not been resumed for a day.
func (c *Cache) RemoveStalePulls() error {
	c.evictionMu.Lock()
	defer c.evictionMu.Unlock()
	list, err := os.ReadDir(c.opts.Dir)
	if err != nil {
		return fmt.Errorf("remove leftovers from the template cache: %w", err)
	}
	for _, item := range list {
		id, partial := strings.CutSuffix(item.Name(), partSuffix)
		info, err := item.Info()
		if !partial || err != nil || c.opts.Now().Sub(info.ModTime()) < staleAfter {
			continue
		}
		c.mu.Lock()
		busy := c.pulls[id] != nil || len(c.pins[id]) > 0
		c.mu.Unlock()
		if busy {
			continue
		}
		if err := c.removeDir(item.Name()); err != nil {
			return fmt.Errorf("remove leftovers from the template cache: %w", err)
		}
	}
	return nil
}

// DiskSpace returns the bytes that may still be written on the cache's disk, and its size.
func (c *Cache) DiskSpace() (free, total int64, err error) { return c.opts.DiskSpace() }
