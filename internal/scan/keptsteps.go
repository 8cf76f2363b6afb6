package scan

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/fs/ext4"
	"github.com/buildyard/buildyard/internal/scan/stepcache"
)

// stepsVersion changes when the same program would read steps of an earlier one wrongly.
const stepsVersion = 2

// keptSteps are the steps of a volume of a template, which are kept for the scan of the next version. The nil
// value keeps none.
type keptSteps struct {
	steps    *catalog.Steps
	cache    *stepcache.Cache
	key      string // that the steps are saved under; "": the cache has them
	salt     ext4.Salt
	geometry [sha256.Size]byte
}

// loadSteps returns the steps of the nearest version of a volume that was scanned before, or none yet for its
// first scan. It returns nil for volumes whose steps cannot be kept: those on files, encrypted and logical ones, and
// other file systems than ext2 to ext4.
func (v *volume) loadSteps(tree fs.FS, cache *stepcache.Cache, extractors []catalog.Extractor) *keptSteps {
	files, ok := tree.(*ext4.FS)
	if !ok || cache == nil || v.disk == nil || v.mapped {
		return nil
	}
	ids := v.disk.ChainIDs()
	if len(ids) == 0 {
		return nil
	}
	k := &keptSteps{cache: cache, key: v.stepsKey(ids[len(ids)-1], extractors)}
	var err error
	if k.geometry, err = files.Geometry(); err != nil {
		return nil // reading it fails, too, and is reported then
	}
	for n, id := range slices.Backward(ids) {
		data, ok := cache.Load(v.stepsKey(id, extractors))
		if !ok {
			continue
		}
		if changed, ok := v.disk.ChangedSince(n); ok && k.decode(files, data, v.within(changed)) {
			if n == len(ids)-1 {
				k.key = ""
			}
			return k
		}
		break
	}
	_, _ = rand.Read(k.salt[:]) // it never fails
	k.steps = catalog.NewSteps(trackedExt{Tracker: files.NewTracker(k.salt, nil), FS: files})
	return k
}

// stepsKey returns the name of the steps of a volume in a version of its disk.
func (v *volume) stepsKey(chainID string, extractors []catalog.Extractor) string {
	names := make([]string, len(extractors))
	for i, e := range extractors {
		names[i] = e.Name()
	}
	return fmt.Sprintf("%d %s %s %d %d %s", stepsVersion, obs.FullVersion(), chainID, v.start, v.length,
		strings.Join(names, ","))
}

// decode decodes steps of an earlier version, if they are of use.
func (k *keptSteps) decode(files *ext4.FS, data []byte, changed []ext4.Range) bool {
	head := len(k.salt) + len(k.geometry)
	if len(data) < head || !bytes.Equal(data[len(k.salt):head], k.geometry[:]) {
		return false
	}
	copy(k.salt[:], data)
	var err error
	k.steps, err = catalog.DecodeSteps(trackedExt{Tracker: files.NewTracker(k.salt, changed), FS: files}, data[head:])
	return err == nil
}

// within converts ranges of the disk to those of the volume.
func (v *volume) within(changed []disk.Range) (out []ext4.Range) {
	for _, r := range changed {
		off, end := max(r.Off-v.start, 0), min(r.Off+r.Len-v.start, v.length)
		if off < end {
			out = append(out, ext4.Range{Off: off, Len: end - off})
		}
	}
	return out
}

// save keeps the steps of a finished scan.
func (k *keptSteps) save(ctx context.Context) error {
	if k == nil || k.key == "" || !k.steps.Complete() || ctx.Err() != nil {
		return nil
	}
	data := append(append([]byte{}, k.salt[:]...), k.geometry[:]...)
	return k.cache.Save(k.key, append(data, k.steps.Encode()...))
}

// trackedExt is a file system of ext2 to ext4, or a view of it, for a scan that keeps its steps.
type trackedExt struct {
	*ext4.FS
	*ext4.Tracker
	reads *ext4.ReadSet // of a view
}

var (
	_ catalog.Tracked = trackedExt{}
	_ fs.ReadDirFS    = trackedExt{}
	_ fs.StatFS       = trackedExt{}
)

func (t trackedExt) Track() catalog.Tracked {
	view, reads := t.Tracker.Track()
	return trackedExt{view, t.Tracker, reads}
}

func (t trackedExt) Reads() []byte { return t.reads.Encode() }

func (t trackedExt) Entry(r catalog.EntryRef) fs.DirEntry {
	return t.FS.Entry(ext4.EntryRef{Name: r.Name, Inode: uint32(r.Inode), Parent: uint32(r.Parent), Type: r.Type})
}

func (t trackedExt) Ref(e fs.DirEntry) (catalog.EntryRef, error) {
	r, err := ext4.RefOf(e)
	return catalog.EntryRef{Name: r.Name, Inode: uint64(r.Inode), Parent: uint64(r.Parent), Type: r.Type}, err
}
