package mirror

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
)

// ManifestName is the name of the manifest in the directory of a mirror.
const ManifestName = "mirror.json"

// Schema is the version of the format of mirrors.
const Schema = 1

const (
	maxManifestBytes = 64 << 20
	maxFiles         = 100_000 // of one source
	maxNameBytes     = 200
)

// Manifest lists the files of a mirror. It is the file mirror.json.
type Manifest struct {
	Schema  int               `json:"schema"`
	Changed time.Time         `json:"changed,omitzero"` // when a file was last added, replaced or removed
	Sources map[string]*State `json:"sources"`          // by name
}

// State is the state of one source.
type State struct {
	Checked time.Time `json:"checked,omitzero"` // last successful check
	Changed time.Time `json:"changed,omitzero"` // when its files last changed
	Failed  time.Time `json:"failed,omitzero"`  // last check, when it failed
	Error   string    `json:"error,omitempty"`  // of that check
	Files   []File    `json:"files"`            // sorted by name

	// Collected is the time up to which changes were collected, for sources that are queried by date.
	Collected time.Time   `json:"collected,omitzero"`
	Pending   *Collection `json:"pending,omitempty"` // a collection that was interrupted
}

// File is one file of a mirror.
type File struct {
	Name string `json:"name"` // that stays the same for every version: nvd/nvdcve-2.0-2024.json.gz
	Path string `json:"path"` // of this version, in the mirror's directory
	URL  string `json:"url"`
	download.Validators
	Fetched time.Time `json:"fetched"`
	Date    time.Time `json:"date,omitzero"` // of its content, as the source states it
	Size    int64     `json:"size"`
	SHA256  string    `json:"sha256"`
	// Content is the SHA-256 of the unpacked content, where the source states it.
	Content string `json:"content,omitempty"`
	Records int    `json:"records"`
	// Index is set for files that are not advisories but used by the next check.
	Index bool `json:"index,omitempty"`
}

// sumLength is how many hex digits of the checksum are in the path of a file.
const sumLength = 16

// pathOf returns the path of the version of a file: nvd/nvdcve-2.0-2024.0123456789abcdef.json.gz. What is before the
// first dot that begins a known ending is kept.
func pathOf(name, sum string) string {
	for _, ending := range []string{".json.gz", ".csv.gz", ".tar.gz", ".zip"} {
		if stem, ok := strings.CutSuffix(name, ending); ok {
			return stem + "." + sum[:min(len(sum), sumLength)] + ending
		}
	}
	return name + "." + sum[:min(len(sum), sumLength)]
}

var (
	errSchema = errors.New("the mirror requires a newer version of this program")

	elementPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]*$`)
)

// validName reports whether a name is a relative path of plain elements; none is hidden.
func validName(name string) bool {
	if len(name) > maxNameBytes || !filepath.IsLocal(name) || path.Clean(name) != name {
		return false
	}
	for element := range strings.SplitSeq(name, "/") {
		if !elementPattern.MatchString(element) {
			return false
		}
	}
	return true
}

// ParseManifest parses a manifest.
func ParseManifest(b []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("parse %s: %w", ManifestName, err)
	}
	switch {
	case m.Schema > Schema:
		return nil, fmt.Errorf("%w: it has schema %d, this program supports %d", errSchema, m.Schema, Schema)
	case m.Schema != Schema:
		return nil, fmt.Errorf("parse %s: unknown schema %d", ManifestName, m.Schema)
	}
	paths := map[string]bool{}
	for name, s := range m.Sources {
		if !validName(name) || s == nil {
			return nil, fmt.Errorf("parse %s: invalid source %.60q", ManifestName, name)
		}
		if len(s.Files) > maxFiles {
			return nil, fmt.Errorf("parse %s: source %s has more than %d files", ManifestName, name, maxFiles)
		}
		for i := range s.Files {
			f := &s.Files[i]
			if err := f.check(); err != nil {
				return nil, fmt.Errorf("parse %s: source %s: file %.100q: %w", ManifestName, name, f.Name, err)
			}
			if paths[f.Path] {
				return nil, fmt.Errorf("parse %s: the file %s is listed twice", ManifestName, f.Path)
			}
			paths[f.Path] = true
		}
		s.sortFiles()
	}
	if m.Sources == nil {
		m.Sources = map[string]*State{}
	}
	return &m, nil
}

func (f *File) check() error {
	sum, err := hex.DecodeString(f.SHA256)
	switch {
	case err != nil || len(sum) != 32 || strings.ToLower(f.SHA256) != f.SHA256:
		return errors.New("invalid sha256")
	case !validName(f.Name) || f.Name == ManifestName:
		return errors.New("invalid name")
	case f.Path != pathOf(f.Name, f.SHA256):
		return fmt.Errorf("invalid path %.100q", f.Path)
	case f.Size <= 0 || f.Records < 0:
		return errors.New("invalid size or number of records")
	}
	return nil
}

func (s *State) sortFiles() {
	slices.SortFunc(s.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}

// file returns the file of a name; nil when there is none.
func (s *State) file(name string) *File {
	for i := range s.Files {
		if s.Files[i].Name == name {
			return &s.Files[i]
		}
	}
	return nil
}

// Records returns the number of records in the files. One that is in two files counts twice.
func (s State) Records() int {
	n := 0
	for _, f := range s.Files {
		if !f.Index {
			n += f.Records
		}
	}
	return n
}

// Bytes returns the size of the files.
func (s State) Bytes() int64 {
	var n int64
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}
