package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/diskfile"
)

// A checksum file contains checksums of a disk, to find later changes without a second copy of it: checksumSize bytes
// for each block, zeros for one of zeros. It has holes where the disk has.
const (
	checksumSize = 16 // first bytes of the sha256 of the block, which zeros follow if the disk ends within it
	// chunkSize is the number of bytes of a disk that are read and compared at a time, and chunkChecksumsSize the size
	// of their checksums.
	chunkSize          = 1 << 20
	chunkChecksumsSize = chunkSize / blob.BlockSize * checksumSize
	// windowChunks is how many chunks are compared before their changes are returned.
	windowChunks    = 64
	checksumWorkers = 4
)

// ChecksumFileSize is the length of a checksum file of a disk of so many bytes.
func ChecksumFileSize(disk int64) int64 {
	return (disk + blob.BlockSize - 1) / blob.BlockSize * checksumSize
}

// DiskCopy reads a disk once, for all requested outputs.
type DiskCopy struct {
	From      *diskfile.OpenDisk
	RawCopy   *os.File // nil, or an empty file that becomes a raw copy, with holes for zeros
	Checksums *os.File // nil, or an empty file for the checksums of the disk: see PushParent.Sums
	// Progress is called with the bytes done and the total, from one goroutine at a time; nil: not called.
	Progress func(Progress)
}

// Run copies and syncs the files.
func (c DiskCopy) Run(ctx context.Context) error {
	size := c.From.Size()
	total, err := dataBytesBetween(c.From, 0, size)
	if err != nil {
		return fmt.Errorf("copy disk: %w", err)
	}
	meter, left := newProgressMeter(c.Progress, total), total
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(checksumWorkers)
	for off := int64(0); off < size; {
		start, end, err := c.From.NextData(off)
		if err != nil || start >= end || ctx.Err() != nil {
			group.Go(func() error { return errors.Join(err, context.Cause(ctx)) })
			break
		}
		at := max(off, start/chunkSize*chunkSize)
		off = min(size, at+chunkSize)
		n := min(left, min(end, off)-start) // of the first range in the chunk, which almost always covers it
		left -= n
		group.Go(func() error {
			defer meter.addTransferred(n)
			return c.copyChunk(at, off)
		})
	}
	err = group.Wait()
	for _, f := range []struct {
		file *os.File
		size int64
	}{{c.RawCopy, size}, {c.Checksums, ChecksumFileSize(size)}} {
		if f.file != nil && err == nil {
			err = errors.Join(f.file.Truncate(f.size), f.file.Sync())
		}
	}
	if err != nil {
		return fmt.Errorf("copy disk: %w", err)
	}
	meter.addSkipped(left)
	meter.finish()
	return nil
}

// copyChunk reads the range from off, which begins a chunk, to end.
func (c DiskCopy) copyChunk(off, end int64) error {
	data := make([]byte, end-off)
	if n, err := c.From.ReadAt(data, off); n < len(data) {
		return fmt.Errorf("read at %d: %w", off+int64(n), err)
	}
	if c.Checksums != nil {
		if _, err := c.Checksums.WriteAt(blockChecksums(data), off/blob.BlockSize*checksumSize); err != nil {
			return err
		}
	}
	if c.RawCopy == nil {
		return nil
	}
	for at := 0; at < len(data); {
		n := blob.BlockSize * 16
		block := data[at:min(len(data), at+n)]
		if !isZero(block) {
			if _, err := c.RawCopy.WriteAt(block, off+int64(at)); err != nil {
				return err
			}
		}
		at += n
	}
	return nil
}

var zeroBytes = make([]byte, 16*blob.BlockSize)

func isZero(p []byte) bool { return bytes.Equal(p, zeroBytes[:len(p)]) }

// blockChecksums returns the checksums of the blocks of data.
func blockChecksums(data []byte) []byte {
	sums := make([]byte, 0, chunkChecksumsSize)
	for len(data) > 0 {
		block := data[:min(len(data), blob.BlockSize)]
		data = data[len(block):]
		if isZero(block) {
			sums = append(sums, zeroBytes[:checksumSize]...)
			continue
		}
		if len(block) < blob.BlockSize {
			block = append(bytes.Clone(block), zeroBytes[:blob.BlockSize-len(block)]...)
		}
		sum := sha256.Sum256(block)
		sums = append(sums, sum[:checksumSize]...)
	}
	return sums
}

