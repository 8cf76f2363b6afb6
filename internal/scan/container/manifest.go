package container

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds on what describes an image.
const (
	maxDocumentBytes = 4 << 20 // of an index, a manifest or a configuration
	maxImages        = 1024    // in one file
	maxIndexDepth    = 4       // of indexes within each other
	maxLayers        = 512     // engines use at most 127
	maxNameBytes     = 512     // of a reference
)

// Names of files in a layout.
const (
	ociIndex       = "index.json"
	dockerManifest = "manifest.json"
)

// errNoImage reports a file that is not a container image.
var errNoImage = errors.New("not a container image: want an OCI image layout as directory or tar archive, or an " +
	"archive of \"docker save\"")

// digest is an algorithm and the hexadecimal digits of a sum: "sha256:...".
type digest string

// newHash returns the hash of a digest; false for an invalid or unknown one.
func (d digest) newHash() (hash.Hash, bool) {
	algorithm, sum, _ := strings.Cut(string(d), ":")
	var h hash.Hash
	switch algorithm {
	case "sha256":
		h = sha256.New()
	case "sha512":
		h = sha512.New()
	default:
		return nil, false
	}
	raw, err := hex.DecodeString(sum)
	return h, err == nil && len(raw) == h.Size() && strings.ToLower(sum) == sum
}

// blobName returns the name of a blob in a layout.
func (d digest) blobName() string { return "blobs/" + strings.Replace(string(d), ":", "/", 1) }

// verify compares the digest with that of some bytes.
func (d digest) verify(b []byte) error {
	h, ok := d.newHash()
	if !ok {
		return fmt.Errorf("invalid digest %.100q", string(d))
	}
	h.Write(b)
	return d.compare(h)
}

// compare compares the digest with a sum.
func (d digest) compare(h hash.Hash) error {
	algorithm, want, _ := strings.Cut(string(d), ":")
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("its digest is %s:%s instead of %s", algorithm, got, d)
	}
	return nil
}

// platform is what an image runs on.
type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant"`
}

func (p platform) String() string {
	return strings.Trim(path.Join(p.OS, p.Architecture, p.Variant), "/")
}

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      digest            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform"`
	Annotations map[string]string `json:"annotations"`
}

// document is an index or a manifest, whose mediaType need not be there.
type document struct {
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"` // of an index
	Config    *descriptor  `json:"config"`    // of a manifest
	Layers    []descriptor `json:"layers"`
}

// imageConfig has the relevant fields of a configuration.
type imageConfig struct {
	platform
	RootFS struct {
		DiffIDs []digest `json:"diff_ids"`
	} `json:"rootfs"`
}

// candidate is an image of a file.
type candidate struct {
	names    []string // references
	id       digest   // of its manifest, or of its configuration in an archive of Docker
	digests  []digest // all that select it: also of the indexes around it, and of its configuration
	platform platform // the zero value: its configuration was not readable
	layers   []layerSource
	err      error // why its layers are not known
}

// layerSource is where a layer is.
type layerSource struct {
	name      string // of its file
	mediaType string // "" in an archive of Docker
	digest    digest // of the file; "": unknown
	diffID    digest // of the decompressed layer, verified where digest is unknown; "": unknown
}

