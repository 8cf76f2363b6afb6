// Package apfstest writes APFS containers for tests: features that the available images lack, such
// as sealed volumes, snapshots, every kind of compression and damaged checkpoints. It was written
// from the format and shares no code with the reader that it tests.
//
// It does not write what only a writer needs, such as the map of free space, so that no system
// should mount its output for writing. It is for tests only.
//
// Invariant: the same description always produces the same bytes.
package apfstest

import (
	"encoding/binary"
	"io"
)

var le = binary.LittleEndian

// BlockSize is the block size of every container, in bytes.
const BlockSize = 4096

// Types of objects and flags of types.
const (
	typeKeys = 0x6b657973 // "keys"
	typeRecs = 0x72656373 // "recs"

	typeContainer = 0x01
	typeTree      = 0x02
	typeNode      = 0x03
	typeOMap      = 0x0b
	typeMap       = 0x0c
	typeVolume    = 0x0d
	typeCatalog   = 0x0e
	typeRefs      = 0x0f
	typeSnapshots = 0x10
	typeIntegrity = 0x1e
	typeExtents   = 0x1f

	physical  = 0x40000000
	ephemeral = 0x80000000
	noHeader  = 0x20000000
)

// writer appends blocks to a container.
type writer struct {
	w    io.WriterAt
	next uint64 // block
	err  error

	cipher *cipher  // of the volume that is being written; nil: it is not encrypted
	bag    [][]byte // entries of the container's keybag

	rootHash    [32]byte // of the root of the last tree
	catalogHash [32]byte // and of the last catalog
}

// alloc allocates blocks.
func (w *writer) alloc(n int) uint64 {
	at := w.next
	w.next += uint64(n)
	return at
}

// put writes bytes at a block.
func (w *writer) put(block uint64, b []byte) {
	if _, err := w.w.WriteAt(b, int64(block)*BlockSize); err != nil && w.err == nil {
		w.err = err
	}
}

// header is the header of an object, without its checksum.
type header struct {
	id, xid   uint64
	kind, sub uint32
}

// object writes a block with its header and checksum.
func (w *writer) object(block uint64, h header, b []byte) { w.put(block, seal(h, b)) }

// seal writes a header and its checksum.
func seal(h header, b []byte) []byte {
	le.PutUint64(b[8:], h.id)
	le.PutUint64(b[16:], h.xid)
	le.PutUint32(b[24:], h.kind)
	le.PutUint32(b[28:], h.sub)
	Seal(b)
	return b
}

// Seal writes the checksum of an object after a test changed it.
func Seal(b []byte) {
	const mod = 1<<32 - 1
	var a, c uint64
	for i := 8; i < len(b); i += 4 {
		a = (a + uint64(le.Uint32(b[i:]))) % mod
		c = (c + a) % mod
	}
	low := mod - (a+c)%mod
	le.PutUint64(b, (mod-(a+low)%mod)<<32|low)
}
