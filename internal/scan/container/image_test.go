package container_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/container"
	"github.com/buildyard/buildyard/internal/scan/container/containertest"
)

// TestForms: the same layers are the same tree in every form.
func TestForms(t *testing.T) {
	layers := [][]byte{
		layer(t, file{Name: "a", Data: "1"}, file{Name: "b/c", Data: strings.Repeat("x", 100_000)}),
		layer(t, file{Name: ".wh.a"}, file{Name: "b/d", Link: "c"}),
	}
	want := []string{"b/", "b/c: " + strings.Repeat("x", 100_000), "b/d -> c"}
	dir := t.TempDir()
	if err := layout(t, containertest.Gzip, layers...).WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	both := layout(t, containertest.Gzip, layers...)
	maps.Copy(both, containertest.Docker(layers...))
	var packed [][]byte
	for _, l := range layers {
		b, err := containertest.Gzip.Compress(l)
		if err != nil {
			t.Fatal(err)
		}
		packed = append(packed, b)
	}
	dockerGzip := containertest.Docker(layers...)
	for i, b := range packed {
		dockerGzip[strings.Repeat("0", 63)+string(rune('0'+i))+"/layer.tar"] = b
	}
	for name, target := range map[string]string{
		"directory":   dir,
		"plain":       write(t, layout(t, containertest.Plain, layers...)),
		"gzip":        write(t, layout(t, containertest.Gzip, layers...)),
		"zstd":        write(t, layout(t, containertest.Zstd, layers...)),
		"Docker":      write(t, containertest.Docker(layers...)),
		"Docker gzip": write(t, dockerGzip),
		"both":        write(t, both),
	} {
		tree := openTree(t, target, all)
		if diff := cmp.Diff(want, list(t, tree)); diff != "" || len(tree.Skipped) > 0 {
			t.Errorf("%s: want -, got +\n%s\n%v", name, diff, tree.Skipped)
		}
	}
}

