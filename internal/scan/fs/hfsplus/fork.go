package hfsplus

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Kinds of forks.
const (
	dataFork     = 0
	resourceFork = 0xff
)

const (
	forkExtents  = 8 // of a fork in its record, and in a record of the tree of further extents
	extentsBytes = forkExtents * 8
	forkBytes    = 16 + extentsBytes
)

// extent is contiguous blocks of the volume.
type extent struct{ start, count uint32 }

// forkData is what a record has of a fork.
type forkData struct {
	size    int64 // bytes; below zero: more than any has
	extents [forkExtents]extent
}

// parseFork reads the 80 bytes of a fork in a record.
func parseFork(b []byte) forkData {
	return forkData{size: int64(be.Uint64(b)), extents: parseExtents(b[16:forkBytes])}
}

// firstBlocks returns the number of blocks in the extents of the record.
func (d forkData) firstBlocks() (n int64) {
	for _, e := range d.extents {
		n += int64(e.count)
	}
	return n
}

func parseExtents(b []byte) (out [forkExtents]extent) {
	for i := range out {
		out[i] = extent{be.Uint32(b[8*i:]), be.Uint32(b[8*i+4:])}
	}
	return out
}

// fork reads the bytes of a fork. It is safe for concurrent use.
type fork struct {
	fs   *FS
	file uint32
	kind byte
	forkData
	lastRun atomic.Pointer[blockRun]
}

// openFork returns the fork of a file. A volume has no holes, so that no fork is larger than it.
func (f *FS) openFork(file uint32, kind byte, d forkData) (*fork, error) {
	if d.size < 0 || d.size > int64(f.header.blockCount)<<f.header.blockLog {
		return nil, damaged("file %d has %d bytes on a volume of %d blocks", file, uint64(d.size), f.header.blockCount)
	}
	return &fork{fs: f, file: file, kind: kind, forkData: d}, nil
}

// ReadAt reads at most up to the end of the last block; the caller knows the size.
func (k *fork) ReadAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		part, err := k.readInRun(p[n:], off+int64(n))
		n += part
		if err != nil {
			return n, fmt.Errorf("file %d: %w", k.file, err)
		}
	}
	return len(p), nil
}

// readInRun reads within one run.
func (k *fork) readInRun(p []byte, off int64) (int, error) {
	log := k.fs.header.blockLog
	block := off >> log
	if block >= int64(k.fs.header.blockCount) {
		return 0, io.EOF
	}
	r, err := k.runAt(uint32(block))
	if err != nil {
		return 0, err
	}
	within := off - int64(r.first)<<log
	p = p[:min(int64(len(p)), int64(r.count)<<log-within)]
	n, err := k.fs.disk.ReadAt(p, int64(r.start)<<log+within)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = damaged("its block %d is past the end of the disk", block)
	}
	return n, err
}

// blockRun is an extent and the block of the fork at which it begins.
type blockRun struct {
	first uint32
	extent
}

func (r *blockRun) contains(block uint32) bool { return block >= r.first && block-r.first < r.count }

// runAt returns the run of a block; it is mostly the most recently used one.
func (k *fork) runAt(block uint32) (*blockRun, error) {
	if r := k.lastRun.Load(); r != nil && r.contains(block) {
		return r, nil
	}
	r, ok := runIn(k.extents, 0, block)
	if !ok {
		further, first, err := k.fs.furtherExtents(k, block)
		if err != nil {
			return nil, err
		}
		if r, ok = runIn(further, first, block); !ok {
			return nil, damaged("its block %d is nowhere", block)
		}
	}
	if count := k.fs.header.blockCount; r.count > count || r.start > count-r.count {
		return nil, damaged("its blocks %d+%d are past the end of the volume", r.start, r.count)
	}
	k.lastRun.Store(r)
	return r, nil
}

// runIn returns the run with a block among extents that begin at a block of the fork.
func runIn(list [forkExtents]extent, first, block uint32) (*blockRun, bool) {
	at := uint64(first)
	for _, e := range list {
		if e.count == 0 || at > uint64(block) {
			break
		}
		if uint64(block) < at+uint64(e.count) {
			return &blockRun{uint32(at), e}, true
		}
		at += uint64(e.count)
	}
	return nil, false
}

// furtherExtents returns the record with a block of the tree of further extents, and the block at which it begins.
// That tree itself has none there, so that looking one up ends.
func (f *FS) furtherExtents(k *fork, block uint32) (list [forkExtents]extent, first uint32, err error) {
	if f.extents == nil || k.file == extentsFile {
		return list, 0, damaged("its block %d is not in its first extents, and there are no further ones", block)
	}
	at, err := f.extents.find(func(key []byte) (int, error) { return compareExtentKey(key, k, block) })
	if err != nil {
		return list, 0, err
	}
	if at.node == nil {
		return list, 0, damaged("its block %d is nowhere", block)
	}
	key, value, err := at.record()
	switch {
	case err != nil:
		return list, 0, err
	case be.Uint32(key[2:]) != k.file || key[0] != k.kind:
		return list, 0, damaged("its block %d is nowhere", block)
	case len(value) < extentsBytes:
		return list, 0, damaged("a record of its further extents has %d bytes", len(value))
	}
	return parseExtents(value), be.Uint32(key[6:]), nil
}

// extentKeySize is that of a key of further extents: the kind of the fork, an unused byte, the file, and the block at
// which they begin.
const extentKeySize = 10

// compareExtentKey compares a key with that of a block of a fork.
func compareExtentKey(key []byte, k *fork, block uint32) (int, error) {
	if len(key) < extentKeySize {
		return 0, damaged("a key of the tree of extents has %d bytes", len(key))
	}
	return cmp.Or(cmp.Compare(be.Uint32(key[2:]), k.file), cmp.Compare(key[0], k.kind),
		cmp.Compare(be.Uint32(key[6:]), block)), nil
}
