//go:build linux

package journal_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/buildyard/buildyard/internal/agent/journal"
)

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestFullDisk fills a real file system: an end is still written, a start is refused, and an entry
// can be removed without any free space.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("no small file system here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	d, err := journal.Open(filepath.Join(dir, "instances"), journal.Options{ReserveBytes: journal.DefaultReserveBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Accept(start(idA, "1")); err != nil {
		t.Fatal(err)
	}
	fill := func(name string) string {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
		return f.Name()
	}
	first := fill("guest")
	if err := d.Accept(start(idB, "1")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a start on a full disk: %v, want no room", err)
	}
	if err := d.Save(idA, journal.State{Claim: "1", Ending: true}); err != nil {
		t.Fatalf("an end on a full disk: %v", err)
	}
	second := fill("another guest") // uses what the reserve freed
	if err := d.Save(idA, journal.State{Claim: "2"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a save without any room: %v", err)
	}
	if got := load(t, d); len(got) != 1 || !got[idA].State.Ending {
		t.Errorf("Load gives %+v", got)
	}
	if err := d.Remove(idA); err != nil {
		t.Errorf("a removal on a full disk: %v", err)
	}
	if err := errors.Join(os.Remove(first), os.Remove(second)); err != nil {
		t.Fatal(err)
	}
	if err := d.Accept(start(idB, "1")); err != nil {
		t.Errorf("a start with room again: %v", err)
	}
}