// readDocument reads a document in JSON.
func readDocument(s blobStore, name string, of digest, into any) error {
	if _, ok := of.newHash(); of != "" && !ok {
		return fmt.Errorf("invalid digest %.100q", string(of))
	}
	b, err := readSmall(s, name, maxDocumentBytes)
	if err != nil {
		return err
	}
	if of != "" {
		if err := of.verify(b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// readCandidates lists the images of a file. An archive of newer versions of Docker is a layout, too.
func readCandidates(s blobStore) ([]candidate, error) {
	var index document
	err := readDocument(s, ociIndex, "", &index)
	if errors.Is(err, fs.ErrNotExist) {
		return readDocker(s)
	}
	if err != nil {
		return nil, err
	}
	r := indexReader{store: s}
	if err := r.readIndex(index, candidate{}, 0); err != nil {
		return nil, err
	}
	return r.found, nil
}

// indexReader collects the images of an index.
type indexReader struct {
	store blobStore
	found []candidate
	read  int
}

// refAnnotations are the names of annotations with references.
var refAnnotations = []string{
	"org.opencontainers.image.ref.name", "io.containerd.image.name", "containerd.io/distribution.source.ref.name",
}

// readIndex adds the images of an index. c has what the indexes around it say.
func (r *indexReader) readIndex(index document, c candidate, depth int) error {
	if depth > maxIndexDepth {
		return fmt.Errorf("its indexes are nested in more than %d levels", maxIndexDepth)
	}
	for _, d := range index.Manifests {
		if r.read++; r.read > maxImages {
			return fmt.Errorf("it has more than %d images", maxImages)
		}
		if isAttestation(d) {
			continue
		}
		inner := candidate{
			names: c.names, id: d.Digest, digests: append(slices.Clip(c.digests), d.Digest),
		}
		for _, key := range refAnnotations {
			if name := d.Annotations[key]; name != "" && len(name) <= maxNameBytes {
				inner.names = append(slices.Clip(inner.names), name)
			}
		}
		if d.Platform != nil {
			inner.platform = *d.Platform
		}
		if err := r.readManifest(d, inner, depth); err != nil {
			return err
		}
	}
	return nil
}

// readManifest adds the image of a manifest, or those of an index. What is missing in a layout, such as other
// platforms that were not copied, makes an image unreadable and no other.
func (r *indexReader) readManifest(d descriptor, c candidate, depth int) error {
	var m document
	if c.err = readDocument(r.store, d.Digest.blobName(), d.Digest, &m); c.err != nil {
		r.found = append(r.found, c)
		return nil
	}
	if m.Manifests != nil && m.Config == nil {
		return r.readIndex(m, c, depth+1)
	}
	switch {
	case m.isArtifact():
		return nil
	case m.Config == nil && len(m.Layers) == 0:
		c.err = fmt.Errorf("%s is not the manifest of an image", d.Digest.blobName())
	default:
		c.readLayers(r.store, m)
	}
	r.found = append(r.found, c)
	return nil
}

// isArtifact reports whether a manifest is of something else than an image, such as a chart or the signatures that
// programs store next to an image: none of its files is a layer.
func (m *document) isArtifact() bool {
	isLayer := func(d descriptor) bool {
		return strings.HasPrefix(d.MediaType, "application/vnd.oci.image.layer.") ||
			strings.HasPrefix(d.MediaType, "application/vnd.docker.image.rootfs.")
	}
	return len(m.Layers) > 0 && !slices.ContainsFunc(m.Layers, isLayer)
}

// isAttestation reports whether a manifest is a statement about others, as BuildKit adds them.
func isAttestation(d descriptor) bool {
	return d.Annotations["vnd.docker.reference.type"] == "attestation-manifest" ||
		d.Platform != nil && d.Platform.OS == "unknown" && d.Platform.Architecture == "unknown"
}

// readLayers reads what a manifest names.
func (c *candidate) readLayers(s blobStore, m document) {
	if len(m.Layers) > maxLayers {
		c.err = fmt.Errorf("it has more than %d layers", maxLayers)
		return
	}
	var config imageConfig
	if m.Config != nil {
		c.digests = append(c.digests, m.Config.Digest)
		if err := readDocument(s, m.Config.Digest.blobName(), m.Config.Digest, &config); err == nil {
			c.setPlatform(config.platform)
		}
	}
	for i, l := range m.Layers {
		source := layerSource{name: l.Digest.blobName(), mediaType: l.MediaType, digest: l.Digest}
		if len(config.RootFS.DiffIDs) == len(m.Layers) {
			source.diffID = config.RootFS.DiffIDs[i]
		}
		c.layers = append(c.layers, source)
	}
}

// setPlatform sets what an index did not say.
func (c *candidate) setPlatform(p platform) {
	if c.platform == (platform{}) {
		c.platform = p
	}
}

// dockerImage is an image in the list of an archive of Docker.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// readDocker lists the images of an archive of Docker.
func readDocker(s blobStore) ([]candidate, error) {
	var list []dockerImage
	err := readDocument(s, dockerManifest, "", &list)
	wrong := (*json.UnmarshalTypeError)(nil) // a manifest of an image, as "skopeo copy" to a directory has it
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &wrong) && wrong.Value == "object" && wrong.Field == "" {
		return nil, errNoImage
	}
	if err != nil {
		return nil, err
	}
	if len(list) > maxImages {
		return nil, fmt.Errorf("it has more than %d images", maxImages)
	}
	var out []candidate
	for _, d := range list {
		out = append(out, d.candidate(s))
	}
	return out, nil
}

// candidate reads the configuration, whose name is its digest, and the layers.
func (d dockerImage) candidate(s blobStore) candidate {
	c := candidate{names: d.RepoTags}
	if len(d.Layers) > maxLayers {
		c.err = fmt.Errorf("it has more than %d layers", maxLayers)
		return c
	}
	// Docker names it after its digest alone, others after the whole digest.
	id := digest("sha256:" + strings.TrimPrefix(strings.TrimSuffix(path.Base(d.Config), ".json"), "sha256:"))
	if _, ok := id.newHash(); !ok {
		id = ""
	}
	var config imageConfig
	if c.err = readDocument(s, d.Config, id, &config); c.err != nil {
		return c
	}
	if id != "" {
		c.id, c.digests = id, []digest{id}
	}
	c.platform = config.platform
	for i, name := range d.Layers {
		source := layerSource{name: name}
		if len(config.RootFS.DiffIDs) == len(d.Layers) {
			source.diffID = config.RootFS.DiffIDs[i]
		}
		c.layers = append(c.layers, source)
	}
	return c
}
