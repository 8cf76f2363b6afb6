package containertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// File is an entry of a layer.
type File struct {
	Name string // one that ends with a slash is a directory
	Data string
	Link string      // target of a symbolic link
	Hard string      // target of a hard link
	Mode fs.FileMode // 0: 0644
	Type byte        // of the entry; 0: what the other fields say
}

// Layer returns the archive of a layer.
func Layer(files ...File) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Mode: int64(f.Mode.Perm()), Typeflag: f.Type}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		switch {
		case f.Type != 0:
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		case f.Hard != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.Hard
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Data))
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(f.Data)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// DirLayer returns the archive of a directory.
func DirLayer(dir string) ([]byte, error) {
	var files []File
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := File{Name: filepath.ToSlash(rel), Mode: info.Mode()}
		switch {
		case d.IsDir():
			f.Name += "/"
		case d.Type()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(name)
		default:
			var b []byte
			b, err = os.ReadFile(name)
			f.Data = string(b)
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return Layer(files...)
}

// Compression is that of layers.
type Compression string

// The compressions.
const (
	Plain Compression = ""
	Gzip  Compression = "gzip"
	Zstd  Compression = "zstd"
)

// Compress compresses a layer.
func (c Compression) Compress(layer []byte) ([]byte, error) {
	var out bytes.Buffer
	switch c {
	case Gzip:
		w := gzip.NewWriter(&out)
		_, err := w.Write(layer)
		err = errors.Join(err, w.Close())
		return out.Bytes(), err
	case Zstd:
		w, err := zstd.NewWriter(&out)
		if err != nil {
			return nil, err
		}
		_, err = w.Write(layer)
		err = errors.Join(err, w.Close())
		return out.Bytes(), err
	default:
		return layer, nil
	}
}

// Files are the files of a layout by their names.
type Files map[string][]byte

// Digest returns the digest of a blob.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Descriptor refers to a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Add adds a blob.
func (f Files) Add(mediaType string, b []byte) Descriptor {
	digest := Digest(b)
	f["blobs/"+strings.Replace(digest, ":", "/", 1)] = b
	return Descriptor{MediaType: mediaType, Digest: digest, Size: len(b)}
}

// AddJSON adds a document.
func (f Files) AddJSON(mediaType string, v any) Descriptor { return f.Add(mediaType, mustJSON(v)) }

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	return b
}

// Config is a configuration for layers that are not compressed.
func Config(architecture string, layers [][]byte) map[string]any {
	ids := []string{}
	for _, l := range layers {
		ids = append(ids, Digest(l))
	}
	return map[string]any{
		"os": "linux", "architecture": architecture, "rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	}
}

// AddImage adds an image and returns its manifest.
func (f Files) AddImage(c Compression, architecture string, layers ...[]byte) (Descriptor, error) {
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": f.AddJSON("application/vnd.oci.image.config.v1+json", Config(architecture, layers)),
	}
	list := []Descriptor{}
	for _, l := range layers {
		b, err := c.Compress(l)
		if err != nil {
			return Descriptor{}, err
		}
		mediaType := "application/vnd.oci.image.layer.v1.tar"
		if c != Plain {
			mediaType += "+" + string(c)
		}
		list = append(list, f.Add(mediaType, b))
	}
	manifest["layers"] = list
	return f.AddJSON("application/vnd.oci.image.manifest.v1+json", manifest), nil
}

// SetIndex writes the index of the layout.
func (f Files) SetIndex(manifests ...Descriptor) {
	f["oci-layout"] = []byte(`{"imageLayoutVersion": "1.0.0"}`)
	f["index.json"] = mustJSON(map[string]any{"schemaVersion": 2, "manifests": manifests})
}

// Layout returns a layout with one image, "latest".
func Layout(c Compression, layers ...[]byte) (Files, error) {
	f := Files{}
	d, err := f.AddImage(c, "amd64", layers...)
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": "latest"}
	f.SetIndex(d)
	return f, err
}

// Docker returns an archive of Docker as versions before 25 write it.
func Docker(layers ...[]byte) Files {
	f := Files{}
	config := mustJSON(Config("amd64", layers))
	name := strings.TrimPrefix(Digest(config), "sha256:") + ".json"
	f[name] = config
	names := []string{}
	for i, l := range layers {
		names = append(names, fmt.Sprintf("%064x/layer.tar", i))
		f[names[i]] = l
	}
	f["manifest.json"] = mustJSON([]map[string]any{
		{"Config": name, "RepoTags": []string{"example/app:v1"}, "Layers": names},
	})
	return f
}

// WriteDir writes the files into a directory.
func (f Files) WriteDir(dir string) error {
	for name, b := range f {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Tar returns an archive of the files.
func (f Files) Tar() ([]byte, error) {
	var list []File
	for name, b := range f {
		list = append(list, File{Name: name, Data: string(b)})
	}
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return Layer(list...)
}
