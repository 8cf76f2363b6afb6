package diskfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestClosedDiskIsFree: no file of a closed disk is open, including those read past the page cache.
func TestClosedDiskIsFree(t *testing.T) {
	d := Disk{Path: filepath.Join(t.TempDir(), "disk")}
	if err := os.WriteFile(d.Path, bytes.Repeat([]byte("disk"), 1<<18), 0o600); err != nil {
		t.Fatal(err)
	}
	held := func() (n int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && to == d.Path {
				n++
			}
		}
		return n
	}
	open, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	if held() == 0 {
		t.Error("an open disk holds no file")
	}
	if err := open.Close(); err != nil || held() > 0 {
		t.Errorf("%d files are open, %v", held(), err)
	}
	d.Overlays = []string{filepath.Join(t.TempDir(), "none")}
	if _, err := d.Open(); err == nil || held() > 0 {
		t.Errorf("of a disk that cannot be opened %d files are open, %v", held(), err)
	}
	if _, err := (Disk{Path: d.Path, Format: "vmdk"}).Open(); err == nil || held() > 0 {
		t.Errorf("of a disk in another format %d files are open, %v", held(), err)
	}
}
