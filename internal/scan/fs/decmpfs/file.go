package decmpfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	headerMagic     = 0x636d7066 // "fpmc"
	headerSize      = 16
	plainBlockBytes = 64 << 10
	maxPackedBytes  = plainBlockBytes * 2 // bytes of a compressed block: more than any has
	maxInlineBytes  = 4 << 20             // bytes of a file that is in its attribute
	maxFileBlocks   = 1 << 19             // of a file: 32 GiB
	cacheBytes      = 32 * plainBlockBytes
	maxCachedBytes  = cacheBytes / 2 // of one block: a larger one is kept with its file
)

var le = binary.LittleEndian

// Source has bytes of a file: those of an attribute, or of its resource fork.
type Source struct {
	io.ReaderAt
	Size int64
}

// Header is the beginning of the attribute.
type Header struct {
	Size int64 // of the file in bytes
	kind uint32
}

// ReadHeader reads the beginning of the attribute of a compressed file.
func ReadHeader(attr Source) (Header, error) {
	b := make([]byte, headerSize)
	if n, err := attr.ReadAt(b, 0); n < len(b) || le.Uint32(b) != headerMagic {
		return Header{}, damaged("it has no compression header (%v)", err)
	}
	h := Header{kind: le.Uint32(b[4:]), Size: int64(le.Uint64(b[8:]))}
	if h.Size < 0 || h.Size > maxFileBlocks*plainBlockBytes {
		return Header{}, damaged("it has %d bytes", uint64(h.Size))
	}
	return h, nil
}

// Cache keeps decompressed blocks of the files of a file system, which are known by a number. It is safe for
// concurrent use.
type Cache struct {
	blocks *inodefs.Cache[blockKey, []byte]
}

type blockKey struct {
	file  uint64
	block int
}

// NewCache keeps 2 MiB of blocks.
func NewCache() *Cache {
	return &Cache{inodefs.NewCache[blockKey](cacheBytes, func(b []byte) int { return len(b) })}
}

// File is the content of a compressed file. It is safe for concurrent use.
type File struct {
	cache             *Cache
	number            uint64
	kind              uint32
	size              int64
	src               Source // of the blocks: the attribute or the resource fork
	blocksOffset      int64  // where the blocks begin in src
	inline            bool   // the content is one block in the attribute
	blockOffsets      []uint32
	offsetLengthPairs bool // blockOffsets has offset and length of each block; else each offset, and the last end

	large atomic.Pointer[[]byte] // the only block, if it is too large for the cache; nil: not read yet
}

var _ io.ReaderAt = (*File)(nil)

// Open opens the content of a compressed file with an attribute. fork returns its resource fork, or fs.ErrNotExist; it
// is called if the content is there. number is that of the file in the cache.
func Open(attr Source, fork func() (Source, error), cache *Cache, number uint64) (*File, error) {
	h, err := ReadHeader(attr)
	if err != nil {
		return nil, err
	}
	f := &File{
		cache: cache, number: number, kind: h.kind, size: h.Size, src: attr, blocksOffset: headerSize, inline: true,
	}
	switch {
	case h.kind == kindPlain || h.kind&1 != 0 && h.kind <= kindLZBitmap && h.kind != kindDedup:
		if h.Size > maxInlineBytes {
			return nil, damaged("it has %d bytes in its attribute", h.Size)
		}
		return f, nil
	case h.kind == kindDedup:
		return nil, fmt.Errorf("its content is deduplicated (kind 5): %w", ErrUnsupported)
	case h.kind < kindZlib || h.kind > kindLZBitmap+1 || h.kind == kindDedup+1:
		return nil, fmt.Errorf("kind %d: %w", h.kind, ErrUnsupported)
	}
	f.inline, f.kind = false, h.kind-1
	f.src, err = fork()
	if errors.Is(err, fs.ErrNotExist) {
		err = damaged("it has no resource fork")
	}
	if err != nil {
		return nil, err
	}
	return f, f.readBlockTable()
}

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// blockCount returns the number of blocks of the file.
func (f *File) blockCount() int {
	return int((f.size + plainBlockBytes - 1) / plainBlockBytes)
}

