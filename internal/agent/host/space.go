package host

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// Inode names a file on this machine, whatever it is called.
type Inode struct{ dev, ino uint64 }

// extent is a range of a disk, in bytes.
type extent struct{ from, to uint64 }

// Allocated returns the bytes that the files below dir take on disk: holes count
// nothing, a file with two names counts once. Files that go away meanwhile are left
// out.
func Allocated(dir string) int64 {
	var sum int64
	for _, bytes := range Files(dir) {
		sum += bytes
	}
	return sum
}

// Files returns what each file below dir takes on disk, as Allocated counts it.
func Files(dir string) map[Inode]int64 {
	files := map[Inode]int64{}
	walk(dir, func(_ string, file Inode, bytes int64) { files[file] = bytes })
	return files
}

// Own returns what each file below dir takes on disk and shares with no other file that
// is a clone of it. Where the system does not tell, nothing is shared.
func Own(dir string) map[Inode]int64 {
	files := map[Inode]int64{}
	walk(dir, func(path string, file Inode, bytes int64) { files[file], _ = split(path, bytes) })
	return files
}

// Taken returns the bytes that the files below directories of one file system take together:
// what clones of each other share counts once, as a file with two names does.
func Taken(dirs ...string) int64 {
	own, shared := map[Inode]int64{}, []extent{}
	for _, dir := range dirs {
		walk(dir, func(path string, file Inode, bytes int64) {
			if _, known := own[file]; known {
				return
			}
			var list []extent
			own[file], list = split(path, bytes)
			shared = append(shared, list...)
		})
	}
	sum := length(shared)
	for _, bytes := range own {
		sum += bytes
	}
	return sum
}

// split tells what of the bytes that a file takes it has alone, and where the others lie.
func split(path string, takes int64) (own int64, shared []extent) {
	own, shared, ok := extents(path)
	if !ok {
		return takes, nil
	}
	// Extents of compressed bytes are longer than what they take. On the other hand, what XFS
	// set aside for later writes is taken, but for minutes only.
	return min(own, takes), shared
}

// length is the number of bytes that are in any of the extents, which it sorts.
func length(list []extent) int64 {
	slices.SortFunc(list, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	var sum, end uint64
	for _, e := range list {
		if e.to > end {
			sum += e.to - max(e.from, end)
			end = e.to
		}
	}
	return int64(sum)
}

// walk shows the regular files below dir with what they take on disk.
func walk(dir string, show func(path string, file Inode, bytes int64)) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went away; the rest still counts
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
