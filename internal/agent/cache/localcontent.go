package cache

import (
	"cmp"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/diskfile"
)

// Versions share content in two ways. A file with the same content is a hard link, so it outlives
// the version that it came with. A disk that differs a little from another one may be an overlay on
// it: then its version keeps the other version in the cache.

// File describes a file of a version.
type File struct {
	ChainID string    `json:"tip,omitempty"`    // chain ID of its content; "" = not known
	Format  string    `json:"format,omitempty"` // "raw" or "qcow2", of the lowest file unless set; "" = not known
	Base    *BaseFile `json:"below,omitempty"`  // nil: the file is complete; otherwise it is an overlay on this
}

// BaseFile is a file of a cached version.
type BaseFile struct {
	ContentID string `json:"content_id"`
	FileName  string `json:"file"`
}

// diskChainLocked returns the files that a file of a version is read from; false when one of their
// versions is not cached.
func (c *Cache) diskChainLocked(contentID, name string) (diskfile.Disk, bool) {
	var d diskfile.Disk
	for range len(c.entries) { // a chain has each version once, unless its records are damaged
		e := c.entries[contentID]
		if e == nil || !filepath.IsLocal(name) || filepath.Base(name) != name {
			return d, false
		}
		path, f := filepath.Join(c.path(contentID), name), e.Files[name]
		d.Format = cmp.Or(f.Format, d.Format)
		if f.Base == nil {
			d.Path = path
			return d, true
		}
		d.Overlays = append([]string{path}, d.Overlays...)
		contentID, name = f.Base.ContentID, f.Base.FileName
	}
	return d, false
}

// isBaseCachedLocked reports whether everything that a version is based on is cached.
func (c *Cache) isBaseCachedLocked(e *entry) bool {
	for name := range e.Files {
		if _, ok := c.diskChainLocked(e.Ref.ContentID, name); !ok {
			return false
		}
	}
	return true
}

// dependentLocked returns a version that is based on this one; "" for none.
func (c *Cache) dependentLocked(contentID string) string {
	for id, e := range c.entries {
		for _, f := range e.Files {
			if f.Base != nil && f.Base.ContentID == contentID && id != contentID {
				return id
			}
		}
	}
	return ""
}

// isInUseLocked reports whether a version must not be removed.
func (c *Cache) isInUseLocked(contentID string) bool {
	return len(c.pins[contentID]) > 0 || c.dependentLocked(contentID) != ""
}

// contentLocked maps chain IDs to cached files. Of several files with the same content it returns
// the one with the fewest overlays, and of those always the same one.
func (c *Cache) contentLocked() map[string]BaseFile {
	all := map[string]BaseFile{}
	depth := map[string]int{}
	for id, e := range c.entries {
		for name, f := range e.Files {
			d, ok := c.diskChainLocked(id, name)
			if f.ChainID == "" || !ok {
				continue
			}
			old, known := all[f.ChainID]
			n := len(d.Overlays)
			if !known || n < depth[f.ChainID] ||
				n == depth[f.ChainID] && (id < old.ContentID || id == old.ContentID && name < old.FileName) {
				all[f.ChainID], depth[f.ChainID] = BaseFile{ContentID: id, FileName: name}, n
			}
		}
	}
	return all
}

// localContent returns all cached content, with the files that it is read from.
func (c *Cache) localContent() LocalContent {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := LocalContent{}
	for tip, b := range c.contentLocked() {
		have[tip], _ = c.diskChainLocked(b.ContentID, b.FileName)
	}
	return have
}
