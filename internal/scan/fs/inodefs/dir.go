package inodefs

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"sync"
)

// dir is an open directory.
type dir struct {
	info      fs.FileInfo
	list      func() ([]fs.DirEntry, error)
	remaining []fs.DirEntry
	loaded    bool
}

// OpenDir returns an open directory. list reads it; on an error it also returns the readable part.
func OpenDir(info fs.FileInfo, list func() ([]fs.DirEntry, error)) fs.ReadDirFile {
	return &dir{info: info, list: list}
}

func (d *dir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dir) Close() error               { return nil }
func (d *dir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.Name(), Err: errors.New("is a directory")}
}

// ReadDir returns the next n entries, or all that are left. All of a damaged directory that is readable is returned
// with the error, once and only as a whole.
func (d *dir) ReadDir(n int) ([]fs.DirEntry, error) {
	var err error
	if !d.loaded {
		d.remaining, err = d.list()
		if err != nil && (n > 0 || len(d.remaining) == 0) {
			return nil, err
		}
		d.loaded = true
	}
	count := len(d.remaining)
	if n > 0 {
		if count == 0 {
			return nil, io.EOF
		}
		count = min(count, n)
	}
	out := d.remaining[:count]
	d.remaining = d.remaining[count:]
	return out, err
}

const (
	ownerChunkBlocks = 64       // consecutive blocks
	maxOwnerBytes    = 32 << 20 // of those; owners beyond are unknown
)

// BlockOwners maps each block of directories to the number of its directory, which is not 0. Blocks that many
// directories share would make a walk as long as the product of both. The zero value is ready, and safe for
// concurrent use.
type BlockOwners[D uint32 | uint64] struct {
	mu      sync.Mutex // guards the field below
	byBlock map[uint64]*[ownerChunkBlocks]D
}

// Claim assigns a block to a directory, unless another one has it.
func (o *BlockOwners[D]) Claim(block uint64, dir D) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	group := o.byBlock[block/ownerChunkBlocks]
	if group == nil {
		if len(o.byBlock) >= maxOwnerBytes/binary.Size([ownerChunkBlocks]D{}) {
			return true
		}
		if o.byBlock == nil {
			o.byBlock = map[uint64]*[ownerChunkBlocks]D{}
		}
		group = &[ownerChunkBlocks]D{}
		o.byBlock[block/ownerChunkBlocks] = group
	}
	owner := &group[block%ownerChunkBlocks]
	if *owner == 0 {
		*owner = dir
	}
	return *owner == dir
}
