package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	contentIDFile = "content_id"
	nvramFile     = "nvram"
	stagedPrefix  = ".new-"
	maxConfigFile = 4 << 20
	// MaxNVRAM is the largest nvram of a version in bytes.
	MaxNVRAM = 4 << 20
)

// A version's directory is written next to its final place, because the place may belong to a version that the
// same swap reverts: StageVersion, then Save, then CommitVersion. Readers look at both places and use the one
// whose content_id is the version's, so every step shows them a consistent version.

// StageVersion writes the directory of a version that a following Save will name. config is JSON.
func (d *Dir) StageVersion(id string, v *Version, config, nvram []byte) error {
	text, err := ConfigToYAML(config)
	if err != nil {
		return err
	}
	stage := stagedPath(id, v)
	if err := d.RemoveAll("stage", stage); err != nil {
		return err
	}
	if err := d.MkdirAll(stage); err != nil {
		return err
	}
	files := []struct {
		name string
		data []byte
	}{
		{"images", joinLines(v.Images())},
		{"state_files", joinLines(v.StateFiles())},
		{ConfigName(id), text},
		{contentIDFile, []byte(v.ContentID + "\n")},
		{nvramFile, nvram},
	}
	for _, f := range files {
		if f.name == nvramFile && !v.NVRAM {
			continue
		}
		if err := d.CreateFile("stage", path.Join(stage, f.name), f.data); err != nil {
			return err
		}
	}
	d.AnnounceStep("stage.dirsync")
	if err := d.SyncDir(stage); err != nil || d.remote == nil {
		return err
	}
	return d.remote.PutVersion(id, v, config, nvram)
}

// CommitVersion moves a staged directory to its final place and replaces that of a reverted version. It does
// nothing when the version is committed.
func (d *Dir) CommitVersion(id string, v *Version) error {
	final, stage := versionPath(id, v.Number), stagedPath(id, v)
	if _, err := d.root.Stat(stage); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := d.RemoveAll("settle", final); err != nil {
		return err
	}
	return d.RenameInDir("settle", stage, final)
}

// Config reads a version's configuration object as JSON.
func (d *Dir) Config(id string, v *Version) ([]byte, error) {
	text, err := d.readVersionFile(id, v, ConfigName(id), maxConfigFile)
	if err != nil {
		return nil, err
	}
	return ConfigToJSON(text)
}

// NVRAM reads a version's nvram; nil when it has none.
func (d *Dir) NVRAM(id string, v *Version) ([]byte, error) {
	if !v.NVRAM {
		return nil, nil
	}
	return d.readVersionFile(id, v, nvramFile, MaxNVRAM)
}

// CheckVersion reports whether the version's directory is complete. It reads no layer file.
func (d *Dir) CheckVersion(id string, v *Version) error {
	if _, err := d.Config(id, v); err != nil {
		return err
	}
	_, err := d.NVRAM(id, v)
	return err
}

// readVersionFile reads from the final place, the staged one, and once more from the final one: the directory may
// be moved between two reads.
func (d *Dir) readVersionFile(id string, v *Version, name string, limit int64) ([]byte, error) {
	var err error
	for _, dir := range []string{versionPath(id, v.Number), stagedPath(id, v), versionPath(id, v.Number)} {
		var held, raw []byte
		if held, err = d.readFile(path.Join(dir, contentIDFile), 128); err != nil {
			continue
		}
		if strings.TrimSpace(string(held)) != v.ContentID {
			err = fmt.Errorf("the directory of version %d has the content of another version", v.Number)
			continue
		}
		if raw, err = d.readFile(path.Join(dir, name), limit); err == nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("version %d of template %s: %w", v.Number, id, err)
}

// PruneTemplate commits versions that a crash left between Save and CommitVersion, rewrites text files that a swap of
// layers made stale, and removes directories and temporary files that the template does not name.
func (d *Dir) PruneTemplate(t *Template) error {
	entries, err := d.ReadDir(path.Join(TemplatesDir, t.ID))
	if err != nil {
		return err
	}
	staged := slices.ContainsFunc(entries,
		func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), stagedPrefix) })
	for i := range t.Versions {
		v := &t.Versions[i]
		if staged { // otherwise no version needs a separate check
			if err := d.CommitVersion(t.ID, v); err != nil {
				return err
			}
		}
		if !v.hasSquashedLayer() {
			continue
		}
		if _, err := d.RewriteListFiles(t.ID, v); err != nil {
			return err
		}
	}
	for _, e := range entries { // a committed version's staging directory no longer exists, which is not an error
		if !isLeftover(e.Name(), len(t.Versions)) {
			continue
		}
		if err := d.RemoveAll("tidy", path.Join(TemplatesDir, t.ID, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// isLeftover reports whether a name was made by this package and belongs to no version.
func isLeftover(name string, versions int) bool {
	if strings.HasPrefix(name, stagedPrefix) || strings.HasSuffix(name, tempSuffix) {
		return true
	}
	number, err := strconv.Atoi(name)
	return err == nil && number >= versions && strconv.Itoa(number) == name
}

// ConfigName is the name of a template's configuration file in a version's directory.
func ConfigName(id string) string { return id + ".yaml" }

func versionPath(id string, number int) string {
	return path.Join(TemplatesDir, id, strconv.Itoa(number))
}

func stagedPath(id string, v *Version) string {
	return path.Join(TemplatesDir, id, fmt.Sprintf("%s%d-%s", stagedPrefix, v.Number, v.ContentID))
}

func joinLines(names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	return []byte(strings.Join(names, "\n") + "\n")
}

// RemoveStaged removes the directory of a template that contains only staged versions, which a push of a new
// template left that ended before its Save. It reports whether it did.
func (d *Dir) RemoveStaged(id string) (bool, error) {
	if !d.HasOnlyStaged(id) {
		return false, nil
	}
	if err := d.RemoveAll("tidy", path.Join(TemplatesDir, id)); err != nil {
		return false, err
	}
	return true, nil
}

// HasOnlyStaged reports whether the directory of a template contains only staged versions. It is empty when the
// push ended before its first one.
func (d *Dir) HasOnlyStaged(id string) bool {
	if _, ok := ParseID(id); !ok {
		return false
	}
	entries, err := d.ReadDir(path.Join(TemplatesDir, id))
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), stagedPrefix) && !strings.HasSuffix(e.Name(), tempSuffix)
	})
}
