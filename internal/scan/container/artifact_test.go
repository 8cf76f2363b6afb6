package container_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/container"
	"github.com/buildyard/buildyard/internal/scan/container/containertest"
)

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// TestArtifacts: what programs store next to an image, such as signatures and bills of materials, is not another image.
func TestArtifacts(t *testing.T) {
	f := containertest.Files{}
	image, err := f.AddImage(containertest.Gzip, "amd64", layer(t, file{Name: "a", Data: "1"}))
	if err != nil {
		t.Fatal(err)
	}
	artifact := func(config, mediaType string) containertest.Descriptor {
		return f.AddJSON(manifestType, map[string]any{
			"schemaVersion": 2, "mediaType": manifestType, "config": f.Add(config, []byte("{}")),
			"layers": []any{f.Add(mediaType, []byte("{}"))}, "subject": image,
		})
	}
	signature := artifact("application/vnd.oci.image.config.v1+json",
		"application/vnd.dev.cosign.simplesigning.v1+json")
	bom := artifact("application/vnd.oci.empty.v1+json", "application/vnd.cyclonedx+json")
	f.SetIndex(signature, image, bom)
	tree := openTree(t, write(t, f), all)
	if diff := cmp.Diff([]string{"a: 1"}, list(t, tree)); diff != "" || len(tree.Skipped) > 0 {
		t.Errorf("%s%v", diff, tree.Skipped)
	}
	f.SetIndex(signature, bom)
	if _, err := container.Open(write(t, f), ""); err == nil || err.Error() != "it has no images" {
		t.Errorf("artifacts alone: %v", err)
	}
}

// TestOtherManifests: a document that is not the manifest of an image is an error, and not an empty image.
func TestOtherManifests(t *testing.T) {
	for name, document := range map[string]map[string]any{
		"version 1":       {"schemaVersion": 1, "name": "x", "fsLayers": []any{map[string]any{"blobSum": "sha256:00"}}},
		"a configuration": containertest.Config("amd64", nil),
	} {
		f := containertest.Files{}
		f.SetIndex(f.AddJSON(manifestType, document))
		_, err := container.Open(write(t, f), "")
		if err == nil || !strings.Contains(err.Error(), "is not the manifest of an image") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := containertest.Files{"manifest.json": []byte(`{"schemaVersion": 2, "config": {}, "layers": []}`)}
	_, err := container.Open(write(t, f), "")
	if err == nil || !strings.Contains(err.Error(), "not a container image") {
		t.Errorf("a manifest alone: %v", err)
	}
}

// TestDockerByDigest: an image of an archive of Docker is selected by the digest in the name of its configuration, in
// whichever form the program that wrote it has that.
func TestDockerByDigest(t *testing.T) {
	for _, form := range []string{"DIGEST.json", "sha256:DIGEST", "blobs/sha256/DIGEST"} {
		f := containertest.Docker(layer(t, file{Name: "a", Data: "1"}))
		digest := ""
		for name, b := range f {
			if old, ok := strings.CutSuffix(name, ".json"); ok && len(old) == 64 {
				digest = old
				renamed := strings.Replace(form, "DIGEST", digest, 1)
				f[renamed] = b
				f["manifest.json"] = []byte(strings.Replace(string(f["manifest.json"]), name, renamed, 1))
			}
		}
		i, err := container.Open(write(t, f)+"@sha256:"+digest, "")
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		if i.Digest != "sha256:"+digest {
			t.Errorf("%s: the digest is %q", form, i.Digest)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}
