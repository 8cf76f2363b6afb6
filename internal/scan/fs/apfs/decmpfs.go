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
	compressedMagic      = 0x636d7066 // "fpmc"
	compressedHeaderSize = 16
	plainBlockBytes      = 64 << 10
	maxPackedBlockBytes  = plainBlockBytes * 2 // bytes of a compressed block: more than any has
	maxInlineBytes       = 4 << 20             // bytes of a file that is in its attribute
	maxFileBlocks        = 1 << 19             // of a file: 32 GiB
	cachedPlainBlocks    = 16                  // decompressed blocks that each generation of the cache holds

	compressionPlain    = 1
	compressionZlib     = 3 // and 4 in the resource fork, as with those below
	compressionDedup    = 5
	compressionLZVN     = 7
	compressionRaw      = 9
	compressionLZFSE    = 11
	compressionLZBitmap = 13
	storedByte          = 0x0f // low bits of the first byte of what is not compressed
	storedLZVNByte      = 0x06
	blockByte           = 'b' // begins every block of LZFSE
)

type plainBlockKey struct {
	inodeNumber uint64
	block       int
}

// compressedFile is the content of a compressed file. It is safe for concurrent use.
type compressedFile struct {
	fs                *FS
	inodeNumber       uint64
	compression       uint32
	size              int64
	src               io.ReaderAt // of the blocks: the attribute or the resource fork
	srcBytes          int64       // of src
	blocksOffset      int64       // where the blocks begin in src
	inline            bool        // the content is one block in the attribute
	blockOffsets      []uint32    // of each block, and the end of the last; little-endian tables
	offsetLengthPairs bool        // blockOffsets has offset and length of each block
}

// readCompressionHeader reads the header of a compressed file.
func (f *FS) readCompressionHeader(id uint64) (a xattr, kind uint32, size int64, err error) {
	a, err = f.readXattr(id, attrCompressed)
	if err != nil {
		return a, 0, 0, damaged("file %d is compressed but has no %s: %v", id, attrCompressed, err)
	}
	head := make([]byte, compressedHeaderSize)
	if n, err := a.ReadAt(head, 0); n < len(head) || le.Uint32(head) != compressedMagic {
		return a, 0, 0, damaged("file %d has no compression header (%v)", id, err)
	}
	kind, size = le.Uint32(head[4:]), int64(le.Uint64(head[8:]))
	if size < 0 || size > maxFileBlocks*plainBlockBytes {
		return a, 0, 0, damaged("compressed file %d has %d bytes", id, uint64(size))
	}
	return a, kind, size, nil
}

// setPlainSize sets the size of a compressed file, where the inode does not have it. For a file with
// an unreadable header, opening it returns the error.
func (f *FS) setPlainSize(n *inode) {
	if n.sizeIsPlain {
		return
	}
	if _, _, size, err := f.readCompressionHeader(n.stat.Inode); err == nil {
		n.size, n.sizeIsPlain = size, true
	}
}

// openCompressed opens the content of a compressed file.
func (f *FS) openCompressed(n *inode) (*compressedFile, error) {
	a, kind, size, err := f.readCompressionHeader(n.stat.Inode)
	if err != nil {
		return nil, err
	}
	p := &compressedFile{
		fs: f, inodeNumber: n.stat.Inode, compression: kind, size: size, src: a, srcBytes: a.size,
		blocksOffset: compressedHeaderSize,
		inline:       true,
	}
	switch {
	case kind == compressionPlain || kind&1 != 0 && kind <= compressionLZBitmap && kind != compressionDedup:
		if size > maxInlineBytes {
			return nil, damaged("compressed file %d has %d bytes in its attribute", p.inodeNumber, size)
		}
		return p, nil
	case kind == compressionDedup:
		return nil, fmt.Errorf("content of file %d is deduplicated (compression type 5): %w", p.inodeNumber,
			ErrUnsupported)
	case kind < compressionZlib || kind > compressionLZBitmap+1 || kind == compressionDedup+1:
		return nil, fmt.Errorf("compression type %d of file %d: %w", kind, p.inodeNumber, ErrUnsupported)
	}
	p.inline, p.compression = false, kind-1
	fork, err := f.readXattr(p.inodeNumber, attrResourceFork)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("compressed file %d has no resource fork", p.inodeNumber)
	}
	if err != nil {
		return nil, err
	}
	p.src, p.srcBytes = fork, fork.size
	if err := p.readBlockTable(); err != nil {
		return nil, fmt.Errorf("read compressed file %d: %w", p.inodeNumber, err)
	}
	return p, nil
}

// blockCount returns the number of blocks of the file.
func (p *compressedFile) blockCount() int {
	return int((p.size + plainBlockBytes - 1) / plainBlockBytes)
}

