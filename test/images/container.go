package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/test/rig"
)

// The images are written by umoci, in two layers of which the second removes what the first has in excess, and
// converted by skopeo.
const ociDir = "oci"

// asOCI writes an OCI image layout as a directory.
func asOCI(ctx context.Context, dir string) (string, []string, func() error, error) {
	extra := filepath.Join(dir, "extra", "node_modules", "left-pad")
	err := write(filepath.Join(extra, "package.json"), []byte(`{"name": "left-pad", "version": "1.0.0"}`))
	for _, args := range [][]string{
		{"init", "--layout", ociDir},
		{"new", "--image", ociDir + ":v1"},
		{"insert", "--image", ociDir + ":v1", "tree", "/"},
		{"insert", "--image", ociDir + ":v1", "extra/node_modules", "/srv/node_modules"},
		{"insert", "--image", ociDir + ":v1", "--whiteout", "/srv/node_modules"},
	} {
		if err == nil {
			_, err = rig.Output(ctx, dir, "umoci", args...)
		}
	}
	return "container:" + filepath.Join(dir, ociDir) + ":v1", nil, nothing, err
}

// copyImage has skopeo convert the image of asOCI.
func copyImage(ctx context.Context, dir, to string, more ...string) error {
	args := append([]string{"--insecure-policy", "copy", "-q"}, more...)
	_, err := rig.Output(ctx, dir, "skopeo", append(args, "oci:"+ociDir+":v1", to)...)
	return err
}

func asOCIArchive(ctx context.Context, dir string) (string, []string, func() error, error) {
	return "container:" + filepath.Join(dir, "oci.tar"), nil, nothing, copyImage(ctx, dir, "oci-archive:oci.tar:v1")
}

// asZstdArchive writes layers that are compressed with zstd.
func asZstdArchive(ctx context.Context, dir string) (string, []string, func() error, error) {
	err := copyImage(ctx, dir, "oci-archive:zstd.tar:v1", "--dest-compress", "--dest-compress-format", "zstd")
	return "container:" + filepath.Join(dir, "zstd.tar"), nil, nothing, err
}

func asDockerArchive(ctx context.Context, dir string) (string, []string, func() error, error) {
	return "container:" + filepath.Join(dir, "docker.tar") + ":v1", nil, nothing,
		copyImage(ctx, dir, "docker-archive:docker.tar:example/tree:v1")
}

// asSBOM scans a bill of materials that the scanner wrote of the directory.
func (p *scanner) asSBOM(ctx context.Context, dir string) (string, []string, func() error, error) {
	name := filepath.Join(dir, "bom.json")
	text, err := p.run(ctx, "dir:"+filepath.Join(dir, "tree"), "-p", "-f", "cyclonedx")
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o644)
	}
	return "sbom:" + name, nil, nothing, err
}
