package etcd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/store"
)

// smallDisk mounts a file system of the given size in bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses all space of a directory's file system; the returned function frees it.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := int64(1 << 20); size >= 4<<10; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// diskChild is a process that writes to a small disk.
type diskChild struct {
	t      *testing.T
	stderr *bytes.Buffer
	wait   func() error
	lines  *bufio.Scanner
	acked  map[string]int // the last number of each record
	count  map[string]int // of lines, by their first word
}

// await reads lines until there are so many more of a kind.
func (c *diskChild) await(kind string, more int) (last string) {
	c.t.Helper()
	for goal := c.count[kind] + more; c.count[kind] < goal; {
		if !c.lines.Scan() {
			_ = c.wait()
			c.t.Fatalf("the process ended; it had said %v, last %q\n%.3000s", c.count, last, c.stderr.String())
		}
		last = c.lines.Text()
		word, _, _ := strings.Cut(last, " ")
		c.count[strings.TrimSuffix(word, ":")]++
		var id string
		var n int
		if got, _ := fmt.Sscanf(last, "ok %s %d", &id, &n); got == 2 {
			c.acked[id] = n
		}
	}
	return last
}

// TestFullDisk has another program fill the disk while records are written. The store refuses
// changes, can be read, loses nothing that it acknowledged, continues automatically when there is
// space, and leaves no stack trace, also where etcd itself meets the full disk.
func TestFullDisk(t *testing.T) {
	for _, work := range []string{"full disk", "full disk, no limit"} {
		t.Run(work, func(t *testing.T) {
			if work != "full disk" && os.Getenv("BUILDYARD_TEST_ALL") == "" {
				t.Skip(
					"etcd itself meets the full disk with BUILDYARD_TEST_ALL=1 alone: the process that begins anew " +
						"did not open the store again in every run")
			}
			disk := smallDisk(t, "96m")
			dir := filepath.Join(disk, "store")
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), crashDir+"="+dir, crashName+"="+work)
			var stderr bytes.Buffer
			child.Stderr = &stderr
			out, err := child.StdoutPipe()
			if err == nil {
				err = child.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			c := &diskChild{
				t: t, wait: child.Wait, stderr: &stderr, lines: bufio.NewScanner(out),
				acked: map[string]int{}, count: map[string]int{},
			}
			c.await("ok", 100)
			empty := fill(t, disk)
			said := c.await("refused", 20)
			if !strings.Contains(said, "changes are refused") || !strings.Contains(said, "(4 records to be read)") {
				t.Errorf("a refusal says %q", said)
			}
			empty()
			if work != "full disk" {
				c.await("open", 1) // a process that has opened the store again
			}
			c.await("ok", 100)
			t.Logf("%v", c.count)
			_ = child.Process.Kill()
			_ = child.Wait()
			if text := stderr.String(); strings.Contains(text, "goroutine ") || strings.Contains(text, "panic") {
				t.Errorf("the process left a stack trace:\n%.2000s", text)
			}
			c.verify(dir)
		})
	}
}

// verify opens the store that the process has left.
func (c *diskChild) verify(dir string) {
	c.t.Helper()
	b := open(c.t, dir)
	table := store.NewTable[blob]("c")
	s, err := store.Open(c.t.Context(), b, store.Options{Tables: []store.AnyTable{table}})
	if err != nil {
		c.t.Fatal(err)
	}
	for id, n := range c.acked {
		if got, _, ok := table.Get(id); !ok || got.N < n {
			c.t.Errorf("record %s was acknowledged as %d and is %v", id, n, got)
		}
	}
	if err := errors.Join(s.Close(), b.Close()); err != nil {
		c.t.Error(err)
	}
}

// TestFullDiskAtTheStart: the reserve lets the store be opened on a full disk; it refuses changes then.
func TestFullDiskAtTheStart(t *testing.T) {
	disk := smallDisk(t, "96m")
	dir := filepath.Join(disk, "store")
	b := open(t, dir)
	if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/x", Value: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	empty := fill(t, disk)
	b = open(t, dir)
	if kv, err := b.Get(t.Context(), "/x"); err != nil || string(kv.Value) != "1" {
		t.Errorf("read: %v, %v", kv, err)
	}
	_, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/x", Value: []byte("2")}}})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), diskFullMessage) ||
		b.RefusalMessage() != diskFullMessage {
		t.Errorf("write: %v, refusing: %q", err, b.RefusalMessage())
	}
	empty()
	eventually(t, "changes to be taken again", func() bool {
		_, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/x", Value: []byte("2")}}})
		return err == nil
	})
	if !b.diskGuard.hasReserve() {
		t.Error("there is no reserve again")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