// readBlockTable reads the offsets of the blocks. The older kinds have a resource fork of the classic Mac
// OS, whose header is big-endian, with starts and lengths; the newer ones begin with the starts,
// and the end of the last block.
func (f *File) readBlockTable() error {
	f.blocksOffset, f.offsetLengthPairs = 0, f.kind == kindZlib || f.kind == kindRaw
	at, words := int64(0), f.blockCount()+1
	if f.offsetLengthPairs {
		head := make([]byte, 16)
		if err := f.readSource(head, 0); err != nil {
			return err
		}
		// Data of the only resource: a length, big-endian, then the table, little-endian.
		at = int64(binary.BigEndian.Uint32(head)) + 4
		f.blocksOffset = at
		if err := f.readSource(head[:4], at); err != nil {
			return err
		}
		if n := int64(le.Uint32(head)); n < int64(f.blockCount()) {
			return damaged("it has %d of %d blocks", n, f.blockCount())
		}
		at, words = at+4, 2*f.blockCount()
	}
	if int64(words)*4 > f.src.Size-at {
		return damaged("its table of %d blocks does not fit", f.blockCount())
	}
	b := make([]byte, 4*words)
	if err := f.readSource(b, at); err != nil {
		return err
	}
	f.blockOffsets = make([]uint32, words)
	for i := range f.blockOffsets {
		f.blockOffsets[i] = le.Uint32(b[4*i:])
	}
	return nil
}

// readSource fills b from the source.
func (f *File) readSource(b []byte, off int64) error {
	if off < 0 || off > f.src.Size || int64(len(b)) > f.src.Size-off {
		return damaged("its compressed data ends after %d bytes", f.src.Size)
	}
	if n, err := f.src.ReadAt(b, off); n < len(b) {
		return err
	}
	return nil
}

// ReadAt decompresses the blocks that it needs.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegativeOffset
	}
	done := 0
	for done < len(b) {
		if off >= f.size {
			return done, io.EOF
		}
		i, start := 0, int64(0)
		if !f.inline {
			i = int(off / plainBlockBytes)
			start = int64(i) * plainBlockBytes
		}
		plain, err := f.readBlock(i)
		if err != nil {
			return done, fmt.Errorf("compressed block %d: %w", i, err)
		}
		n := copy(b[done:], plain[off-start:])
		done += n
		off += int64(n)
	}
	return done, nil
}

// readBlock returns a decompressed block, and checks its length.
func (f *File) readBlock(i int) ([]byte, error) {
	k := blockKey{f.number, i}
	if b, ok := f.cache.blocks.Get(k); ok {
		return b, nil
	}
	if b := f.large.Load(); b != nil {
		return *b, nil
	}
	from, length, size := f.blocksOffset, f.src.Size-f.blocksOffset, f.size
	if !f.inline {
		size = min(plainBlockBytes, f.size-int64(i)*plainBlockBytes)
		if f.offsetLengthPairs {
			from, length = f.blocksOffset+int64(f.blockOffsets[2*i]), int64(f.blockOffsets[2*i+1])
		} else {
			from, length = int64(f.blockOffsets[i]), int64(f.blockOffsets[i+1])-int64(f.blockOffsets[i])
		}
	}
	if length < 0 || length > maxPackedBytes && (!f.inline || length > 2*maxInlineBytes) {
		return nil, damaged("it has %d compressed bytes", length)
	}
	src := make([]byte, length)
	if err := f.readSource(src, from); err != nil {
		return nil, err
	}
	plain, err := decompress(f.kind, src, int(size))
	if err != nil {
		return nil, err
	}
	if len(plain) != int(size) {
		return nil, damaged("it decompresses to %d bytes, not %d", len(plain), size)
	}
	if size > maxCachedBytes {
		f.large.Store(&plain)
	} else {
		f.cache.blocks.Put(k, plain)
	}
	return plain, nil
}
