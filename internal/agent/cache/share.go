package cache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/farm"
)

// Versions share files by hard links: each directory is whole by itself, so that a
// version can be removed whatever others were made from it.

// layers gives every file of the cache by the root of its layer.
func (c *Cache) layers() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := map[string]string{}
	for id, e := range c.entries {
		for name, root := range e.Roots {
			if filepath.IsLocal(name) {
				have[root] = filepath.Join(c.path(id), name)
			}
		}
	}
	return have
}

// share holds the versions that a pull links to, since room must not be made with
// them: without them more would have to be moved than was asked for.
func (c *Cache) share(ref Ref, roots []string) (have map[string]string, release func()) {
	wanted := make(map[string]bool, len(roots))
	for _, r := range roots {
		wanted[r] = true
	}
	have = map[string]string{}
	var from []string
	c.mu.Lock()
	for id, e := range c.entries {
		gives := false
		for name, root := range e.Roots {
			if wanted[root] && have[root] == "" && filepath.IsLocal(name) {
				have[root], gives = filepath.Join(c.path(id), name), true
			}
		}
		if gives {
			from = append(from, id)
		}
	}
	c.mu.Unlock()
	holder := "pull:" + ref.ContentID
	for _, id := range from {
		c.Pin(id, holder)
	}
	return have, func() {
		for _, id := range from {
			c.Unpin(id, holder)
		}
	}
}

// Adoption is a version that was made on this host and published.
type Adoption struct {
	Ref    Ref
	Files  map[string]string // file name -> where it lies on the cache's file system; linked, never moved
	Roots  map[string]string // file name -> root of its layer, where known
	Config []byte
	NVRAM  []byte // nil: none
}

// Adopt lists a version that was made on this host, so that nothing of it has to be
// pulled. A version that is here or on its way is left as it is.
func (c *Cache) Adopt(ctx context.Context, a Adoption) error {
	if !idForm.MatchString(a.Ref.ContentID) {
		return farm.Invalid("content_id", "%q is no content id", a.Ref.ContentID)
	}
	var nobody func(float64)
	f := c.join(ctx, a.Ref, &nobody, func(_ context.Context, f *flight) error { return c.adopt(f, a) })
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		c.leave(f, &nobody)
		return context.Cause(ctx)
	}
}

func (c *Cache) adopt(f *flight, a Adoption) (err error) {
	part := c.path(a.Ref.ContentID) + partSuffix
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("adopt %s %s: %w", a.Ref.Name, a.Ref.Tag, err)
		_ = os.RemoveAll(part) // Open and the next pull deal with what is left
		c.mu.Lock()
		f.left = true // whoever joined pulls the version instead
		c.mu.Unlock()
	}()
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o700); err != nil {
		return err
	}
	for name, path := range a.Files {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return farm.Invalid("file", "%q is no plain file name", name)
		}
		if err := os.Link(path, filepath.Join(part, name)); err != nil {
			return err
		}
	}
	for name, data := range map[string][]byte{configFile: a.Config, nvramFile: a.NVRAM} {
		if data == nil {
			continue
		}
		if err := home.WriteFile(filepath.Join(part, name), data); err != nil {
			return err
		}
	}
	return c.finish(a.Ref, a.Roots)
}
