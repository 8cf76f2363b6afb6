package apfs

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/lzfse"
)

// Compression of files: an attribute has a header of 16 bytes, and the content itself or
// the resource fork has it in blocks that are compressed one by one.
const (
	compressedMagic  = 0x636d7066 // "fpmc"
	compressedHeader = 16
	plainBlock       = 64 << 10
	mostPacked       = plainBlock * 2 // bytes of a compressed block: more than any has
	mostInline       = 4 << 20        // bytes of a file that is in its attribute
	mostBlocks       = 1 << 19        // of a file: 32 GiB
	mostPlain        = 16             // decompressed blocks that each generation of the cache holds

	kindPlain      = 1
	kindZlib       = 3 // and 4 in the resource fork, as with those below
	kindDedup      = 5
	kindLZVN       = 7
	kindRaw        = 9
	kindLZFSE      = 11
	kindLZBitmap   = 13
	storedByte     = 0x0f // low bits of the first byte of what is not compressed
	storedLZVNByte = 0x06
	blockByte      = 'b' // begins every block of LZFSE
)

type blockKey struct {
	inode uint64
	block int
}

// packed is the content of a compressed file. It is safe for concurrent use.
type packed struct {
	f      *FS
	inode  uint64
	kind   uint32
	size   int64
	src    io.ReaderAt // of the blocks: the attribute or the resource fork
	length int64       // of src
	base   int64       // where the blocks begin in src
	inline bool        // the content is one block in the attribute
	starts []uint32    // of each block, and the end of the last; little-endian tables
	pairs  bool        // starts has start and length of each block
}

// compression reads the header of a compressed file.
func (f *FS) compression(id uint64) (a attr, kind uint32, size int64, err error) {
	a, err = f.attr(id, attrCompressed)
	if err != nil {
		return a, 0, 0, damaged("file %d is compressed but has no %s: %v", id, attrCompressed, err)
	}
	head := make([]byte, compressedHeader)
	if n, err := a.ReadAt(head, 0); n < len(head) || le.Uint32(head) != compressedMagic {
		return a, 0, 0, damaged("file %d has no compression header (%v)", id, err)
	}
	kind, size = le.Uint32(head[4:]), int64(le.Uint64(head[8:]))
	if size < 0 || size > mostBlocks*plainBlock {
		return a, 0, 0, damaged("compressed file %d has %d bytes", id, uint64(size))
	}
	return a, kind, size, nil
}

// plainSize sets the size of a compressed file, where the inode does not have it. For a file with
// an unreadable header, opening it returns the error.
func (f *FS) plainSize(n *inode) {
	if n.sized {
		return
	}
	if _, _, size, err := f.compression(n.stat.Inode); err == nil {
		n.size, n.sized = size, true
	}
}

// compressed opens the content of a compressed file.
func (f *FS) compressed(n *inode) (*packed, error) {
	a, kind, size, err := f.compression(n.stat.Inode)
	if err != nil {
		return nil, err
	}
	p := &packed{
		f: f, inode: n.stat.Inode, kind: kind, size: size, src: a, length: a.size, base: compressedHeader,
		inline: true,
	}
	switch {
	case kind == kindPlain || kind&1 != 0 && kind <= kindLZBitmap && kind != kindDedup:
		if size > mostInline {
			return nil, damaged("compressed file %d has %d bytes in its attribute", p.inode, size)
		}
		return p, nil
	case kind == kindDedup:
		return nil, fmt.Errorf("the content of file %d is shared with others (compression 5): %w", p.inode,
			ErrUnsupported)
	case kind < kindZlib || kind > kindLZBitmap+1 || kind == kindDedup+1:
		return nil, fmt.Errorf("compression %d of file %d: %w", kind, p.inode, ErrUnsupported)
	}
	p.inline, p.kind = false, kind-1
	fork, err := f.attr(p.inode, attrFork)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("compressed file %d has no resource fork", p.inode)
	}
	if err != nil {
		return nil, err
	}
	p.src, p.length = fork, fork.size
	if err := p.table(); err != nil {
		return nil, fmt.Errorf("compressed file %d: %w", p.inode, err)
	}
	return p, nil
}

// blocks returns the number of blocks of the file.
func (p *packed) blocks() int { return int((p.size + plainBlock - 1) / plainBlock) }

