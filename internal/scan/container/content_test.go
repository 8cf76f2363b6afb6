package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/container/containertest"
)

// archive writes layers as an archive and opens it.
func archive(t testing.TB, c containertest.Compression, layers ...[]byte) *Image {
	t.Helper()
	f, err := containertest.Layout(c, layers...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Tar()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	i, err := Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

func wantsAll(string, fs.FileInfo) (isWanted, isPartial bool) { return true, false }

func wantsParts(string, fs.FileInfo) (isWanted, isPartial bool) { return true, true }

// noise returns bytes that do not compress.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// TestReadAgain reads files of which nothing, or only what an extractor read, was kept: as a whole, at places, in the
// order of the archive and against it.
func TestReadAgain(t *testing.T) {
	contents := map[string][]byte{
		"a": noise(1, 100), "b": noise(2, 3<<20), "c": noise(3, fetchWhole+5<<20), "d": nil, "e": noise(4, 40_000),
	}
	var layers [][]byte
	for _, names := range []string{"abc", "de"} {
		var files []containertest.File
		for name := range strings.SplitSeq(names, "") {
			files = append(files, containertest.File{Name: name, Data: string(contents[name])})
		}
		l, err := containertest.Layer(files...)
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, l)
	}
	probe := func(_ context.Context, _ string, f fs.File) {
		at, _ := f.(io.ReaderAt)
		b := make([]byte, 1000)
		_, _ = at.ReadAt(b, 0)
		_, _ = at.ReadAt(b, 30_000)
	}
	for name, o := range map[string]Options{
		"nothing is wanted": {Wants: func(string, fs.FileInfo) (bool, bool) { return false, false }},
		"no memory":         {Wants: wantsAll, keptBytes: 1},
		"parts":             {Wants: wantsParts, Probe: probe},
		"ends":              {Wants: wantsParts, Probe: probe, probeBytes: 1},
		"all":               {Wants: wantsAll},
	} {
		for _, c := range []containertest.Compression{containertest.Plain, containertest.Gzip, containertest.Zstd} {
			tree, err := archive(t, c, layers...).Tree(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, order := range []string{"abcde", "edcba"} {
				for file := range strings.SplitSeq(order, "") {
					got, err := fs.ReadFile(tree, file)
					if err != nil || !bytes.Equal(got, contents[file]) {
						t.Fatalf("%s, %s: %s has %d bytes, %v", name, c, file, len(got), err)
					}
				}
			}
			readPlaces(t, tree, "c", contents["c"])
			tree.Close()
			if len(tree.refetch.streams) > 0 {
				t.Error("streams are open")
			}
		}
	}
}

// readPlaces reads a file at places as a reader of programs does.
func readPlaces(t *testing.T, tree *Tree, name string, want []byte) {
	t.Helper()
	f, err := tree.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := f.(io.ReaderAt)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		off, b := random.IntN(len(want)), make([]byte, random.IntN(100_000))
		n, err := at.ReadAt(b, int64(off))
		if !bytes.Equal(b[:n], want[off:off+n]) || n < len(b) && err != io.EOF || n < min(len(b), len(want)-off) {
			t.Fatalf("%d bytes at %d: %d, %v", len(b), off, n, err)
		}
	}
}

// TestBudget: what is kept stays below the limit, and reading again ends.
func TestBudget(t *testing.T) {
	var files []containertest.File
	for i := range 50 {
		files = append(files, containertest.File{Name: fmt.Sprint(i), Data: string(noise(byte(i), 1000))})
	}
	l, err := containertest.Layer(files...)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := archive(t, containertest.Gzip, l).Tree(t.Context(), Options{
		Wants: wantsAll, keptBytes: 10_500,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	kept := 0
	for _, n := range tree.root.children {
		kept += len(n.file.parts)
	}
	if kept != 10 {
		t.Errorf("%d files were kept", kept)
	}
	tree.refetch.spent = freeRefetches + maxRefetches*tree.plain.Load()
	read, failed := 0, 0
	for i := range 50 {
		if _, err := fs.ReadFile(tree, fmt.Sprint(i)); err != nil {
			if !strings.Contains(err.Error(), errRefetch.Error()) {
				t.Error(err)
			}
			failed++
		} else {
			read++
		}
	}
	if read < 10 || failed < 30 {
		t.Errorf("%d files were read, %d were not", read, failed)
	}
}

// TestBomb: a layer that expands without end is cut off.
func TestBomb(t *testing.T) {
	r := &expansionReader{r: endless{}, left: 100_000}
	if n, err := io.Copy(io.Discard, r); n != 100_000 || !errors.Is(err, errExpansion) {
		t.Errorf("%d bytes, %v", n, err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	h := &tar.Header{
		Name: "sparse", Size: 1 << 50, Mode: 0o644, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		PAXRecords: map[string]string{"comment": "a hole"},
	}
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	tree, err := archive(t, containertest.Gzip, out.Bytes()).Tree(t.Context(), Options{
		Wants: wantsAll,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	f, err := tree.Open("sparse")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("a file of a PiB was read")
	}
	if len(tree.Skipped) != 1 {
		t.Errorf("%q", tree.Skipped)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestCanceled: a canceled context ends the reading.
func TestCanceled(t *testing.T) {
	l, err := containertest.Layer(containertest.File{Name: "a", Data: string(noise(1, 1<<20))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i := archive(t, containertest.Gzip, l)
	if _, err := i.Tree(ctx, Options{Wants: wantsAll}); err == nil {
		t.Error("it was read")
	}
}

// FuzzLayers changes bytes of layers and of the archive around them: reading ends, and every file that is listed can
// be read or has an error.
func FuzzLayers(f *testing.F) {
	one, err := containertest.Layer(
		containertest.File{Name: "a/b", Data: "text"}, containertest.File{Name: "c", Hard: "a/b"},
		containertest.File{Name: "d", Link: "a"}, containertest.File{Name: "e/"})
	if err != nil {
		f.Fatal(err)
	}
	two, err := containertest.Layer(
		containertest.File{Name: "a/.wh.b"}, containertest.File{Name: "e/.wh..wh..opq"},
		containertest.File{Name: "d/f", Data: "more"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one, two, []byte{})
	f.Add(two, one, []byte{0, 124, '7', '7'})
	f.Fuzz(func(t *testing.T, low, high, patches []byte) {
		files := containertest.Docker(low, high)
		b, err := files.Tar()
		if err != nil {
			t.Fatal(err)
		}
		for ; len(patches) >= 4; patches = patches[4:] {
			copy(b[(int(patches[0])<<8|int(patches[1]))%len(b):], patches[2:4])
		}
		name := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		i, err := Open(name, "")
		if err != nil {
			return
		}
		defer func() { _ = i.Close() }()
		tree, err := i.Tree(t.Context(), Options{
			Wants: func(name string, _ fs.FileInfo) (bool, bool) { return len(name)%2 == 0, false },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		_ = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				info, infoErr := d.Info()
				if infoErr != nil || info.Size() < 1<<20 {
					_, _ = fs.ReadFile(tree, name)
				}
			}
			return nil
		})
	})
}

// FuzzManifests reads an index, a manifest and the list of an archive of Docker.
func FuzzManifests(f *testing.F) {
	f.Add(`{"manifests":[{"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000"}]}`, `[]`)
	f.Add(`{}`, `[{"Config":"c.json","RepoTags":["a:b"],"Layers":["l"]}]`)
	f.Fuzz(func(t *testing.T, index, docker string) {
		for _, files := range []containertest.Files{
			{"index.json": []byte(index), "c.json": []byte(index)},
			{"manifest.json": []byte(docker), "c.json": []byte(index)},
			layoutOf(index),
		} {
			dir := t.TempDir()
			if err := files.WriteDir(dir); err != nil {
				t.Fatal(err)
			}
			i, err := Open(dir, "")
			if err != nil {
				continue
			}
			tree, err := i.Tree(t.Context(), Options{Wants: wantsAll})
			if err == nil {
				tree.Close()
			}
			_ = i.Close()
		}
	})
}

// layoutOf returns a layout whose manifest is a text.
func layoutOf(manifest string) containertest.Files {
	f := containertest.Files{}
	f.SetIndex(f.Add("application/vnd.oci.image.manifest.v1+json", []byte(manifest)))
	return f
}
