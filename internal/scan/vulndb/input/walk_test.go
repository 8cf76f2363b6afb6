package input

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func packed(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	check(t, w.WriteHeader(&tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}))
	for _, name := range files {
		check(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(name)), Mode: 0o644}))
		_, err := io.WriteString(w, name)
		check(t, err)
	}
	check(t, w.Close())
	return b.Bytes()
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	check(t, err)
	check(t, w.Close())
	return out.Bytes()
}

func walk(path string) (names []string, err error) {
	err = Walk(context.Background(), path, func(f File) error {
		b, err := io.ReadAll(f)
		names = append(names, f.Name+"="+string(b))
		return err
	})
	return names, err
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"b.json": []byte("b"), "a/x.json.gz": zipped(t, []byte("x")),
		"c.tar.gz":    zipped(t, packed(t, "../up.json", "./y.json", ".hidden")),
		".git/config": []byte("no"), "a/.hidden": []byte("no"),
	} {
		p := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(p), 0o755))
		check(t, os.WriteFile(p, b, 0o600))
	}
	check(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link.json")))
	got, err := walk(dir)
	check(t, err)
	want := []string{"a/x.json=x", "b.json=b", "c.tar/../up.json=../up.json", "c.tar/y.json=./y.json"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLink: a link to a directory is that directory.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "real"), 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "real", "x.json"), []byte("x"), 0o600))
	check(t, os.Symlink("real", filepath.Join(dir, "link")))
	if got, err := walk(filepath.Join(dir, "link")); err != nil || !slices.Equal(got, []string{"x.json=x"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestArchiveEnds: the checksum behind the end of a tar archive counts, and what no visit reads is bounded.
func TestArchiveEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tar.gz")
	good := zipped(t, packed(t, "x.json"))
	damaged := bytes.Clone(good)
	damaged[len(damaged)-6] ^= 1 // of the CRC-32
	check(t, os.WriteFile(path, damaged, 0o600))
	if _, err := walk(path); !errors.Is(err, gzip.ErrChecksum) {
		t.Errorf("a damaged archive: %v", err)
	}
	check(t, os.WriteFile(path, good[:len(good)-8], 0o600))
	if _, err := walk(path); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut archive: %v", err)
	}
	check(t, os.WriteFile(path, append(good, make([]byte, 512)...), 0o600))
	if _, err := walk(path); err != nil {
		t.Errorf("an archive with padding: %v", err)
	}

	var bomb bytes.Buffer
	w := tar.NewWriter(&bomb)
	check(t, w.WriteHeader(&tar.Header{Name: ".hidden", Size: 2 << 20, Mode: 0o644}))
	_, err := w.Write(make([]byte, 2<<20))
	check(t, errors.Join(err, w.Close()))
	v := &walker{ctx: t.Context(), buf: newBuffer(), left: 1 << 20}
	err = v.visitFile(bytes.NewReader(zipped(t, bomb.Bytes())), File{Name: "x.tar.gz"}, 0)
	if err == nil || !strings.Contains(err.Error(), "times its size") {
		t.Errorf("a bomb: %v", err)
	}
}

func TestWalkEndsWithErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json.gz.gz.gz.gz.gz")
	check(t, os.WriteFile(path, zipped(t, zipped(t, zipped(t, zipped(t, zipped(t, nil))))), 0o600))
	if _, err := walk(path); err == nil || !strings.Contains(err.Error(), "too deep") {
		t.Errorf("packed five times: %v", err)
	}
	path = filepath.Join(dir, "plain")
	check(t, os.WriteFile(path, nil, 0o600))
	stop := errors.New("stop")
	if err := Walk(context.Background(), path, func(File) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the visit's error: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Walk(ctx, path, func(File) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// TestDecompressionBomb: a file that unpacks to far more than its size is refused, whatever its packing is.
func TestDecompressionBomb(t *testing.T) {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 400 {
		_, err := w.Write(zeros)
		check(t, err)
	}
	check(t, w.Close())
	path := filepath.Join(t.TempDir(), "bomb.json.gz")
	check(t, os.WriteFile(path, bomb.Bytes(), 0o600))
	n := int64(0)
	err := Walk(t.Context(), path, func(f File) (err error) {
		n, err = io.Copy(io.Discard, f)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "more than 250 times its size") || n < 256<<20 || n > 399<<20 {
		t.Errorf("read %d bytes: %v", n, err)
	}
}

// FuzzArchives reads bytes as each kind of archive.
func FuzzArchives(f *testing.F) {
	f.Add(packed(f, "a.json", "b.json.gz"))
	f.Add(zipped(f, packed(f, "a.json")))
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	e, err := w.Create("a.json")
	check(f, err)
	_, err = io.WriteString(e, "a")
	check(f, err)
	check(f, w.Close())
	f.Add(z.Bytes())
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, name := range []string{"x.tar", "x.tar.gz", "x.tar.zst", "x.json"} {
			w := &walker{ctx: context.Background(), buf: newBuffer(), left: 1 << 30, visit: func(f File) error {
				_, err := io.CopyN(io.Discard, f, 1<<20)
				return err
			}}
			_ = w.visitFile(bytes.NewReader(b), File{Name: name}, 0)
			_ = w.walkZip(bytes.NewReader(b), int64(len(b)), "x.zip", 0)
		}
	})
}
