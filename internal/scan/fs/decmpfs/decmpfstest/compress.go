package decmpfstest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"

	"github.com/buildyard/buildyard/internal/scan/lzfse/lzfsetest"
)

var le = binary.LittleEndian

// Compress returns the attribute of a compressed file, and its resource fork if it has one. isStored leaves the blocks
// uncompressed, as writers do when compression gains nothing.
func Compress(kind uint32, data []byte, isStored bool) (attr, fork []byte) {
	attr = le.AppendUint32([]byte("fpmc"), kind)
	attr = le.AppendUint64(attr, uint64(len(data)))
	if kind == 1 {
		return append(attr, data...), nil
	}
	if kind%2 == 1 {
		return append(attr, pack(kind, data, isStored)...), nil
	}
	var blocks [][]byte
	for at := 0; at < len(data); at += 1 << 16 {
		blocks = append(blocks, pack(kind-1, data[at:min(at+1<<16, len(data))], isStored))
	}
	if kind == 4 || kind == 10 {
		return attr, resource(blocks)
	}
	at := 4 * (len(blocks) + 1)
	fork = le.AppendUint32(nil, uint32(at))
	for _, b := range blocks {
		at += len(b)
		fork = le.AppendUint32(fork, uint32(at))
	}
	return attr, append(fork, bytes.Join(blocks, nil)...)
}

// pack compresses one block.
func pack(kind uint32, b []byte, stored bool) []byte {
	mark := map[uint32]byte{3: 0xff, 7: 0x06, 9: 0xcc, 11: 0xff, 13: 0xff}[kind]
	if stored || kind == 9 {
		return append([]byte{mark}, b...)
	}
	switch kind {
	case 3:
		var out bytes.Buffer
		z := zlib.NewWriter(&out)
		if _, err := z.Write(b); err != nil {
			panic(err)
		}
		if err := z.Close(); err != nil {
			panic(err)
		}
		return out.Bytes()
	case 7:
		return lzfsetest.LZVN(b)
	case 11:
		return lzfsetest.LZFSE(b, lzfsetest.Packed)
	case 13:
		return lzfsetest.LZBitmap(b)
	}
	return nil
}

// resource writes a resource fork of the classic Mac OS with one resource, which has a
// table of blocks and the blocks.
func resource(blocks [][]byte) []byte {
	var table, data []byte
	table = le.AppendUint32(nil, uint32(len(blocks)))
	at := 4 + 8*len(blocks)
	for _, b := range blocks {
		table = le.AppendUint32(le.AppendUint32(table, uint32(at)), uint32(len(b)))
		at += len(b)
		data = append(data, b...)
	}
	const start = 256
	size := 4 + len(table) + len(data)
	fork := make([]byte, start)
	for i, v := range []int{start, start + size, size, 50} {
		binary.BigEndian.PutUint32(fork[4*i:], uint32(v))
	}
	fork = binary.BigEndian.AppendUint32(fork, uint32(size-4))
	fork = append(append(fork, table...), data...)
	return append(fork, resourceMap()...)
}

// resourceMap returns the end of such a fork: it lists the resource, of type "cmpf".
func resourceMap() []byte {
	b := make([]byte, 24)
	for _, v := range []uint16{28, 50, 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(b, "cmpf"...)
	for _, v := range []uint16{0, 10, 1, 0xffff} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return append(b, make([]byte, 50-len(b))...)
}
