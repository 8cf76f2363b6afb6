package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// directChunk is how much is read or written at a time without the page cache.
const directChunk = 4 << 20

// aligned returns a buffer for O_DIRECT: whole pages of memory. It is kept until the program ends.
var aligned = sync.OnceValues(func() ([]byte, error) {
	return unix.Mmap(-1, 0, directChunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
})

// readDirect reads the data of a disk from the medium.
func readDirect(d disk) (err error) {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf, err := aligned()
	if err != nil {
		return err
	}
	for at := 0; at < len(d.blocks); {
		if d.blocks[at] == hole {
			at++
			continue
		}
		off := int64(at) * block
		n := 0
		for ; at < len(d.blocks) && d.blocks[at] != hole && n < directChunk; at++ {
			n += block
		}
		if _, err := f.ReadAt(buf[:n], off); err != nil {
			return fmt.Errorf("read %s: %w", d.path, err)
		}
	}
	return nil
}

// writeDirect writes so many bytes into a new file, past the page cache, and syncs it.
func writeDirect(path string, length int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf, err := aligned()
	if err != nil {
		return err
	}
	_, _ = rand.NewChaCha8([32]byte{}).Read(buf) // no medium can make it small
	for off := int64(0); off < length; off += directChunk {
		if _, err := f.WriteAt(buf[:min(directChunk, length-off)], off); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return f.Sync()
}

// evict takes a file that is on stable storage out of the page cache.
func evict(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// settle puts everything of the file system on stable storage, so that what one
// measurement wrote is not written in the next.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
