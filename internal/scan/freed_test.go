package scan

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
)

// openFiles counts the file systems that are in use.
type openFiles struct{ count, opened atomic.Int64 }

// countedFS is a file system whose end of life is recorded.
type countedFS struct{ fstest.MapFS }

// open opens a file system when no more than some others are in use.
func (o *openFiles) open(t *testing.T, most int64) func() (fs.FS, error) {
	return func() (fs.FS, error) {
		for end := time.Now().Add(10 * time.Second); o.count.Load() > most && time.Now().Before(end); {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		if n := o.count.Load(); n > most {
			t.Errorf("%d volumes are kept while another one is opened", n)
		}
		o.count.Add(1)
		o.opened.Add(1)
		f := &countedFS{fstest.MapFS{"a": {}}}
		runtime.AddCleanup(f, func(o *openFiles) { o.count.Add(-1) }, o)
		return f, nil
	}
}

// What a volume caches is freed before the next one is opened: a disk may have a thousand.
func TestFreedVolumes(t *testing.T) {
	var o openFiles
	var volumes []volume
	for k := range 3 {
		volumes = append(volumes, volume{Volume: Volume{Name: fmt.Sprint(k)}, open: o.open(t, 0)})
	}
	inv := &Inventory{}
	if err := inv.catalogVolumes(t.Context(), volumes, Options{}); err != nil {
		t.Fatal(err)
	}
	if o.opened.Load() != 3 || len(inv.Volumes) != 3 || len(inv.Skipped) > 0 {
		t.Errorf("volumes %+v, skipped %+v, %d opened", inv.Volumes, inv.Skipped, o.opened.Load())
	}
}

// Of the files that are opened again, only the volumes that were used last are kept.
func TestFreedFiles(t *testing.T) {
	var o openFiles
	inv := &Inventory{open: func(context.Context, *Inventory) (volumes []volume, _ io.Closer, _ error) {
		for k := range 5 {
			volumes = append(volumes, volume{Volume: Volume{Name: fmt.Sprint(k)}, open: o.open(t, maxOpenVolumes)})
		}
		return volumes, io.NopCloser(nil), nil
	}}
	files, err := inv.OpenFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, location := range []string{
		"/a", "/Volumes/1/a", "/a", "/Volumes/2/a", "/a", "/Volumes/3/a", "/Volumes/4/a",
	} {
		if _, err := contentOf(t.Context(), files, location); err != nil {
			t.Errorf("%s: %v", location, err)
		}
	}
	if n := o.opened.Load(); n != 5 {
		t.Errorf("%d volumes were opened", n)
	}
	runtime.KeepAlive(files)
}

// A volume that cannot be opened any more is named, and the others are read.
func TestVolumeNotOpened(t *testing.T) {
	inv := &Inventory{}
	err := inv.catalogVolumes(t.Context(), []volume{
		{Volume: Volume{Name: "gone"}, open: func() (fs.FS, error) { return nil, fs.ErrClosed }},
		{Volume: Volume{Name: "there"}, open: opened(fstest.MapFS{})},
	}, Options{})
	if err != nil || len(inv.Volumes) != 1 || inv.Volumes[0].Name != "there" || len(inv.Skipped) != 1 ||
		inv.Skipped[0] != (Skipped{"gone", fs.ErrClosed.Error(), true}) {
		t.Errorf("%+v, %v", inv, err)
	}
}
