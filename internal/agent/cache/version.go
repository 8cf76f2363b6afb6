package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Version is a version as it lies in the cache. Its files must not be changed.
type Version struct {
	Ref    Ref
	Dir    string            // absolute; the configuration's file names are relative to it
	Config []byte            // the configuration object, with the fields that nobody here knows
	NVRAM  []byte            // nil: the version has none
	Roots  map[string]string // file name -> root of its layer, where known
}

// Version gives a cached version. The caller holds it by a pin.
func (c *Cache) Version(contentID string) (Version, error) {
	c.mu.Lock()
	e := c.entries[contentID]
	c.mu.Unlock()
	if e == nil {
		return Version{}, farm.Errorf(farm.CodeNotFound, "Version %s is not in the template cache", contentID)
	}
	v := Version{Ref: e.Ref, Dir: c.path(contentID), Roots: e.Roots}
	var err error
	if v.Config, err = readSmall(filepath.Join(v.Dir, configFile)); err != nil {
		return Version{}, fmt.Errorf("configuration of version %s: %w", contentID, err)
	}
	v.NVRAM, err = readSmall(filepath.Join(v.Dir, nvramFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Version{}, fmt.Errorf("NVRAM of version %s: %w", contentID, err)
	}
	return v, nil
}

// Config gives a version's template configuration and the absolute path of the
// directory that its file names are relative to.
func (c *Cache) Config(contentID string) (config api.TemplateConfig, dir string, err error) {
	v, err := c.Version(contentID)
	if err != nil {
		return config, "", err
	}
	if err := json.Unmarshal(v.Config, &config); err != nil {
		return config, "", fmt.Errorf("configuration of version %s: %w", contentID, err)
	}
	return config, v.Dir, nil
}

// readSmall reads a file that is never large.
func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileRead {
		return nil, errors.New("it is too large")
	}
	return os.ReadFile(name)
}
