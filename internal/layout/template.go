package layout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Schema is the version of template.json. A file of a newer schema is refused, not guessed at.
const Schema = 1

// ErrNewer is in the chain of the error about a template that a newer program wrote: it is not damaged.
var ErrNewer = errors.New("the template was written by a newer version of this program")

// Kinds of a File.
const (
	KindDisk  = "disk"  // its layers are in images_dir
	KindState = "state" // its layers are in state_file_dir
)

// Template is the content of a template.json. Versions are oldest first.
type Template struct {
	Schema   int       `json:"schema"`
	ID       string    `json:"id"` // lower-case UUID, the name of the directory
	Name     string    `json:"name"`
	Arch     string    `json:"arch"` // "amd64", "arm64" or ""
	Gen      int64     `json:"gen"`  // grows by one with every write
	Versions []Version `json:"versions"`
}

// Version is one tag. It never changes once it is written.
type Version struct {
	Tag         string `json:"tag"`
	Number      int    `json:"number"`     // its index in Versions
	ContentID   string `json:"content_id"` // 64 hex digits
	Description string `json:"description"`
	Arch        string `json:"arch"`
	Files       []File `json:"files"`
	NVRAM       bool   `json:"nvram"`             // the version's directory has a file "nvram"
	Created     int64  `json:"creation_date"`     // epoch seconds
	LastPush    int64  `json:"last_push"`         // epoch seconds
	Session     string `json:"session,omitempty"` // the push that made it
}

