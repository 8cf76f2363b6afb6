package disk_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// A disk may have a thousand file systems, which may overlap: none stays open once it was found.
func TestMemoryOfVolumes(t *testing.T) {
	const count, most = 120, 512 << 10
	container := make(memory, 4*mib)
	if _, err := apfstest.Write(offset{container, 0}, apfstest.Container{
		Volumes: []apfstest.Volume{{Name: "v", Files: []apfstest.File{{Path: "hello"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"ext4": linux(t, "root"), "apfs": container, "hfsplus": hfsPlus(t, hfsplustest.Volume{Name: "v"}),
		"xfs":   treetest.Unpacked(t, "../fs/xfs/testdata/v5.img.zst"),
		"btrfs": treetest.Unpacked(t, "../fs/btrfs/testdata/separate.img.zst"),
	} {
		m := make(memory, len(b)/mib*mib+4*mib)
		copy(m[mib:], b)
		var parts []disktest.Part
		for range count {
			parts = append(parts, disktest.Part{Type: disktest.Linux, Start: mib, Length: int64(len(b))})
		}
		if err := disktest.WriteGPT(m, int64(len(m)), 512, parts...); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		vols, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
		runtime.GC()
		runtime.ReadMemStats(&after)
		if err != nil || len(vols) < count || len(skipped) > 0 {
			t.Fatalf("%s: %d volumes, %+v, %v", name, len(vols), skipped, err)
		}
		kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%s: %d KiB for %d volumes", name, kept>>10, len(vols))
		if kept > most {
			t.Errorf("%s: %d bytes are kept for %d volumes", name, kept, len(vols))
		}
		runtime.KeepAlive(vols)
		runtime.KeepAlive(m)
	}
}
