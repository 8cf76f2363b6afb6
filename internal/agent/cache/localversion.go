package cache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// pullSources is the content that a pull is made from, with the versions that it belongs to.
type pullSources struct {
	localContent   LocalContent
	filesByChainID map[string]File // by chain ID
	baseFiles      map[string]BaseFile
}

// pinSources pins the versions that a pull is made from, since they must not be evicted for it: without
// them the pull would need more space than was booked, and versions based on them would be lost.
func (c *Cache) pinSources(ref Ref, tips []string) (s pullSources, release func()) {
	s = pullSources{localContent: LocalContent{}, filesByChainID: map[string]File{}, baseFiles: map[string]BaseFile{}}
	holder := "pull:" + ref.ContentID
	c.mu.Lock()
	all := c.contentLocked()
	for _, tip := range tips {
		b, ok := all[tip]
		if !ok {
			continue
		}
		s.baseFiles[tip], s.filesByChainID[tip] = b, c.entries[b.ContentID].Files[b.FileName]
		s.localContent[tip], _ = c.diskChainLocked(b.ContentID, b.FileName)
		c.pinLocked(b.ContentID, holder)
	}
	c.mu.Unlock()
	return s, func() {
		for _, b := range s.baseFiles {
			c.Unpin(b.ContentID, holder)
		}
	}
}

// describeFiles describes where the built files are on this node.
func (s pullSources) describeFiles(built map[string]BuiltFile) (map[string]File, error) {
	files := make(map[string]File, len(built))
	for name, b := range built {
		f := File{ChainID: b.ChainID, Format: b.Format}
		switch b.Form {
		case transfer.FormLinked: // to a file that stays where it is
			from, ok := s.filesByChainID[b.ChainID]
			if !ok {
				return nil, fmt.Errorf("%s is linked to a file that is not in the cache", name)
			}
			f = from
		case transfer.FormOverlay:
			below, ok := s.baseFiles[b.BaseChainID]
			if !ok {
				return nil, fmt.Errorf("%s: parent layer not found", name)
			}
			f.Base = &below
		}
		files[name] = f
	}
	return files, nil
}

// LocalVersion is a version that was made on this host and published.
type LocalVersion struct {
	Ref    Ref
	Paths  map[string]string // file name -> path on the cache's file system; linked, never moved
	Files  map[string]File   // their descriptions, by the same names
	Config []byte
	NVRAM  []byte // nil: none
}

// AddLocal lists a version that was made on this host, so that nothing of it has to be pulled. A
// version that is cached or being pulled is not changed.
func (c *Cache) AddLocal(ctx context.Context, a LocalVersion) error {
	if !contentIDPattern.MatchString(a.Ref.ContentID) {
		return farm.Invalid("content_id", "%q is not a content ID", a.Ref.ContentID)
	}
	var noProgress func(float64)
	f := c.joinPull(ctx, a.Ref, &noProgress,
		func(_ context.Context, f *sharedPull) error { return c.linkLocalVersion(f, a) })
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		c.leavePull(f, &noProgress)
		return context.Cause(ctx)
	}
}

func (c *Cache) linkLocalVersion(f *sharedPull, a LocalVersion) (err error) {
	part := c.path(a.Ref.ContentID) + partSuffix
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("adopt %s %s: %w", a.Ref.Name, a.Ref.Tag, err)
		_ = os.RemoveAll(part) // Open and the next pull remove what is left
		c.mu.Lock()
		f.abandoned = true // callers that joined pull the version instead
		c.mu.Unlock()
	}()
	release, err := c.pinParents(a)
	defer release()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o700); err != nil {
		return err
	}
	for name, path := range a.Paths {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return farm.Invalid("file", "%q is a path: want a file name", name)
		}
		if err := os.Link(path, filepath.Join(part, name)); err != nil {
			return err
		}
	}
	for name, data := range map[string][]byte{configFile: a.Config, nvramFile: a.NVRAM} {
		if data == nil {
			continue
		}
		if err := datadir.WriteFile(filepath.Join(part, name), data); err != nil {
			return err
		}
	}
	return c.listPulled(a.Ref, a.Files, part)
}

// pinParents pins what an adopted version is based on until the version is listed.
func (c *Cache) pinParents(a LocalVersion) (release func(), err error) {
	var below []string
	holder := "adopt:" + a.Ref.ContentID
	release = func() {
		for _, id := range below {
			c.Unpin(id, holder)
		}
	}
	for name, f := range a.Files {
		if f.Base == nil {
			continue
		}
		c.Pin(f.Base.ContentID, holder)
		below = append(below, f.Base.ContentID)
		c.mu.Lock()
		d, ok := c.diskChainLocked(f.Base.ContentID, f.Base.FileName)
		c.mu.Unlock()
		switch {
		case !ok:
			err = fmt.Errorf("%s: parent version %s not found", name, f.Base.ContentID)
		case len(d.Overlays) >= transfer.MaxOverlays:
			err = fmt.Errorf("%s would be overlay %d of its disk: a pull combines more than %d into one", name,
				len(d.Overlays)+1, transfer.MaxOverlays)
		}
	}
	return release, err
}