// table reads the offsets of the blocks. The older kinds have a resource fork of the classic Mac
// OS, whose header is big-endian, with starts and lengths; the newer ones begin with the starts,
// and the end of the last block.
func (p *packed) table() error {
	p.base, p.pairs = 0, p.kind == kindZlib || p.kind == kindRaw
	at, words := int64(0), p.blocks()+1
	if p.pairs {
		head := make([]byte, 16)
		if err := p.read(head, 0); err != nil {
			return err
		}
		// Data of the only resource: a length, big-endian, then the table, little-endian.
		at = int64(binary.BigEndian.Uint32(head)) + 4
		p.base = at
		if err := p.read(head[:4], at); err != nil {
			return err
		}
		if n := int64(le.Uint32(head)); n < int64(p.blocks()) {
			return damaged("it has %d of %d blocks", n, p.blocks())
		}
		at, words = at+4, 2*p.blocks()
	}
	if int64(words)*4 > p.length-at {
		return damaged("its table of %d blocks does not fit", p.blocks())
	}
	b := make([]byte, 4*words)
	if err := p.read(b, at); err != nil {
		return err
	}
	p.starts = make([]uint32, words)
	for i := range p.starts {
		p.starts[i] = le.Uint32(b[4*i:])
	}
	return nil
}

// read fills b from the source.
func (p *packed) read(b []byte, off int64) error {
	if off < 0 || off > p.length || int64(len(b)) > p.length-off {
		return damaged("its compressed data ends after %d bytes", p.length)
	}
	if n, err := p.src.ReadAt(b, off); n < len(b) {
		return err
	}
	return nil
}

// ReadAt decompresses the blocks that it needs.
func (p *packed) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegative
	}
	done := 0
	for done < len(b) {
		if off >= p.size {
			return done, io.EOF
		}
		i, start := 0, int64(0)
		if !p.inline {
			i = int(off / plainBlock)
			start = int64(i) * plainBlock
		}
		plain, err := p.block(i)
		if err != nil {
			return done, fmt.Errorf("block %d of compressed file %d: %w", i, p.inode, err)
		}
		n := copy(b[done:], plain[off-start:])
		done += n
		off += int64(n)
	}
	return done, nil
}

// block returns a decompressed block, and checks its length.
func (p *packed) block(i int) ([]byte, error) {
	k := blockKey{p.inode, i}
	if b, ok := p.f.blocks.get(k); ok {
		return b, nil
	}
	from, length, size := p.base, p.length-p.base, p.size
	if !p.inline {
		size = min(plainBlock, p.size-int64(i)*plainBlock)
		if p.pairs {
			from, length = p.base+int64(p.starts[2*i]), int64(p.starts[2*i+1])
		} else {
			from, length = int64(p.starts[i]), int64(p.starts[i+1])-int64(p.starts[i])
		}
	}
	if most := int64(mostPacked); length < 0 || length > most && (!p.inline || length > 2*mostInline) {
		return nil, damaged("it has %d compressed bytes", length)
	}
	src := make([]byte, length)
	if err := p.read(src, from); err != nil {
		return nil, err
	}
	plain, err := expand(p.kind, src, int(size))
	if err != nil {
		return nil, err
	}
	if len(plain) != int(size) {
		return nil, damaged("it decompresses to %d bytes, not %d", len(plain), size)
	}
	if size <= plainBlock {
		p.f.blocks.add(k, plain)
	}
	return plain, nil
}

// expand decompresses one block to at most size bytes.
func expand(kind uint32, src []byte, size int) ([]byte, error) {
	if kind == kindPlain {
		return src, nil
	}
	if len(src) == 0 {
		return nil, damaged("it has no compressed bytes")
	}
	stored := src[0]&storedByte == storedByte
	switch kind {
	case kindZlib:
		if stored {
			return src[1:], nil
		}
		return inflate(src, size)
	case kindRaw:
		return src[1:], nil
	case kindLZVN:
		if src[0] == storedLZVNByte {
			return src[1:], nil
		}
		return decode(lzfse.DecodeLZVN, src, size)
	case kindLZFSE:
		if src[0] != blockByte {
			return src[1:], nil
		}
		return decode(lzfse.Decode, src, size)
	case kindLZBitmap:
		if stored {
			return src[1:], nil
		}
		return decode(lzfse.DecodeBitmap, src, size)
	}
	return nil, fmt.Errorf("compression %d: %w", kind, ErrUnsupported)
}

// decode runs a decoder into a new slice.
func decode(by func(dst, src []byte) (int, error), src []byte, size int) ([]byte, error) {
	out := make([]byte, size)
	n, err := by(out, src)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return out[:n], nil
}

func inflate(src []byte, size int) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, damaged("%v", err)
	}
	out := make([]byte, size)
	n, err := io.ReadFull(r, out)
	if err != nil {
		return nil, damaged("after %d bytes: %v", n, err)
	}
	return out, nil
}
