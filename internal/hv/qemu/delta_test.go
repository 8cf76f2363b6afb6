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
	"time"

	"github.com/buildyard/buildyard/internal/hv"
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
		imageRun(t, imageTool, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", under, "-o", "extended_l2=on,cluster_size=128k", over)
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
	if err != nil || d.Bytes == 0 || d.Zeroed == 0 || d.Bytes%512 != 0 {
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

// An overlay that QEMU was talked into giving a backing file is not exported.
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

// What is not a whole list of what QEMU 6.1 and later say is not believed.
func TestExtents(t *testing.T) {
	const good = `{"start":0,"length":4096,"depth":1,"present":true,"zero":false,"data":true,"offset":327680}`
	for list, want := range map[string]string{
		"[" + good + "]":              "",
		"[]":                          "",
		"":                            "no list",
		good:                          "no list",
		"[" + good:                    "EOF",
		"[" + good + "," + good + "]": "malformed extent at 0",
		"[" + strings.Replace(good, `"start":0`, `"start":4096`, 1) + "]":                      "malformed extent at 4096",
		"[" + strings.Replace(good, `"length":4096`, `"length":0`, 1) + "]":                    "malformed",
		"[" + strings.Replace(good, `"depth":1`, `"depth":-1`, 1) + "]":                        "malformed",
		"[" + strings.Replace(good, `"length":4096`, `"length":9223372036854775807`, 1) + "]":  "malformed",
		"[" + strings.Replace(good, `"present":true,`, ``, 1) + "]":                            "QEMU 6.1",
		"[" + strings.Replace(good, `"data":true,`, ``, 1) + "]":                               "QEMU 6.1",
		"[" + strings.Replace(good, `"offset":327680`, `"offset":-4096`, 1) + "]":              "lies nowhere",
		"[" + strings.Replace(good, `"length":4096`, `"length":99999999999999999999`, 1) + "]": "cannot unmarshal",
	} {
		n := 0
		err := eachExtent(strings.NewReader(list), func(extent) error { n++; return nil })
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v after %d extents, want %q", list, err, n, want)
		}
	}
}

// fakeTool puts a script in the place of qemu-img.
func fakeTool(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, imageTool), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// A map that ends too soon, says too much or does not come makes no delta.
func TestDeltaOfBadMap(t *testing.T) {
	over := filepath.Join(t.TempDir(), "o")
	if err := os.WriteFile(over, header(3, 0, 1<<20, 0, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	gap := `{"start":0,"length":1048576,"depth":0,"present":false,"data":false}`
	half := strings.Replace(gap, "1048576", "524288", 1)
	for script, want := range map[string]string{
		"echo '[" + gap + "]'":  "",
		"echo '[]'":             "ends at 0 of 1048576",
		"echo '[" + half + "]'": "ends at 524288 of 1048576",
		"echo '[" + half + "'":  "EOF",
		"echo '[" + gap + "]'; echo broken >&2; exit 1":                                                              "exit status 1: broken",
		"echo '[" + strings.Replace(gap, "1048576", "1048577", 1) + "]'":                                             "behind the end",
		"echo '[" + strings.ReplaceAll(gap, "false", "true") + "]'":                                                  "without a place",
		"echo '[" + strings.Replace(strings.ReplaceAll(gap, "false", "true"), "}", `,"offset":0}`, 1) + "]'":         "",
		"echo '[" + strings.Replace(strings.ReplaceAll(gap, "false", "true"), `0,"pr`, `7,"offset":0,"pr`, 1) + "]'": "without a place",
		`echo '[{"start":0,"length":100,"depth":0,"present":true,"data":false}'`:                                     "not made of blocks",
	} {
		fakeTool(t, script+"\n")
		_, err := writeDelta(t.Context(), filepath.Join(t.TempDir(), "d"), []string{over})
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	fakeTool(t, "echo '['; exec sleep 60\n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := writeDelta(ctx, filepath.Join(t.TempDir(), "d"), []string{over}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 10*time.Second {
		t.Errorf("a map that does not come: %v after %s", err, time.Since(begun))
	}
}

// Data behind the end of an overlay's file is zero, whatever was copied before,
// and copying a large extent can be given up.
func TestDeltaCopy(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := newDeltaWriter(f, 1<<20)
	data := strings.NewReader(strings.Repeat("x", deltaCluster+100))
	offset := int64(0)
	if err := w.add(t.Context(), extent{Length: 2 * deltaCluster, Offset: &offset}, data); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*deltaCluster)
	if _, err := f.ReadAt(got, int64(w.l2[0]&^deltaCopied)); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(got, []byte("x")); n != deltaCluster+100 || bytes.Count(got, []byte{0}) != len(got)-n {
		t.Errorf("%d of %d bytes are data", n, len(got))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.add(ctx, extent{Start: 4 * deltaCluster, Length: 2 * deltaCluster, Offset: &offset}, data); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that is given up: %v", err)
	}
}

// A file of a save takes the place of another, which whoever has it open keeps.
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

func FuzzExtents(f *testing.F) {
	f.Add([]byte(`[{"start":0,"length":4096,"depth":0,"present":true,"zero":false,"data":true,"offset":327680},{"start":4096,"length":1,"depth":1}]`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"start":0}`))
	f.Add([]byte(`[{"start":0,"length":9223372036854775807}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		end := int64(0)
		_ = eachExtent(bytes.NewReader(b), func(e extent) error {
			if e.Start != end || e.Length <= 0 || e.Start+e.Length > 1<<50 || e.Present == nil || e.Data == nil {
				t.Fatalf("extent %+v after %d", e, end)
			}
			end = e.Start + e.Length
			return nil
		})
	})
}

// The program that reseeds a guest runs, insists on all of its seed, and the
// script puts it in place and takes it away.
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
	name := ".seed-" + token()
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
	one := "processor\t: 0\nmodel name\t: A B\nflags\t\t: x y\nbogus : 1\n\nprocessor\t: 1\nmodel name\t: C\nflags\t\t: z\n"
	got := cpuName([]byte(one))
	if !strings.HasPrefix(got, "A B ") || got == cpuName([]byte(strings.Replace(one, "x y", "x", 1))) {
		t.Errorf("got %q", got)
	}
	if got != cpuName([]byte(strings.Replace(one, ": z", ": q", 1))) {
		t.Error("another core's features count")
	}
}