// File is one file of a version with its chain of layers, the oldest first.
type File struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`
	Format string  `json:"format,omitempty"`
	Size   int64   `json:"size"` // bytes of the file itself
	Layers []Layer `json:"layers"`
}

// Layer is a layer file that a version needs.
type Layer struct {
	Digest      string `json:"root"`          // 64 hex digits
	Squashes    string `json:"tip,omitempty"` // see Layer.Name; 64 hex digits when it is not Root
	Size        int64  `json:"size"`          // bytes of the layer file
	IndexOffset int64  `json:"index_off"`
	IndexLength int64  `json:"index_len"`
}

// FileName is the layer's name in images_dir or state_file_dir.
func (l Layer) FileName() string { return l.Digest + LayerSuffix }

// ChainID is the canonical name of the content of a chain that ends in the layer: the layer's digest, or, for a
// squashed layer, the name of the chain that it replaces.
func (l Layer) ChainID() string {
	if l.Squashes != "" {
		return l.Squashes
	}
	return l.Digest
}

// ChainID is the canonical name of the file's content: that of its newest layer.
func (f *File) ChainID() string { return f.Layers[len(f.Layers)-1].ChainID() }

// hasSquashedLayer reports whether a layer of the version replaced others: its text files may be older.
func (v *Version) hasSquashedLayer() bool {
	return slices.ContainsFunc(v.Files, func(f File) bool {
		return slices.ContainsFunc(f.Layers, func(l Layer) bool { return l.Squashes != "" })
	})
}

// LayerSuffix ends the name of every layer file.
const LayerSuffix = ".ank"

// Images returns the names of the version's disk layers: the whole chain of every disk.
func (v *Version) Images() []string { return v.layerFileNames(KindDisk) }

// StateFiles returns the names of the version's state layers.
func (v *Version) StateFiles() []string { return v.layerFileNames(KindState) }

func (v *Version) layerFileNames(kind string) []string {
	out := []string{}
	for _, f := range v.Files {
		if f.Kind != kind {
			continue
		}
		for _, l := range f.Layers {
			out = append(out, l.FileName())
		}
	}
	return out
}

// Size is the number of stored bytes behind the version, each layer counted once.
func (v *Version) Size() int64 {
	seen := map[string]bool{}
	return v.unseenSize(seen)
}

// Increments returns for each version the number of stored bytes that no older one has. Their sum is the size
// of the template, each layer counted once.
func (t *Template) Increments() []int64 {
	seen := map[string]bool{}
	out := make([]int64, len(t.Versions))
	for i := range t.Versions {
		out[i] = t.Versions[i].unseenSize(seen)
	}
	return out
}

func (v *Version) unseenSize(seen map[string]bool) int64 {
	var sum int64
	for _, f := range v.Files {
		for _, l := range f.Layers {
			if !seen[l.Digest] {
				seen[l.Digest] = true
				sum += l.Size
			}
		}
	}
	return sum
}

// Validate checks all properties that readers rely on.
func (t *Template) Validate() error {
	if t.Schema != Schema {
		return fmt.Errorf("unsupported schema %d: want %d", t.Schema, Schema)
	}
	if id, ok := ParseID(t.ID); !ok || id != t.ID {
		return fmt.Errorf("ID %q is not a UUID", t.ID)
	}
	if !ValidArch(t.Arch) || !ValidText(t.Name, 255) || t.Gen < 1 {
		return fmt.Errorf("invalid name, architecture or generation")
	}
	tags := map[string]bool{}
	for i := range t.Versions {
		v := &t.Versions[i]
		if v.Number != i {
			return fmt.Errorf("version %d is at position %d of the list", v.Number, i)
		}
		if tags[v.Tag] {
			return fmt.Errorf("tag %q occurs twice", v.Tag)
		}
		tags[v.Tag] = true
		if err := v.validate(); err != nil {
			return fmt.Errorf("version %d: %w", i, err)
		}
	}
	return nil
}

func (v *Version) validate() error {
	if !ValidTag(v.Tag) || !ValidArch(v.Arch) || !isHexOfLength(v.ContentID, 64) {
		return fmt.Errorf("invalid tag, architecture or content ID of a version")
	}
	names := map[string]bool{}
	for _, f := range v.Files {
		if !ValidFileName(f.Name) || names[f.Name] || (f.Kind != KindDisk && f.Kind != KindState) || f.Size < 0 ||
			len(f.Layers) == 0 {
			return fmt.Errorf("invalid file %q", f.Name)
		}
		names[f.Name] = true
		for _, l := range f.Layers {
			if !l.valid() {
				return fmt.Errorf("invalid layer %q of file %q", l.Digest, f.Name)
			}
		}
	}
	return nil
}

// maxLayerSize bounds the size of a layer file, so that sums of sizes cannot overflow.
const maxLayerSize = 1 << 47

func (l Layer) valid() bool {
	return isHexOfLength(l.Digest, 64) && (l.Squashes == "" || isHexOfLength(l.Squashes, 64)) && l.Size > 0 &&
		l.Size <= maxLayerSize &&
		l.IndexOffset >= 0 && l.IndexLength > 0 && l.IndexLength <= l.Size && l.IndexOffset <= l.Size-l.IndexLength
}

// ParseID returns the lower-case form of a UUID in its 36-character form.
func ParseID(s string) (string, bool) {
	if len(s) != 36 {
		return "", false
	}
	s = strings.ToLower(s)
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && !isHex(s[i]) {
			return "", false
		}
	}
	return s, true
}

// ValidLayerName reports whether a name is valid in images_dir and state_file_dir: 32 or 64 lower-case hex
// digits and the suffix.
func ValidLayerName(name string) bool {
	stem, ok := strings.CutSuffix(name, LayerSuffix)
	return ok && (isHexOfLength(stem, 32) || isHexOfLength(stem, 64))
}

func isHexOfLength(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if !isHex(s[i]) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// ValidArch reports whether arch is "amd64", "arm64" or "".
func ValidArch(arch string) bool { return arch == "" || arch == "amd64" || arch == "arm64" }

// ValidTag reports whether tag is any text without control characters, 1 to 255 bytes. Tags never become paths.
func ValidTag(tag string) bool { return tag != "" && ValidText(tag, 255) }

// ValidText reports whether s is UTF-8 text without control characters of at most limit bytes.
func ValidText(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// ValidFileName reports whether name is safe in every directory: letters, digits, ".", "_", "-", at most 128
// bytes, no leading dot.
func ValidFileName(name string) bool {
	if name == "" || len(name) > 128 || name[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("._-", r)
	})
}
