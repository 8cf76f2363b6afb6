package disk_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
)

func run(t testing.TB, dir string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// qemu skips a test without QEMU's tools.
func qemu(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"qemu-img", "qemu-io"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
}

// raw creates a sparse file with data at several offsets.
func raw(t testing.TB, name string, size int64) []byte {
	t.Helper()
	b := make([]byte, size)
	r, fill := rand.New(rand.NewPCG(3, 4)), rand.NewChaCha8([32]byte{1})
	for range 40 {
		at := r.Int64N(size)
		_, _ = fill.Read(b[at:min(size, at+r.Int64N(100_000))])
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func content(t testing.TB, name string) []byte {
	t.Helper()
	i, err := disk.OpenImage(name)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	b, err := io.ReadAll(io.NewSectionReader(i, 0, i.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every form of an image reads as the raw file that it was made of.
func TestForms(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	want := raw(t, filepath.Join(dir, "disk.raw"), 9<<20+512*7)
	for name, o := range map[string][]string{
		"v2":            {"-o", "compat=0.10"},
		"v3":            {"-o", "compat=1.1"},
		"zlib":          {"-c", "-o", "compression_type=zlib"},
		"zstd":          {"-c", "-o", "compression_type=zstd"},
		"extended":      {"-o", "extended_l2=on,cluster_size=128k"},
		"extended zstd": {"-c", "-o", "extended_l2=on,compression_type=zstd"},
		"small":         {"-o", "cluster_size=512"},
		"large":         {"-o", "cluster_size=2M"},
	} {
		file := name + ".qcow2"
		run(t, dir, append(append([]string{"qemu-img", "convert", "-O", "qcow2"}, o...), "disk.raw", file)...)
		if !bytes.Equal(content(t, filepath.Join(dir, file)), want) {
			t.Errorf("%s differs", name)
		}
	}
	if !bytes.Equal(content(t, filepath.Join(dir, "disk.raw")), want) {
		t.Error("raw differs")
	}
}

// A chain reads as qemu-img reads it, with bases that are raw and shorter.
func TestChain(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	raw(t, filepath.Join(dir, "sub", "base.raw"), 3<<20)
	run(t, dir, "qemu-img", "create", "-q", "-f", "qcow2", "-b", "base.raw", "-F", "raw", "sub/one.qcow2", "4M")
	run(t, dir, "qemu-img", "create", "-q", "-f", "qcow2", "-b", "sub/one.qcow2", "-F", "qcow2", "two.qcow2", "6M")
	run(t, dir, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "compat=0.10", "-b", filepath.Join(dir, "two.qcow2"),
		"-F", "qcow2", "top.qcow2")
	for _, w := range [][]string{
		{"sub/one.qcow2", "write -P 5 100000 70000", "write -z 400000 90000"},
		{"two.qcow2", "write -P 6 130000 10000", "write -P 7 5M 5000", "discard 1M 128k"},
		{"top.qcow2", "write -P 8 3M 100"},
	} {
		args := []string{"qemu-io", "-f", "qcow2"}
		for _, c := range w[1:] {
			args = append(args, "-c", c)
		}
		run(t, dir, append(args, w[0])...)
	}
	run(t, dir, "qemu-img", "convert", "-O", "raw", "top.qcow2", "flat")
	want, err := os.ReadFile(filepath.Join(dir, "flat"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, filepath.Join(dir, "top.qcow2")), want) {
		t.Error("the chain differs")
	}
	link, folder := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "folder")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "top.qcow2"), link), os.Symlink(dir, folder)); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "qemu-img", "create", "-q", "-f", "qcow2", "-b", filepath.Join(folder, "top.qcow2"), "-F", "qcow2",
		"over.qcow2")
	for _, name := range []string{link, filepath.Join(folder, "top.qcow2"), filepath.Join(folder, "over.qcow2")} {
		if !bytes.Equal(content(t, name), want) {
			t.Errorf("by a link of the user's, %s, the chain differs", filepath.Base(name))
		}
	}
	for _, name := range []string{filepath.Join(dir, "over.qcow2"), filepath.Join(filepath.Dir(link), "over.qcow2")} {
		_ = os.Symlink(filepath.Join(dir, "over.qcow2"), name) // where it does not exist
		if i, err := disk.OpenImage(name); err == nil ||
			!strings.Contains(err.Error(), "outside of the directory of the image") {
			t.Errorf("%s: %v, %v", name, i, err)
		}
	}
}

// An image can reach only files next to it.
func TestChainsThatLeadAway(t *testing.T) {
	qemu(t)
	outside := t.TempDir()
	raw(t, filepath.Join(outside, "secret"), 1<<20)
	for name, c := range map[string]struct {
		backing, format, want string
	}{
		"absolute":     {filepath.Join(outside, "secret"), "raw", "outside of the directory of the image"},
		"upwards":      {"../secret", "raw", "outside of the directory of the image"},
		"there, back":  {"sub/../base", "raw", "outside of the directory of the image"},
		"link out":     {"link", "raw", "escapes"},
		"circle":       {"image.qcow2", "qcow2", "circle"},
		"device":       {"nbd:localhost:10809", "raw", "is not a path"},
		"json":         {`json:{"driver":"file"}`, "raw", "is not a path"},
		"missing":      {"gone", "raw", "no such file"},
		"folder":       {"sub", "raw", "not a regular file"},
		"pipe":         {"pipe", "raw", "not a regular file"},
		"other format": {"base", "vmdk", `format "vmdk"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			raw(t, filepath.Join(dir, "base"), 1<<20)
			if err := errors.Join(
				os.Mkdir(filepath.Join(dir, "sub"), 0o755),
				os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")),
				exec.Command("mkfifo", filepath.Join(dir, "pipe")).Run(),
			); err != nil {
				t.Fatal(err)
			}
			run(t, dir, "qemu-img", "create", "-q", "-f", "qcow2", "image.qcow2", "1M")
			run(t, dir, "qemu-img", "rebase", "-u", "-f", "qcow2", "-b", c.backing, "-F", c.format, "image.qcow2")
			i, err := disk.OpenImage(filepath.Join(dir, "image.qcow2"))
			if err == nil {
				_ = i.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Too long chains are refused before they open too many files.
func TestLongChain(t *testing.T) {
	qemu(t)
	dir := t.TempDir()
	run(t, dir, "qemu-img", "create", "-q", "-f", "qcow2", "0", "1M")
	below := "0"
	for k := range 64 {
		name := strings.Repeat("i", k+1)
		run(t, dir, "qemu-img", "create", "-q", "-u", "-f", "qcow2", "-b", below, "-F", "qcow2", name, "1M")
		below = name
		if k == 30 {
			content(t, filepath.Join(dir, name))
		}
	}
	if i, err := disk.OpenImage(filepath.Join(dir, below)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v, %v", i, err)
	}
}
