//go:build linux

package qemu

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guestscript"
)

// imageRun runs a QEMU tool of the test's own.
func imageRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// A delta of several overlays with scattered writes and zeroed ranges shows the
// same disk above the base as the overlays do, and QEMU finds no fault in it.
func TestDelta(t *testing.T) {
	for _, tool := range []string{imageTool, "qemu-io"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	const size = 3<<30 + 4096 + 512 // more than two L2 tables, and an odd end
	dir := t.TempDir()
	base := filepath.Join(dir, "base.qcow2")
	imageRun(t, imageTool, "create", "-q", "-f", "qcow2", base, strconv.Itoa(size))
	imageRun(t, "qemu-io", "-f", "qcow2", "-c", "write -P 7 0 8M", "-c", "write -P 8 2G 1M", base)
	r := rand.New(rand.NewPCG(1, 2))
	var overlays []string
	under := base
	for k := range 3 {
		over := filepath.Join(dir, "o"+strconv.Itoa(k))
		imageRun(t, imageTool, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", under, "-o",
			"extended_l2=on,cluster_size=128k", over)
		args := []string{"qemu-io", "-f", "qcow2", "-c", "write -P 99 " + strconv.Itoa(size-512) + " 512"}
		for range 60 {
			at := r.Int64N(9<<20) / 4096 * 4096
			if r.IntN(4) == 0 {
				at += 2<<30 - 4<<20
			}
			what := []string{"write -P " + strconv.Itoa(1+r.IntN(200)), "write -z"}[r.IntN(2)]
			args = append(args, "-c", what+" "+strconv.FormatInt(at, 10)+" "+strconv.Itoa(4096*(1+r.IntN(60))))
		}
		imageRun(t, append(args, over)...)
		overlays, under = append(overlays, over), over
	}
	top := under
	want := filepath.Join(dir, "want.raw")
	imageRun(t, imageTool, "convert", "-f", "qcow2", "-O", "raw", top, want)
	for _, o := range overlays { // as this driver makes them: naming no file beneath
		imageRun(t, imageTool, "rebase", "-u", "-f", "qcow2", "-b", "", o)
	}
	delta := filepath.Join(dir, "delta.qcow2")
	d, err := writeDelta(t.Context(), delta, overlays)
	if err != nil || d.ChangedBytes == 0 || d.ZeroedBytes == 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	if out := imageRun(t, imageTool, "check", "-f", "qcow2", delta); !strings.Contains(out, "No errors") {
		t.Error(out)
	}
	if n, err := openBaseSize(delta); err != nil || n != size {
		t.Errorf("the delta's disk has %d bytes, %v", n, err)
	}
	imageRun(t, imageTool, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", base, delta)
	imageRun(t, imageTool, "compare", "-f", "qcow2", "-F", "raw", delta, want)
}

func openBaseSize(path string) (int64, error) {
	f, n, err := openBase(hv.Disk{Path: path, Format: "qcow2"})
	if err != nil {
		return 0, err
	}
	return n, f.Close()
}

// An overlay that a guest made QEMU write a backing file into is not exported.
func TestDeltaOfSpoiltOverlay(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "o")
	if err := os.WriteFile(bad, header(3, 0x200, 1<<20, 0, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := writeDelta(t.Context(), filepath.Join(dir, "d"), []string{bad}); err == nil {
		t.Error("it was exported")
	}
}

// An overlay that is not an image, or whose tables are damaged, makes no delta. A delta can be
// canceled.
func TestDeltaOfBadOverlay(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if _, err := exec.LookPath(imageTool); err != nil {
		t.Skip(err)
	}
	if err := CreateOverlay(t.Context(), good, 1<<30); err != nil {
		t.Fatal(err)
	}
	lying := filepath.Join(dir, "lying")
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[int(b[45])<<16:], "\x80\x00\x00\x70\x00\x00\x00\x00") // its first L2 table lies far away
	if err := os.WriteFile(lying, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{good: "", lying: "damaged", dir: "regular file", filepath.Join(dir,
		"none"): "no such file"} {
		_, err := writeDelta(t.Context(), filepath.Join(t.TempDir(), "d"), []string{good, name})
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := writeDelta(ctx, filepath.Join(dir, "d"), []string{good}); !errors.Is(err, context.Canceled) {
		t.Errorf("a delta that is given up: %v", err)
	}
}

// The file of a save replaces an existing file, and a process that has the old file open keeps its
// content.
func TestCreateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	f, err := createFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(old); err != nil || string(b) != "old" {
		t.Errorf("the old file holds %q, %v", b, err)
	}
}

// The program that reseeds a guest runs and requires all of its seed, and the script creates and
// removes it.
func TestReseedProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, reseedProgram(), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(seed int, args ...string) int {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Stdin = bytes.NewReader(make([]byte, seed))
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	good := 0
	if os.Geteuid() != 0 {
		good = 1 // only root may reseed
	}
	if code := run(seedBytes, path); code != good {
		t.Errorf("a whole seed: code %d, want %d", code, good)
	}
	if code := run(seedBytes-1, path); code != 1 {
		t.Errorf("a short seed: code %d, want 1", code)
	}
	name := guestscript.NewName()
	if code := run(seedBytes, "sh", "-c", reseedScript(), "sh", name); code != good {
		t.Errorf("the script: code %d, want %d", code, good)
	}
	for _, dir := range []string{"/run", "/dev/shm", "/tmp", "/var/tmp"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("the program is left in %s", dir)
		}
	}
}

func TestCPUName(t *testing.T) {
	one := "processor\t: 0\nmodel name\t: A B\nflags\t\t: x y\nbogus : 1\n\nprocessor\t: 1\nmodel name\t: " +
		"C\nflags\t\t: z\n"
	got := cpuName([]byte(one))
	if !strings.HasPrefix(got, "A B ") || got == cpuName([]byte(strings.Replace(one, "x y", "x", 1))) {
		t.Errorf("got %q", got)
	}
	if got != cpuName([]byte(strings.Replace(one, ": z", ": q", 1))) {
		t.Error("another core's features count")
	}
}
