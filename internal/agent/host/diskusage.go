package host

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// Inode identifies a file on this machine, whatever its name.
type Inode struct{ dev, ino uint64 }

// extent is a range of a disk, in bytes.
type extent struct{ start, end uint64 }

// AllocatedBytes returns the bytes that the files below dir use on disk: holes do not count, a file with
// two names counts once. Files that are removed in the meantime are left out.
func AllocatedBytes(dir string) int64 {
	var sum int64
	for _, bytes := range AllocatedByInode(dir) {
		sum += bytes
	}
	return sum
}

// AllocatedByInode returns the bytes that each file below dir uses on disk, as Allocated counts them.
func AllocatedByInode(dir string) map[Inode]int64 {
	files := map[Inode]int64{}
	walkFiles(dir, func(_ string, file Inode, bytes int64) { files[file] = bytes })
	return files
}

// ExclusiveBytes returns the bytes that each file below dir uses on disk and shares with no clone. Where the
// system does not report that, nothing is shared.
func ExclusiveBytes(dir string) map[Inode]int64 {
	files := map[Inode]int64{}
	walkFiles(dir, func(path string, file Inode, bytes int64) { files[file], _ = splitExtents(path, bytes) })
	return files
}

// DiskUsage returns the bytes that the files below directories of one file system use together: bytes
// shared by clones count once, like a file with two names.
func DiskUsage(dirs ...string) int64 {
	own, shared := map[Inode]int64{}, []extent{}
	for _, dir := range dirs {
		walkFiles(dir, func(path string, file Inode, bytes int64) {
			if _, known := own[file]; known {
				return
			}
			var list []extent
			own[file], list = splitExtents(path, bytes)
			shared = append(shared, list...)
		})
	}
	sum := unionLength(shared)
	for _, bytes := range own {
		sum += bytes
	}
	return sum
}

// splitExtents returns how many of a file's bytes only this file has, and the ranges of the others.
func splitExtents(path string, takes int64) (own int64, shared []extent) {
	own, shared, ok := extents(path)
	if !ok {
		return takes, nil
	}
	// Extents of compressed bytes are longer than the space they use. On the other hand, the space
	// that XFS preallocates for later writes counts, but for minutes only.
	return min(own, takes), shared
}

// unionLength is the number of bytes that are in any of the extents, which it sorts.
func unionLength(list []extent) int64 {
	slices.SortFunc(list, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	var sum, end uint64
	for _, e := range list {
		if e.end > end {
			sum += e.end - max(e.start, end)
			end = e.end
		}
	}
	return int64(sum)
}

// walkFiles calls show for the regular files below dir with the bytes that they use on disk.
func walkFiles(dir string, show func(path string, file Inode, bytes int64)) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed; the rest still counts
		}
		info, err := d.Info()
		if err != nil {
			return nil // as above
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			show(path, Inode{uint64(st.Dev), st.Ino}, st.Blocks*512) // its type differs between systems
		}
		return nil
	})
}
