package scan

import (
	"io/fs"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
)

// listedFS calls a function when its root is listed.
type listedFS struct {
	fstest.MapFS
	listed func()
}

func (f *listedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "." {
		f.listed()
	}
	return f.MapFS.ReadDir(name)
}

// What a volume caches is freed before the next one is read: a disk may have a thousand.
func TestFreedVolumes(t *testing.T) {
	var wasFreed, isListed atomic.Bool
	volumes := []volume{
		{Volume: Volume{Name: "first"}, fs: freedFS(&wasFreed)},
		{Volume: Volume{Name: "second"}, fs: &listedFS{fstest.MapFS{"b": {}}, func() {
			isListed.Store(true)
			for end := time.Now().Add(10 * time.Second); !wasFreed.Load() && time.Now().Before(end); {
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
			if !wasFreed.Load() {
				t.Error("the first volume is kept while the second one is read")
			}
		}}},
	}
	inv := &Inventory{}
	if err := inv.catalogVolumes(t.Context(), volumes, Options{}); err != nil {
		t.Fatal(err)
	}
	if !isListed.Load() || len(inv.Volumes) != 2 {
		t.Errorf("volumes %+v, the second one was listed: %v", inv.Volumes, isListed.Load())
	}
}

// freedFS returns a file system whose end of life is recorded.
func freedFS(isFreed *atomic.Bool) fs.FS {
	f := &listedFS{fstest.MapFS{"a": {}}, func() {}}
	runtime.AddCleanup(f, func(isFreed *atomic.Bool) { isFreed.Store(true) }, isFreed)
	return f
}
