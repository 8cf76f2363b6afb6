package qemu_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/nbd"
)

// remoteDisk is a file behind a socket whose reads a test may hold.
type remoteDisk struct {
	file   *os.File
	size   int64
	socket string

	mu    sync.Mutex
	held  chan struct{} // nil: reads are not held
	reads int
	end   func()
}

// serveDisk serves a file.
func serveDisk(t *testing.T, path string) *remoteDisk {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nbd") // short, as addresses of sockets must be
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // QEMU may be another user
		t.Fatal(err)
	}
	d := &remoteDisk{file: f, size: info.Size(), socket: filepath.Join(dir, "s")}
	if err := d.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.end()
		_ = f.Close()
		_ = os.RemoveAll(dir)
	})
	return d
}

// listen begins to serve, again after end.
func (d *remoteDisk) listen() error {
	_ = os.Remove(d.socket)
	l, err := net.Listen("unix", d.socket)
	if err == nil {
		err = os.Chmod(d.socket, 0o666)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { _ = nbd.Serve(ctx, c, d, slog.New(slog.DiscardHandler)) })
		}
	})
	d.end = sync.OnceFunc(func() {
		_ = l.Close()
		cancel()
		serving.Wait()
	})
	return nil
}

func (d *remoteDisk) Size() int64 { return d.size }

func (d *remoteDisk) ReadAt(ctx context.Context, p []byte, off int64) (bool, error) {
	d.mu.Lock()
	held := d.held
	d.reads++
	d.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	_, err := d.file.ReadAt(p, off)
	return false, err
}

func (d *remoteDisk) Extents(_, end int64) iter.Seq[nbd.Extent] {
	return func(yield func(nbd.Extent) bool) { yield(nbd.Extent{End: end, Data: true}) }
}

// hold holds all reads until the returned function is called.
func (d *remoteDisk) hold() (release func()) {
	held := make(chan struct{})
	d.mu.Lock()
	d.held = held
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		d.held = nil
		d.mu.Unlock()
		close(held)
	}
}

func (d *remoteDisk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

// rawCopy returns a disk as a raw file.
func rawCopy(t *testing.T, disk string) string {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "system.raw")
	if out, err := exec.Command("qemu-img", "convert", "-O", "raw", disk, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return raw
}

// TestRemoteDisk: a guest runs from disks that a socket serves, continues after its server was away, is moved to the
// files while it runs, and reads what was in them, before and after.
func TestRemoteDisk(t *testing.T) {
	system := guest(t)
	raw := rawCopy(t, system)
	content := make([]byte, 24<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(content)
	data := filepath.Join(t.TempDir(), "data.raw")
	if err := os.WriteFile(data, content, 0o600); err != nil {
		t.Fatal(err)
	}
	boot, second := serveDisk(t, raw), serveDisk(t, data)
	d := open(t, t.TempDir())
	spec := newSpec(raw, "raw")
	spec.BootTimeout = 4 * time.Minute
	spec.Disks = []hv.Disk{
		{Path: raw, Format: "raw", Socket: boot.socket, Bytes: boot.size},
		{Path: data, Format: "raw", Socket: second.socket, Bytes: second.size},
	}
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Delete(t.Context(), spec.ID) }()
	if boot.count() == 0 {
		t.Fatal("the guest did not read its disk from the socket")
	}
	sum := func(what string, skip int) {
		t.Helper()
		part := content[skip<<20 : (skip+8)<<20]
		command := fmt.Sprintf("echo 3 > /proc/sys/vm/drop_caches; dd if=/dev/vdb bs=1M skip=%d count=8 | sha256sum",
			skip)
		r, err := d.Exec(t.Context(), spec.ID,
			hv.Command{Path: "sh", Args: []string{"-c", command}, Timeout: time.Minute})
		if want := fmt.Sprintf("%x", sha256.Sum256(part)); err != nil || !strings.Contains(string(r.Stdout), want) {
			t.Fatalf("%s: %q %q %v", what, r.Stdout, r.Stderr, err)
		}
	}
	sum("from the socket", 0)
	if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); !errors.Is(err,
		hv.ErrDiskIncomplete) {
		t.Errorf("a save: %v", err)
	}
	second.end() // as a process that was killed
	back := make(chan error, 1)
	time.AfterFunc(2*time.Second, func() { back <- second.listen() })
	sum("after the server was away", 8)
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	for i := range spec.Disks {
		for range 2 { // the second changes nothing
			if err := d.UseFile(t.Context(), spec.ID, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	boot.end()
	second.end()
	before := second.count()
	sum("from the file", 16)
	sum("from the file again", 0)
	if second.count() != before {
		t.Error("the socket was read after the move")
	}
	if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); err != nil {
		t.Errorf("a save after the move: %v", err)
	}
	if got, err := os.ReadFile(data); err != nil || !bytes.Equal(got, content) {
		t.Error("the base was written:", err)
	}
}

// TestStopWithWaitingRead: a VM whose read waits can be ended.
func TestStopWithWaitingRead(t *testing.T) {
	system := guest(t)
	raw := rawCopy(t, system)
	boot := serveDisk(t, raw)
	release := boot.hold()
	defer release()
	d := open(t, t.TempDir())
	spec := newSpec(raw, "raw")
	spec.Disks[0].Socket, spec.Disks[0].Bytes, spec.BootTimeout = boot.socket, boot.size, 3*time.Second
	if _, err := d.Start(t.Context(), spec); !errors.Is(err, hv.ErrBootTimeout) {
		t.Fatalf("start: %v", err)
	}
	began := time.Now()
	if err := d.Delete(t.Context(), spec.ID); err != nil || time.Since(began) > time.Minute {
		t.Errorf("delete after %s: %v", time.Since(began), err)
	}
}
