package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// blocked makes the inventory impossible to open, as on a failing disk, once it is closed. It
// returns what ends that.
func blocked(b *bench) (lift func()) {
	b.t.Helper()
	path := b.options.InventoryPath
	b.until("the inventory's rest", func() bool {
		open, err := filepath.Glob("/proc/self/fd/*")
		return err == nil && !slices.ContainsFunc(open, func(fd string) bool {
			to, _ := os.Readlink(fd) // it may be closed already
			return to == path
		})
	})
	if err := os.Rename(path, path+".moved"); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			b.t.Fatal(err)
		}
		if err := os.Rename(path+".moved", path); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestChangesOnAFullDiskAreRetried: a full disk delays packages, and loses none.
func TestChangesOnAFullDiskAreRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.start()
	lift := blocked(b)
	b.npm("a", "1.0.0")
	b.warns("could not be cataloged immediately")
	b.npm("b", "1.0.0")
	b.write("node_modules/a/package.json", `{"name":"a","version":"2.0.0"}`)
	lift()
	b.expect("npm a 2.0.0 node_modules/a/package.json", "npm b 1.0.0 node_modules/b/package.json")

	lift = blocked(b)
	b.npm("c", "1.0.0")
	b.warns("could not be cataloged immediately")
	b.stopped() // it does not wait for the disk, and reports that
	b.warns("a full scan finds it")
	lift()
}

// TestMissedFilesAreScannedAgain: files that cannot be noted when real-time scanning begins are
// noted later, and do not delay a stop.
func TestMissedFilesAreScannedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.npm("old", "1.0.0")
	time.Sleep(2 * clockGranularity)
	lift := blocked(b)
	b.watchOnly()
	b.warns("began could not be scanned")
	lift()
	b.until("the old ones being noted", func() bool { return b.realTime.isBaselineKnown() })
	b.npm("new", "1.0.0")
	b.expect("npm new 1.0.0 node_modules/new/package.json")
	b.stopped()

	lift = blocked(b)
	b.watchOnly()
	b.stopped()
	lift()
}
