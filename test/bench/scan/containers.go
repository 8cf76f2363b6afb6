package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/test/rig"
)

// containerFile is the name of the archive of an image.
const containerFile = "image.tar"

func container(dir string) []string {
	return []string{"container:" + filepath.Join(dir, containerFile)}
}

// copyImage has umoci write an image of one layer, and skopeo convert it.
func copyImage(ctx context.Context, w works, to string, more ...string) error {
	args := append(append([]string{"--insecure-policy", "copy", "-q"}, more...), "oci:oci:v1", to)
	for _, command := range [][]string{
		{"umoci", "init", "--layout", "oci"},
		{"umoci", "new", "--image", "oci:v1"},
		{"umoci", "insert", "--image", "oci:v1", w.tree, "/"},
		append([]string{"skopeo"}, args...),
	} {
		if _, err := rig.Output(ctx, w.to, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(w.to, "oci"))
}

func makeOCI(ctx context.Context, _ *bench, w works) error {
	return copyImage(ctx, w, "oci-archive:"+containerFile+":v1")
}

func makeOCIZstd(ctx context.Context, _ *bench, w works) error {
	return copyImage(ctx, w, "oci-archive:"+containerFile+":v1", "--dest-compress", "--dest-compress-format", "zstd")
}

// makeDocker writes an archive whose layers are not compressed.
func makeDocker(ctx context.Context, _ *bench, w works) error {
	return copyImage(ctx, w, "docker-archive:"+containerFile+":example/tree:v1")
}
