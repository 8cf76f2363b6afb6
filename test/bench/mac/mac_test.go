package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// TestRows: each promise has a row that a default run can measure.
func TestRows(t *testing.T) {
	b, _, err := program.Parse(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	table, err := b.Rows()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{rowStart, rowSize, rowDelta, rowExec, rowForward}
	if names := row.Names(table); !slices.Equal(names, want) {
		t.Errorf("rows %v, want %v", names, want)
	}
	for _, bad := range []string{"0", "-1", "201"} {
		if _, _, err := program.Parse([]string{"-rounds", bad}, t.Output()); err == nil {
			t.Errorf("-rounds %s is accepted", bad)
		}
	}
}

// TestRuns: the runs change the right number of bytes, in order, without overlaps, and are the same each time.
func TestRuns(t *testing.T) {
	const size, total = 64 << 20, 16 << 20
	runs, again := newRuns(size, total), newRuns(size, total)
	sum, end := int64(0), int64(0)
	for i, r := range runs {
		n := int64(len(r.data))
		if n < blockBytes || n > maxRunBytes || n%blockBytes != 0 || r.off%blockBytes != 0 || r.off < end {
			t.Fatalf("run %d: %d bytes at %d, after one that ends at %d", i, n, r.off, end)
		}
		if r.off != again[i].off || !bytes.Equal(r.data, again[i].data) {
			t.Fatalf("run %d differs from one of the same seed", i)
		}
		sum, end = sum+n, r.off+n
	}
	if sum != total || end > size {
		t.Errorf("the runs have %d bytes and end at %d", sum, end)
	}
}

// TestCompareFiles: a byte and a length that differ are found.
func TestCompareFiles(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789"), 1000)
	changed := slices.Clone(content)
	changed[7777]++
	for name, c := range map[string]struct {
		content []byte
		same    bool
	}{"same": {content, true}, "changed": {changed, false}, "shorter": {content[:9999], false}} {
		left, right := filepath.Join(dir, "left"), filepath.Join(dir, "right")
		if err := errors.Join(os.WriteFile(left, content, 0o600), os.WriteFile(right, c.content, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := compareFiles(left, right); (err == nil) != c.same {
			t.Errorf("%s: %v", name, err)
		}
		if err := compareFiles(right, left); (err == nil) != c.same {
			t.Errorf("%s, the other way round: %v", name, err)
		}
	}
}

// TestInTurns: the order changes, the results do not.
func TestInTurns(t *testing.T) {
	for round, want := range []string{"ab", "ba", "ab"} {
		var order strings.Builder
		operationOf := func(name string, took time.Duration) operation {
			return func() (time.Duration, error) { order.WriteString(name); return took, nil }
		}
		a, b, err := inTurns(round, operationOf("a", 1), operationOf("b", 2))
		if a != 1 || b != 2 || err != nil || order.String() != want {
			t.Errorf("round %d: %v, %v, %v in the order %s", round, a, b, err, order.String())
		}
	}
	bad := errors.New("bad")
	fails := func() (time.Duration, error) { return 0, bad }
	for round := range 2 {
		if _, _, err := inTurns(round, fails, fails); !errors.Is(err, bad) {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// TestBootTimes: no time of boot is out of its range, and they differ.
func TestBootTimes(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range minStarts {
		d := bootTime(i)
		if d < firstBoot || d >= firstBoot+bootRange {
			t.Errorf("pair %d boots in %v", i, d)
		}
		seen[d] = true
	}
	if len(seen) < minStarts {
		t.Errorf("%d times of boot in %d pairs", len(seen), minStarts)
	}
}

// TestStreams: both kinds of streams transfer their bytes, and a stream that is cut is an error.
func TestStreams(t *testing.T) {
	const size = 3*bufferBytes + 1
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sizes := make(chan int64, 1)
	go func() {
		for size := range sizes {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serveStream(c, size)
		}
	}()
	defer close(sizes)
	for _, kind := range []byte{download, upload} {
		sizes <- size
		if err := stream(t.Context(), l.Addr().String(), kind, size); err != nil {
			t.Errorf("%c: %v", kind, err)
		}
	}
	sizes <- size - 1
	if err := stream(t.Context(), l.Addr().String(), download, size); err == nil {
		t.Error("a stream that ends early is complete")
	}
}

// TestKillUsers: a process below the directory is ended, no other one.
func TestKillUsers(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	begin := func(dir string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sleep", "600")
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	user, unrelated := begin(dir), begin(other)
	ended := make(chan error, 1)
	go func() { ended <- user.Wait() }()
	killed, err := killUsers(t.Context(), dir)
	if err != nil || len(killed) == 0 || killed[0] != "sleep 600" {
		t.Errorf("killed %q, %v", killed, err)
	}
	if err := <-ended; err == nil {
		t.Error("the process has ended normally")
	}
	if !uses(unrelated.Process.Pid, other) {
		t.Error("a process elsewhere was ended")
	}
}
