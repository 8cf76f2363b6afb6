package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/release"
)

// The media types of an OCI image, of the image specification 1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// imageUser is the user and group of the services in a container.
const imageUser = 65532

// imagePrograms are in the image. An agent runs on its machine, with its hypervisor, and not in a container.
var imagePrograms = []string{"buildyard", "imagescan", "hostscan"}

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *imagePlatform    `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type imagePlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// imageManifest is a manifest or, with Manifests instead of Config and Layers, an index.
type imageManifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// imageTag returns the version as a tag, in which "+" is not allowed.
func (r *distribution) imageTag() string { return strings.ReplaceAll(r.version, "+", "-") }

// ociLayout collects the blobs of an image layout.
type ociLayout struct{ members []member }

func (l *ociLayout) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
	l.members = append(l.members, member{
		name: "blobs/sha256/" + hex.EncodeToString(sum[:]), mode: 0o644, content: content,
	})
	return d
}

func (l *ociLayout) addJSON(mediaType string, v any) (descriptor, error) {
	raw, err := json.Marshal(v)
	return l.add(mediaType, raw), err
}

// writeImage writes an OCI image layout as a tar file: an index with an image for each architecture of Linux.
func (r *distribution) writeImage(context.Context) error {
	layout := &ociLayout{}
	index := imageManifest{SchemaVersion: 2, MediaType: mediaIndex, Annotations: r.annotations()}
	for _, p := range r.platforms {
		if p.OS != "linux" {
			continue
		}
		d, err := r.addPlatformImage(layout, p)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, d)
	}
	if len(index.Manifests) == 0 {
		return nil
	}
	images, err := layout.addJSON(mediaIndex, index)
	if err != nil {
		return err
	}
	images.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.imageTag()}
	top, err := json.Marshal(imageManifest{
		SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{images},
	})
	if err != nil {
		return err
	}
	layout.members = append(layout.members,
		member{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		member{name: "index.json", mode: 0o644, content: top},
		member{name: "blobs/", mode: 0o755}, member{name: "blobs/sha256/", mode: 0o755})
	f, err := os.Create(filepath.Join(r.out, "buildyard_"+r.version+"_image.tar"))
	if err != nil {
		return err
	}
	return errors.Join(writeTar(f, layout.members, r.date), f.Close())
}

func (r *distribution) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title": "buildyard", "org.opencontainers.image.version": r.full,
		"org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created": r.date.Format(time.RFC3339),
		"org.opencontainers.image.source":  "https://github.com/buildyard/buildyard",
	}
}

// addPlatformImage adds the image of one architecture and returns its manifest.
func (r *distribution) addPlatformImage(layout *ociLayout, p release.Platform) (descriptor, error) {
	var layer bytes.Buffer
	uncompressed := sha256.New()
	zipped := gzip.NewWriter(&layer)
	err := errors.Join(writeTar(io.MultiWriter(zipped, uncompressed), r.imageFiles(p), r.date), zipped.Close())
	if err != nil {
		return descriptor{}, err
	}
	content := layout.add(mediaLayer, layer.Bytes())
	settings, err := layout.addJSON(mediaConfig, r.imageConfig(p, hex.EncodeToString(uncompressed.Sum(nil))))
	if err != nil {
		return descriptor{}, err
	}
	d, err := layout.addJSON(mediaManifest, imageManifest{
		SchemaVersion: 2, MediaType: mediaManifest, Config: &settings, Layers: []descriptor{content},
		Annotations: r.annotations(),
	})
	d.Platform = &imagePlatform{Architecture: p.Arch, OS: p.OS}
	return d, err
}

// imageFiles returns the whole file system of the image. The directories for volumes belong to the user, and a volume
// that is created for them inherits that.
func (r *distribution) imageFiles(p release.Platform) []member {
	user := "buildyard:x:65532:65532::/var/lib/buildyard:/nonexistent\n"
	list := []member{
		{name: "dev/", mode: 0o755},
		{name: "proc/", mode: 0o555},
		{name: "sys/", mode: 0o555},
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0::/:/nonexistent\n" + user)},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nbuildyard:x:65532:\n")},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/share/", mode: 0o755},
		{name: "usr/share/doc/", mode: 0o755},
		{name: "usr/share/doc/buildyard/", mode: 0o755},
		{name: "usr/share/doc/buildyard/copyright", mode: 0o644, source: filepath.Join(r.root, "LICENSE")},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/buildyard/", mode: 0o755, uid: imageUser},
		{name: "var/lib/buildyard/controller/", mode: 0o700, uid: imageUser},
		{name: "var/lib/buildyard/registry/", mode: 0o700, uid: imageUser},
	}
	for _, name := range imagePrograms {
		list = append(list, member{name: "usr/bin/" + name, mode: 0o755, source: r.program(p, name)})
	}
	return list
}

// imageConfig returns the configuration of an image. Healthcheck is an extension that Docker and Podman read.
func (r *distribution) imageConfig(p release.Platform, layer string) map[string]any {
	created := r.date.Format(time.RFC3339)
	return map[string]any{
		"created": created, "architecture": p.Arch, "os": p.OS,
		"config": map[string]any{
			"User": "65532:65532", "Entrypoint": []string{"/usr/bin/buildyard"}, "Cmd": []string{"up"},
			"WorkingDir": "/var/lib/buildyard",
			"Env":        []string{"PATH=/usr/bin", controllerDir, registryDir},
			"ExposedPorts": map[string]any{
				"8089/tcp": struct{}{}, "8090/tcp": struct{}{},
			},
			"Volumes": map[string]any{
				"/var/lib/buildyard/controller": struct{}{}, "/var/lib/buildyard/registry": struct{}{},
			},
			"Labels": r.annotations(),
			"Healthcheck": map[string]any{
				"Test": []string{"CMD", "/usr/bin/buildyard", "healthcheck"}, "Interval": 15 * time.Second,
				"Timeout": 5 * time.Second, "StartPeriod": 30 * time.Second,
			},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
		"history": []map[string]any{{"created": created, "created_by": "make dist"}},
	}
}