// TestLinkedLayers reads an archive in which layers are links to others.
func TestLinkedLayers(t *testing.T) {
	l := layer(t, file{Name: "a", Data: "1"})
	var files []file
	for name, b := range containertest.Docker(l, l) {
		f := file{Name: name, Data: string(b)}
		if strings.HasSuffix(name, "1/layer.tar") {
			f.Data, f.Link = "", "../"+strings.Repeat("0", 64)+"/layer.tar"
		}
		files = append(files, f)
	}
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(name, layer(t, files...), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := openTree(t, name, all)
	if diff := cmp.Diff([]string{"a: 1"}, list(t, tree)); diff != "" || len(tree.Skipped) > 0 {
		t.Errorf("%s%v", diff, tree.Skipped)
	}
}

// TestDamage: what cannot be read, or has another digest, is named, and the rest is read.
func TestDamage(t *testing.T) {
	low, high := layer(t, file{Name: "a", Data: "1"}), layer(t, file{Name: "b", Data: "2"})
	digestOf := func(f containertest.Files, content []byte) string {
		for name, b := range f {
			if strings.HasPrefix(name, "blobs/") && bytes.Equal(b, content) {
				return name
			}
		}
		t.Fatal("no such layer")
		return ""
	}
	for name, tc := range map[string]struct {
		change func(f containertest.Files, blob string)
		want   string // of what was skipped
		lists  string
	}{
		"changed": {
			func(f containertest.Files, blob string) { f[blob] = layer(t, file{Name: "b", Data: "3"}) },
			"read in part: its digest is sha256:", "a: 1|b: 3",
		},
		"cut off": {
			func(f containertest.Files, blob string) { f[blob] = f[blob][:600] },
			"read in part: its digest is sha256:", "a: 1|b: 2",
		},
		"missing": {func(f containertest.Files, blob string) { delete(f, blob) }, "it is not in the archive", "a: 1"},
		"text": {
			func(f containertest.Files, blob string) { f[blob] = []byte(strings.Repeat("text", 200)) },
			"invalid tar header", "a: 1",
		},
		"gzip cut off": {
			func(f containertest.Files, blob string) { f[blob] = []byte("\x1f\x8b\x08\x00") }, "unexpected EOF", "a: 1",
		},
	} {
		f := layout(t, containertest.Plain, low, high)
		tc.change(f, digestOf(f, high))
		tree := openTree(t, write(t, f), all)
		if len(tree.Skipped) != 1 || !strings.HasPrefix(tree.Skipped[0].Name, "layer 2 of 2 (sha256:") ||
			!strings.Contains(tree.Skipped[0].Reason, tc.want) {
			t.Errorf("%s: %q", name, tree.Skipped)
		}
		if got := strings.Join(list(t, tree), "|"); got != tc.lists {
			t.Errorf("%s: %s", name, got)
		}
	}
	f := containertest.Docker(low)
	f[strings.Repeat("0", 64)+"/layer.tar"] = high
	tree := openTree(t, write(t, f), all)
	if len(tree.Skipped) != 1 || !strings.Contains(tree.Skipped[0].Reason, "its digest is sha256:") {
		t.Errorf("another layer in an archive of Docker: %q", tree.Skipped)
	}
}

// TestMediaTypes: layers that cannot be read have a reason.
func TestMediaTypes(t *testing.T) {
	low, high := layer(t, file{Name: "a", Data: "1"}), layer(t, file{Name: "b", Data: "2"})
	const oci, docker = "application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."
	for mediaType, want := range map[string]string{
		oci + "v1.tar":                       "",
		oci + "v1.tar+gzip":                  "", // its content tells
		docker + "diff.tar.gzip":             "",
		docker + "diff.tar.zstd":             "",
		docker + "foreign.diff.tar.gzip":     "it is a foreign layer, which the archive does not have",
		oci + "nondistributable.v1.tar+zstd": "it is a foreign layer, which the archive does not have",
		oci + "v1.tar+gzip+encrypted":        "it is encrypted",
		oci + "v1.squashfs":                  `its media type "` + oci + `v1.squashfs" is not supported`,
		"application/vnd.cncf.helm":          `its media type "application/vnd.cncf.helm" is not supported`,
	} {
		f := containertest.Files{}
		d := f.Add(mediaType, high)
		if strings.Contains(want, "foreign") {
			delete(f, "blobs/"+strings.Replace(d.Digest, ":", "/", 1))
		}
		m := f.AddJSON("application/vnd.oci.image.manifest.v1+json", map[string]any{
			"layers": []any{f.Add(oci+"v1.tar", low), d}, "config": f.AddJSON("", containertest.Config("amd64", nil)),
		})
		f.SetIndex(m)
		tree := openTree(t, write(t, f), all)
		got, lists := "", "a: 1|b: 2"
		if len(tree.Skipped) > 0 {
			got, lists = tree.Skipped[0].Reason, "a: 1"
		}
		if files := strings.Join(list(t, tree), "|"); got != want || files != lists {
			t.Errorf("%s: %q, %s", mediaType, got, files)
		}
	}
}

// several returns a layout with several images: two of one name for two platforms, in an index, and one of another.
func several(t *testing.T) containertest.Files {
	t.Helper()
	f := containertest.Files{}
	image := func(architecture, content string) containertest.Descriptor {
		d, err := f.AddImage(containertest.Gzip, architecture, layer(t, file{Name: content}))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	amd, arm, old := image("amd64", "amd"), image("arm64", "arm"), image("amd64", "old")
	amd.Platform = map[string]string{"os": "linux", "architecture": "amd64"}
	arm.Platform = map[string]string{"os": "linux", "architecture": "arm64", "variant": "v8"}
	missing := containertest.Descriptor{
		Digest:   containertest.Digest([]byte("missing")),
		Platform: map[string]string{"os": "linux", "architecture": "s390x"},
	}
	statement := f.AddJSON("", map[string]any{"layers": []any{}})
	statement.Platform = map[string]string{"os": "unknown", "architecture": "unknown"}
	index := f.AddJSON("application/vnd.oci.image.index.v1+json", map[string]any{
		"manifests": []any{amd, arm, missing, statement},
	})
	index.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": "v2", "io.containerd.image.name": "registry.example/team/app:v2",
	}
	old.Annotations = map[string]string{"org.opencontainers.image.ref.name": "v1"}
	f.SetIndex(index, old)
	return f
}

func TestSelection(t *testing.T) {
	f := several(t)
	name := write(t, f)
	var manifest string
	for blob, b := range f {
		if strings.Contains(string(b), containertest.Digest([]byte("missing"))) {
			manifest = strings.Replace(strings.TrimPrefix(blob, "blobs/"), "/", ":", 1)
		}
	}
	for _, tc := range []struct{ selection, platform, want string }{
		{":v1", "", "old"},
		{":v2", "linux/amd64", "amd"},
		{":v2", "linux/arm64", "arm"},
		{":v2", "linux/arm64/v8", "arm"},
		{":registry.example/team/app:v2", "linux/arm64", "arm"},
		{":team/app:v2", "linux/arm64", "arm"},
		{"@" + manifest, "linux/amd64", "amd"},
		{"", "linux/arm64", "arm"},
		{":v2", "linux/riscv64", "! it has no image for the platform \"linux/riscv64\""},
		{":v2", "linux/s390x", "! blobs/sha256/"},
		{":v3", "", "! it has no image \"v3\"; it has v2 (linux/amd64), "},
		{"", "linux/amd64", "! it has several images: choose one with a tag (PATH:TAG)"},
	} {
		got := ""
		i, err := container.Open(name+tc.selection, tc.platform)
		if err != nil {
			got = "! " + err.Error()
		} else {
			tree, err := i.Tree(t.Context(), all)
			if err != nil {
				t.Fatal(err)
			}
			got = strings.TrimSuffix(list(t, tree)[0], ": ")
			tree.Close()
			if err := i.Close(); err != nil {
				t.Error(err)
			}
		}
		if got != tc.want && (tc.want[0] != '!' || !strings.Contains(got, tc.want[2:])) {
			t.Errorf("%s %s: %s", tc.selection, tc.platform, got)
		}
	}
}

func TestSplitTarget(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a:b")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string][2]string{
		name:                       {name, ""},
		name + ":v1":               {name, "v1"},
		name + ":registry:5000/x":  {name, "registry:5000/x"},
		name + "@sha256:12":        {name, "sha256:12"},
		filepath.Join(dir, "c:v1"): {filepath.Join(dir, "c:v1"), ""},
	} {
		if path, selection := container.SplitTarget(target); path != want[0] || selection != want[1] {
			t.Errorf("%s: %q, %q", target, path, selection)
		}
	}
}

// TestNoImage: errors say what to do.
func TestNoImage(t *testing.T) {
	gz, err := containertest.Gzip.Compress(layer(t, file{Name: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	bad := containertest.Files{"index.json": []byte(`{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}`)}
	badJSON := containertest.Files{"index.json": []byte(`{"manifests": `)}
	none := containertest.Files{"index.json": []byte(`{"manifests": []}`)}
	archive := func(f containertest.Files) []byte {
		b, err := f.Tar()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		b    []byte
		want string
	}{
		"text":                 {[]byte("text"), "not a container image"},
		"another archive":      {layer(t, file{Name: "a"}), "not a container image"},
		"a compressed archive": {gz, "decompress it first, as with \"gunzip\""},
		"invalid digest":       {archive(bad), "invalid digest"},
		"invalid JSON":         {archive(badJSON), "read index.json"},
		"no images":            {archive(none), "it has no images"},
		"cut off":              {archive(several(t))[:600], "the archive is damaged: it ends within"},
	} {
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(file, tc.b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := container.Open(file, ""); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = container.Open(t.TempDir(), "")
	if err == nil || !strings.Contains(err.Error(), "not a container image") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := container.Open("missing.tar", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
