package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/test/rig"
)

// imageConfig is what is used of the configuration of an image.
type imageConfig struct {
	Architecture string `json:"architecture"`
	Config       struct {
		User       string
		Entrypoint []string
		Cmd        []string
		Env        []string
	} `json:"config"`
}

// checkImage has skopeo read the image of each architecture, and copy it, which verifies every digest. Then it runs the
// image of amd64 as its configuration says, with its own file system and nothing else.
func checkImage(ctx context.Context, s *site) (string, error) {
	file, err := s.one("buildyard_*_image.tar")
	if err != nil {
		return "", err
	}
	archs := []string{"amd64", "arm64"}
	if s.platforms != "" && !strings.Contains(s.platforms, "linux/arm64") {
		archs = archs[:1]
	}
	var config imageConfig
	for _, arch := range archs {
		raw, err := rig.Output(ctx, s.dir, "skopeo", "--override-os", "linux", "--override-arch", arch, "inspect",
			"--config", "--raw", "oci-archive:"+file)
		if err != nil {
			return "", err
		}
		c := imageConfig{}
		if err := json.Unmarshal([]byte(raw), &c); err != nil {
			return "", err
		}
		if c.Architecture != arch || c.Config.User != "65532:65532" {
			return "", fmt.Errorf("image of %s: %s", arch, raw)
		}
		if arch == "amd64" {
			config = c
		}
	}
	tree, err := s.unpackImage(ctx, file)
	if err != nil {
		return "", err
	}
	version, err := runImage(ctx, s, tree, config)
	return fmt.Sprintf("%v by skopeo; ran %s as %s", archs, version, config.Config.User), err
}

// unpackImage copies the image of amd64 to a directory of blobs and unpacks its layers.
func (s *site) unpackImage(ctx context.Context, file string) (string, error) {
	blobs, tree := filepath.Join(s.dir, "blobs"), filepath.Join(s.dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	if _, err := rig.Output(ctx, s.dir, "skopeo", "--insecure-policy", "--override-os", "linux",
		"--override-arch", "amd64", "copy", "oci-archive:"+file, "dir:"+blobs); err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(blobs, "manifest.json"))
	if err != nil {
		return "", err
	}
	var manifest struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return "", err
	}
	if len(manifest.Layers) == 0 {
		return "", fmt.Errorf("the manifest has no layers: %s", raw)
	}
	for _, layer := range manifest.Layers {
		_, digest, _ := strings.Cut(layer.Digest, ":")
		if _, err := rig.Output(ctx, s.dir, "tar", "-C", tree, "--numeric-owner", "-xpzf",
			filepath.Join(blobs, digest)); err != nil {
			return "", err
		}
	}
	return tree, nil
}

// runImage starts the image's command in its file system and has it check its health.
func runImage(ctx context.Context, s *site, tree string, c imageConfig) (version string, err error) {
	addr, err := rig.FreeAddr(ctx)
	registry, registryErr := rig.FreeAddr(ctx)
	if err := errors.Join(err, registryErr); err != nil {
		return "", err
	}
	environment := map[string]string{
		"SVC_LISTEN_ADDR": addr, "SVC_REGISTRY_LISTEN_ADDRESS": registry, "SVC_LOCAL_LISTEN_ADDR": "none",
	}
	for _, variable := range c.Config.Env {
		name, value, _ := strings.Cut(variable, "=")
		if name != "PATH" { // chroot itself is found by it
			environment[name] = value
		}
	}
	args := append([]string{"--userspec=" + c.Config.User, tree}, c.Config.Entrypoint...)
	p := rig.NewProcess(s.dir, "image", "unshare",
		inTree(tree, append(slices.Clone(args), c.Config.Cmd...)...)...)
	p.Set(environment)
	if err := p.Start(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.End()) }()
	if err := rig.Ready(ctx, p, "http://"+addr); err != nil {
		return "", err
	}
	if _, err := rig.Output(ctx, s.dir, "unshare",
		inTree(tree, append(slices.Clone(args), "healthcheck", "--address", addr)...)...); err != nil {
		return "", err
	}
	if _, err := rig.Output(ctx, s.dir, "unshare",
		inTree(tree, append(slices.Clone(args), "healthcheck", "--address", "127.0.0.1:1")...)...); err == nil {
		return "", errors.New("the health check succeeds without a service")
	}
	var status struct{ Version string }
	err = rig.NewClient("http://"+addr).Send(ctx, "GET", "/api/v1/status", nil, &status)
	return status.Version, err
}

// checkManifests reads compose file and Kubernetes manifests: both name the tag of the image, and the kustomization
// every file.
func checkManifests(ctx context.Context, s *site) (string, error) {
	compose, err := s.one("buildyard_*_compose.yaml")
	archive, archiveErr := s.one("buildyard_*_kubernetes.tar.gz")
	image, imageErr := s.one("buildyard_*_image.tar")
	if err := errors.Join(err, archiveErr, imageErr); err != nil {
		return "", err
	}
	ref, err := rig.Output(ctx, s.dir, "tar", "-xOf", image, "index.json")
	if err != nil {
		return "", err
	}
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal([]byte(ref), &index); err != nil {
		return "", err
	}
	if len(index.Manifests) != 1 {
		return "", fmt.Errorf("index.json does not name one image: %s", ref)
	}
	tag := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]

	var services struct {
		Services map[string]struct{ Image string }
	}
	if err := readYAML(compose, &services); err != nil {
		return "", err
	}
	if got := services.Services["cloud"].Image; got != "buildyard:"+tag {
		return "", fmt.Errorf("compose has the image %q, want tag %q", got, tag)
	}
	if _, err := rig.Output(ctx, s.dir, "tar", "-xzf", archive); err != nil {
		return "", err
	}
	dir := filepath.Join(s.dir, "buildyard-kubernetes")
	resources, err := checkKustomization(dir, tag)
	if err != nil {
		return "", err
	}
	args := []string{"run", "-C", filepath.Join(s.first, "test", "packages", "manifests"), "-trimpath", "."}
	for _, name := range resources {
		args = append(args, filepath.Join(dir, name))
	}
	out, err := rig.Output(ctx, s.dir, "go", args...)
	return fmt.Sprintf("tag %s; %s", tag, out), err
}

// checkKustomization returns the resources of a kustomization, if it has every file and the tag.
func checkKustomization(dir, tag string) ([]string, error) {
	var k struct {
		Resources []string
		Images    []struct {
			NewTag string `yaml:"newTag"`
		}
	}
	if err := readYAML(filepath.Join(dir, "kustomization.yaml"), &k); err != nil {
		return nil, err
	}
	if len(k.Images) != 1 || k.Images[0].NewTag != tag {
		return nil, fmt.Errorf("the kustomization has the images %v, want tag %q", k.Images, tag)
	}
	names, err := fileNames(dir)
	if err != nil {
		return nil, err
	}
	if len(names) != len(k.Resources)+1 {
		return nil, fmt.Errorf("the kustomization has the resources %v of %v", k.Resources, names)
	}
	return k.Resources, nil
}

func readYAML(file string, v any) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return nil
}
