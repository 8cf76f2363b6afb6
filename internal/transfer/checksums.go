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
)

// A checksum file contains checksums of a disk, to find later changes without a second copy of it: sumSize bytes
// for each block, zeros for one of zeros. It has holes where the disk has.
const (
	sumSize = 16 // first bytes of the sha256 of the block, which zeros follow if the disk ends within it
	// chunkSize is the number of bytes of a disk that are read and compared at a time, and sumChunk the size of
	// their checksums.
	chunkSize = 1 << 20
	sumChunk  = chunkSize / blob.BlockSize * sumSize
	// windowSize is how many chunks are compared before their changes are returned.
	windowSize = 64
	sumWorkers = 4
)

// SumsSize is the length of a checksum file of a disk of so many bytes.
func SumsSize(disk int64) int64 { return (disk + blob.BlockSize - 1) / blob.BlockSize * sumSize }

// Copy reads a disk once, for all requested outputs.
type Copy struct {
	From *OpenDisk
	To   *os.File // nil, or an empty file that becomes a raw copy, with holes for zeros
	Sums *os.File // nil, or an empty file for the checksums of the disk: see PushParent.Sums
	// Progress is called with the bytes done and the total, from one goroutine at a time; nil: not called.
	Progress func(Progress)
}

// Run copies and syncs the files.
func (c Copy) Run(ctx context.Context) error {
	size := c.From.Size()
	total, err := dataIn(c.From, 0, size)
	if err != nil {
		return fmt.Errorf("copy disk: %w", err)
	}
	meter, left := newMeter(c.Progress, total), total
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sumWorkers)
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
			defer meter.add(n)
			return c.chunk(at, off)
		})
	}
	err = group.Wait()
	for _, f := range []struct {
		file *os.File
		size int64
	}{{c.To, size}, {c.Sums, SumsSize(size)}} {
		if f.file != nil && err == nil {
			err = errors.Join(f.file.Truncate(f.size), f.file.Sync())
		}
	}
	if err != nil {
		return fmt.Errorf("copy disk: %w", err)
	}
	meter.skip(left)
	meter.finish()
	return nil
}

// chunk reads the range from off, which begins a chunk, to end.
func (c Copy) chunk(off, end int64) error {
	data := make([]byte, end-off)
	if n, err := c.From.ReadAt(data, off); n < len(data) {
		return fmt.Errorf("read at %d: %w", off+int64(n), err)
	}
	if c.Sums != nil {
		if _, err := c.Sums.WriteAt(sumsOf(data), off/blob.BlockSize*sumSize); err != nil {
			return err
		}
	}
	if c.To == nil {
		return nil
	}
	for at := 0; at < len(data); {
		n := blob.BlockSize * 16
		block := data[at:min(len(data), at+n)]
		if !zero(block) {
			if _, err := c.To.WriteAt(block, off+int64(at)); err != nil {
				return err
			}
		}
		at += n
	}
	return nil
}

var zeroBlock = make([]byte, 16*blob.BlockSize)

func zero(p []byte) bool { return bytes.Equal(p, zeroBlock[:len(p)]) }

// sumsOf returns the checksums of the blocks of data.
func sumsOf(data []byte) []byte {
	sums := make([]byte, 0, sumChunk)
	for len(data) > 0 {
		block := data[:min(len(data), blob.BlockSize)]
		data = data[len(block):]
		if zero(block) {
			sums = append(sums, zeroBlock[:sumSize]...)
			continue
		}
		if len(block) < blob.BlockSize {
			block = append(bytes.Clone(block), zeroBlock[:blob.BlockSize-len(block)]...)
		}
		sum := sha256.Sum256(block)
		sums = append(sums, sum[:sumSize]...)
	}
	return sums
}

// sumChanges are the blocks of a disk that differ from a checksum file.
type sumChanges struct {
	*OpenDisk
	sums     blob.FileSource
	at       int64 // end of the compared range of the disk
	disk     int64 // lower bound of the next data of the disk
	old      int64 // lower bound of the next data of the parent
	found    []blob.Change
	finished bool
}

var _ blob.Changes = (*sumChanges)(nil)

// compareSums compares a disk with the checksums of another one.
func compareSums(d *OpenDisk, sums *os.File) (*sumChanges, error) {
	st, err := sums.Stat()
	if err != nil {
		return nil, err
	}
	return &sumChanges{OpenDisk: d, sums: blob.FileSource{File: sums, Size: st.Size()}}, nil
}

// NextChange compares until a change is found.
func (c *sumChanges) NextChange(off int64) (blob.Change, bool, error) {
	for {
		for len(c.found) > 0 {
			if next := c.found[0]; next.Off+next.Len > off {
				return next, true, nil
			}
			c.found = c.found[1:]
		}
		if c.finished {
			return blob.Change{}, false, nil
		}
		if err := c.window(); err != nil {
			return blob.Change{}, false, err
		}
	}
}

// window compares the next chunks.
func (c *sumChanges) window() error {
	var found [windowSize][]blob.Change
	var group errgroup.Group
	group.SetLimit(sumWorkers)
	var err error
	for i := range found {
		var at int64
		if at, err = c.chunk(); err != nil || c.finished {
			break
		}
		group.Go(func() (err error) {
			found[i], err = c.compare(at)
			return err
		})
	}
	err = errors.Join(err, group.Wait())
	for _, changes := range found {
		c.found = append(c.found, changes...)
	}
	return err
}

// chunk returns the next chunk in which one of the two disks may have data.
func (c *sumChanges) chunk() (int64, error) {
	for _, side := range []struct {
		src   blob.Source
		next  *int64
		scale int64 // bytes of the disk for each of the side
	}{{c.OpenDisk, &c.disk, 1}, {c.sums, &c.old, blob.BlockSize / sumSize}} {
		if *side.next > c.at {
			continue
		}
		start, end, err := side.src.NextData(c.at / side.scale)
		if err != nil {
			return 0, err
		}
		*side.next = start * side.scale
		if start >= end {
			*side.next = c.Size()
		}
	}
	at := max(c.at, min(c.disk, c.old)/chunkSize*chunkSize)
	c.finished = at >= c.Size() || min(c.disk, c.old) >= c.Size()
	c.at = at + chunkSize
	return at, nil
}

// compare returns the differences in a chunk.
func (c *sumChanges) compare(at int64) ([]blob.Change, error) {
	data := make([]byte, min(chunkSize, c.Size()-at))
	if n, err := c.ReadAt(data, at); n < len(data) {
		return nil, fmt.Errorf("read at %d: %w", at+int64(n), err)
	}
	old := make([]byte, sumChunk)
	if _, err := c.sums.ReadAt(old, at/blob.BlockSize*sumSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read checksums of the pushed version: %w", err)
	}
	var found []blob.Change
	now := sumsOf(data)
	for i := 0; i < len(now); i += sumSize {
		sum := now[i : i+sumSize]
		if bytes.Equal(sum, old[i:i+sumSize]) {
			continue
		}
		off := int64(i / sumSize * blob.BlockSize)
		next := blob.Change{Off: at + off, Len: min(blob.BlockSize, int64(len(data))-off), Kind: blob.ChangeData}
		if zero(sum) {
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