// readBlockTable reads the offsets of the blocks. The older kinds have a resource fork of the classic Mac
// OS, whose header is big-endian, with starts and lengths; the newer ones begin with the starts,
// and the end of the last block.
func (p *compressedFile) readBlockTable() error {
	p.blocksOffset, p.offsetLengthPairs = 0, p.compression == compressionZlib || p.compression == compressionRaw
	at, words := int64(0), p.blockCount()+1
	if p.offsetLengthPairs {
		head := make([]byte, 16)
		if err := p.readSource(head, 0); err != nil {
			return err
		}
		// Data of the only resource: a length, big-endian, then the table, little-endian.
		at = int64(binary.BigEndian.Uint32(head)) + 4
		p.blocksOffset = at
		if err := p.readSource(head[:4], at); err != nil {
			return err
		}
		if n := int64(le.Uint32(head)); n < int64(p.blockCount()) {
			return damaged("it has %d of %d blocks", n, p.blockCount())
		}
		at, words = at+4, 2*p.blockCount()
	}
	if int64(words)*4 > p.srcBytes-at {
		return damaged("its table of %d blocks does not fit", p.blockCount())
	}
	b := make([]byte, 4*words)
	if err := p.readSource(b, at); err != nil {
		return err
	}
	p.blockOffsets = make([]uint32, words)
	for i := range p.blockOffsets {
		p.blockOffsets[i] = le.Uint32(b[4*i:])
	}
	return nil
}

// readSource fills b from the source.
func (p *compressedFile) readSource(b []byte, off int64) error {
	if off < 0 || off > p.srcBytes || int64(len(b)) > p.srcBytes-off {
		return damaged("its compressed data ends after %d bytes", p.srcBytes)
	}
	if n, err := p.src.ReadAt(b, off); n < len(b) {
		return err
	}
	return nil
}

// ReadAt decompresses the blocks that it needs.
func (p *compressedFile) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegativeOffset
	}
	done := 0
	for done < len(b) {
		if off >= p.size {
			return done, io.EOF
		}
		i, start := 0, int64(0)
		if !p.inline {
			i = int(off / plainBlockBytes)
			start = int64(i) * plainBlockBytes
		}
		plain, err := p.decompressBlock(i)
		if err != nil {
			return done, fmt.Errorf("read block %d of compressed file %d: %w", i, p.inodeNumber, err)
		}
		n := copy(b[done:], plain[off-start:])
		done += n
		off += int64(n)
	}
	return done, nil
}

// decompressBlock returns a decompressed block, and checks its length.
func (p *compressedFile) decompressBlock(i int) ([]byte, error) {
	k := plainBlockKey{p.inodeNumber, i}
	if b, ok := p.fs.blockCache.get(k); ok {
		return b, nil
	}
	from, length, size := p.blocksOffset, p.srcBytes-p.blocksOffset, p.size
	if !p.inline {
		size = min(plainBlockBytes, p.size-int64(i)*plainBlockBytes)
		if p.offsetLengthPairs {
			from, length = p.blocksOffset+int64(p.blockOffsets[2*i]), int64(p.blockOffsets[2*i+1])
		} else {
			from, length = int64(p.blockOffsets[i]), int64(p.blockOffsets[i+1])-int64(p.blockOffsets[i])
		}
	}
	if most := int64(maxPackedBlockBytes); length < 0 || length > most && (!p.inline || length > 2*maxInlineBytes) {
		return nil, damaged("it has %d compressed bytes", length)
	}
	src := make([]byte, length)
	if err := p.readSource(src, from); err != nil {
		return nil, err
	}
	plain, err := decompress(p.compression, src, int(size))
	if err != nil {
		return nil, err
	}
	if len(plain) != int(size) {
		return nil, damaged("it decompresses to %d bytes, not %d", len(plain), size)
	}
	if size <= plainBlockBytes {
		p.fs.blockCache.add(k, plain)
	}
	return plain, nil
}

// decompress decompresses one block to at most size bytes.
func decompress(kind uint32, src []byte, size int) ([]byte, error) {
	if kind == compressionPlain {
		return src, nil
	}
	if len(src) == 0 {
		return nil, damaged("it has no compressed bytes")
	}
	stored := src[0]&storedByte == storedByte
	switch kind {
	case compressionZlib:
		if stored {
			return src[1:], nil
		}
		return inflate(src, size)
	case compressionRaw:
		return src[1:], nil
	case compressionLZVN:
		if src[0] == storedLZVNByte {
			return src[1:], nil
		}
		return decodeInto(lzfse.DecodeLZVN, src, size)
	case compressionLZFSE:
		if src[0] != blockByte {
			return src[1:], nil
		}
		return decodeInto(lzfse.Decode, src, size)
	case compressionLZBitmap:
		if stored {
			return src[1:], nil
		}
		return decodeInto(lzfse.DecodeBitmap, src, size)
	}
	return nil, fmt.Errorf("compression %d: %w", kind, ErrUnsupported)
}

// decodeInto runs a decoder into a new slice.
func decodeInto(by func(dst, src []byte) (int, error), src []byte, size int) ([]byte, error) {
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