// checksumChanges are the blocks of a disk that differ from a checksum file.
type checksumChanges struct {
	*diskfile.OpenDisk
	checksums      blob.FileSource
	comparedTo     int64 // end of the compared range of the disk
	nextDiskData   int64 // lower bound of the next data of the disk
	nextParentData int64 // lower bound of the next data of the parent
	changes        []blob.Change
	finished       bool
}

var _ blob.Changes = (*checksumChanges)(nil)

// newChecksumChanges compares a disk with the checksums of another one.
func newChecksumChanges(d *diskfile.OpenDisk, sums *os.File) (*checksumChanges, error) {
	st, err := sums.Stat()
	if err != nil {
		return nil, err
	}
	return &checksumChanges{OpenDisk: d, checksums: blob.FileSource{File: sums, Size: st.Size()}}, nil
}

// NextChange compares until a change is found.
func (c *checksumChanges) NextChange(off int64) (blob.Change, bool, error) {
	for {
		for len(c.changes) > 0 {
			if next := c.changes[0]; next.Off+next.Len > off {
				return next, true, nil
			}
			c.changes = c.changes[1:]
		}
		if c.finished {
			return blob.Change{}, false, nil
		}
		if err := c.compareWindow(); err != nil {
			return blob.Change{}, false, err
		}
	}
}

// compareWindow compares the next chunks.
func (c *checksumChanges) compareWindow() error {
	var found [windowChunks][]blob.Change
	var group errgroup.Group
	group.SetLimit(checksumWorkers)
	var err error
	for i := range found {
		var at int64
		if at, err = c.nextChunk(); err != nil || c.finished {
			break
		}
		group.Go(func() (err error) {
			found[i], err = c.compareChunk(at)
			return err
		})
	}
	err = errors.Join(err, group.Wait())
	for _, changes := range found {
		c.changes = append(c.changes, changes...)
	}
	return err
}

// nextChunk returns the next chunk in which one of the two disks may have data.
func (c *checksumChanges) nextChunk() (int64, error) {
	for _, side := range []struct {
		src   blob.Source
		next  *int64
		scale int64 // bytes of the disk for each of the side
	}{{c.OpenDisk, &c.nextDiskData, 1}, {c.checksums, &c.nextParentData, blob.BlockSize / checksumSize}} {
		if *side.next > c.comparedTo {
			continue
		}
		start, end, err := side.src.NextData(c.comparedTo / side.scale)
		if err != nil {
			return 0, err
		}
		*side.next = start * side.scale
		if start >= end {
			*side.next = c.Size()
		}
	}
	at := max(c.comparedTo, min(c.nextDiskData, c.nextParentData)/chunkSize*chunkSize)
	c.finished = at >= c.Size() || min(c.nextDiskData, c.nextParentData) >= c.Size()
	c.comparedTo = at + chunkSize
	return at, nil
}

// compareChunk returns the differences in a chunk.
func (c *checksumChanges) compareChunk(at int64) ([]blob.Change, error) {
	data := make([]byte, min(chunkSize, c.Size()-at))
	if n, err := c.ReadAt(data, at); n < len(data) {
		return nil, fmt.Errorf("read at %d: %w", at+int64(n), err)
	}
	old := make([]byte, chunkChecksumsSize)
	if _, err := c.checksums.ReadAt(old, at/blob.BlockSize*checksumSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read checksums of the pushed version: %w", err)
	}
	var found []blob.Change
	now := blockChecksums(data)
	for i := 0; i < len(now); i += checksumSize {
		sum := now[i : i+checksumSize]
		if bytes.Equal(sum, old[i:i+checksumSize]) {
			continue
		}
		off := int64(i / checksumSize * blob.BlockSize)
		next := blob.Change{Off: at + off, Len: min(blob.BlockSize, int64(len(data))-off), Kind: blob.ChangeData}
		if isZero(sum) {
			next.Kind = blob.ChangeZero
		}
		if n := len(found) - 1; n >= 0 && found[n].Kind == next.Kind && found[n].Off+found[n].Len == next.Off {
			found[n].Len += next.Len
			continue
		}
		found = append(found, next)
	}
	return found, nil
}
