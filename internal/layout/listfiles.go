package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// maxListBytes bounds the text file of a version that names layer files, in bytes.
const maxListBytes = 16 << 20

// listFiles are the text files of a version that are made from template.json, for external scripts.
var listFiles = []struct {
	name  string
	names func(*Version) []string
}{
	{"images", (*Version).Images},
	{"state_files", (*Version).StateFiles},
}

// StaleListFiles names the text files of a committed version that differ from template.json. They belong to a
// version whose layers were swapped, or whose files were edited.
func (d *Dir) StaleListFiles(id string, v *Version) ([]string, error) {
	var stale []string
	for _, l := range listFiles {
		held, err := d.readFile(path.Join(versionPath(id, v.Number), l.name), maxListBytes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil || !bytes.Equal(held, joinLines(l.names(v))) {
			stale = append(stale, l.name)
		}
	}
	return stale, nil
}

// RewriteListFiles rewrites the stale text files of a committed version, and returns their names.
func (d *Dir) RewriteListFiles(id string, v *Version) ([]string, error) {
	stale, err := d.StaleListFiles(id, v)
	if err != nil || len(stale) == 0 || !d.isCommitted(id, v) {
		return nil, err
	}
	for _, l := range listFiles {
		name := path.Join(versionPath(id, v.Number), l.name)
		if err := d.WriteFile("lists", name, joinLines(l.names(v))); err != nil {
			return nil, err
		}
	}
	return stale, nil
}

// isCommitted reports whether the version's directory is in its final place.
func (d *Dir) isCommitted(id string, v *Version) bool {
	held, err := d.readFile(path.Join(versionPath(id, v.Number), contentIDFile), 128)
	return err == nil && strings.TrimSpace(string(held)) == v.ContentID
}

// IsUncommitted reports whether a version's directory waits for its move to the final place, which the
// next start of a registry, or a repair, makes.
func (d *Dir) IsUncommitted(id string, v *Version) bool {
	_, err := d.root.Stat(stagedPath(id, v))
	return err == nil
}

// QuarantineDir is the quarantine directory for templates that cannot be read. Only an operator removes its content.
const QuarantineDir = "aside_dir"

// QuarantineTemplate moves a template's directory out of the way with one rename. stamp is the time in epoch
// nanoseconds. It returns the new path relative to the storage.
func (d *Dir) QuarantineTemplate(id string, stamp int64) (string, error) {
	if !isLocalName(id) {
		return "", fmt.Errorf("%q is not a directory name", id)
	}
	if err := d.MkdirAll(QuarantineDir); err != nil {
		return "", err
	}
	target := path.Join(QuarantineDir, TrashName(stamp, id))
	for _, err := d.root.Stat(target); err == nil; _, err = d.root.Stat(target) {
		stamp++ // quarantined twice within the clock's resolution
		target = path.Join(QuarantineDir, TrashName(stamp, id))
	}
	return target, d.Rename("aside", path.Join(TemplatesDir, id), target)
}

func isLocalName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// QuarantinedNames lists the quarantined directories.
func (d *Dir) QuarantinedNames() ([]string, error) {
	entries, err := d.ReadDir(QuarantineDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list quarantined templates: %w", err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, path.Join(QuarantineDir, e.Name()))
	}
	return out, nil
}

// LayersInListFiles returns the names of layer files in the text files of a template's directory, which may be
// damaged or quarantined. dir is its path relative to the storage. Unreadable files name nothing. As long as
// such a directory exists, its layers are all that is left of it.
func (d *Dir) LayersInListFiles(dir string) []string {
	entries, err := d.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil && !strings.HasPrefix(e.Name(), stagedPrefix) {
			continue
		}
		for _, l := range listFiles {
			raw, err := d.readFile(path.Join(dir, e.Name(), l.name), maxListBytes)
			if err != nil {
				continue
			}
			for name := range strings.Lines(string(raw)) {
				if name = strings.TrimSpace(name); ValidLayerName(name) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// TemplatePath is the path of a template's directory relative to the storage.
func TemplatePath(id string) string { return path.Join(TemplatesDir, id) }
