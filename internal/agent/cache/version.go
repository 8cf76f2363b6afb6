package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
)

// Version is a version as it is in the cache. Its files must not be changed.
type Version struct {
	Ref    Ref
	Dir    string                   // absolute; the configuration's file names are relative to it
	Config []byte                   // the configuration object, including fields that this program does not know
	NVRAM  []byte                   // nil: the version has none
	Files  map[string]File          // by name, where something is known about them
	Disks  map[string]diskfile.Disk // for each of Files, the files that it is read from
}

// Version returns a version that is cached, or from which VMs can be started already. The caller has pinned it.
func (c *Cache) Version(contentID string) (Version, error) {
	v, err := c.describeVersion(contentID)
	if err != nil {
		return v, err
	}
	if v.Config, err = readSmallFile(filepath.Join(v.Dir, configFile)); err != nil {
		return Version{}, fmt.Errorf("read configuration of version %s: %w", contentID, err)
	}
	v.NVRAM, err = readSmallFile(filepath.Join(v.Dir, nvramFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Version{}, fmt.Errorf("read NVRAM of version %s: %w", contentID, err)
	}
	return v, nil
}

// describeVersion describes a version without reading its files.
func (c *Cache) describeVersion(contentID string) (Version, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[contentID]
	if l := c.startableLocked(contentID); e == nil && l != nil {
		return Version{Ref: l.ref, Dir: c.path(contentID)}, nil // its files are as the configuration describes them
	}
	if e == nil {
		return Version{}, farm.Errorf(farm.CodeNotFound, "Version %s is not in the template cache", contentID)
	}
	v := Version{Ref: e.Ref, Dir: c.path(contentID), Files: e.Files, Disks: map[string]diskfile.Disk{}}
	for name := range e.Files {
		d, ok := c.diskChainLocked(contentID, name)
		if !ok {
			err := fmt.Errorf("%s of version %s: parent layer not found", name, contentID)
			return v, farm.MarkFailure(err, farm.FailureTemplate, "")
		}
		v.Disks[name] = d
	}
	return v, nil
}

// Config returns a version's template configuration, and the version.
func (c *Cache) Config(contentID string) (config api.TemplateConfig, v Version, err error) {
	if v, err = c.Version(contentID); err != nil {
		return config, v, err
	}
	if err := json.Unmarshal(v.Config, &config); err != nil {
		err = fmt.Errorf("read configuration of version %s: %w", contentID, err)
		return config, v, farm.MarkFailure(err, farm.FailureTemplate, "")
	}
	return config, v, nil
}

// readSmallFile reads a small file.
func readSmallFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileRead {
		return nil, fmt.Errorf("the file has %d bytes, more than %d", info.Size(), int64(maxFileRead))
	}
	return os.ReadFile(name)
}
