package btrfs

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Kinds of compression.
const (
	packNone = 0
	packZlib = 1
	packLZO  = 2
	packZstd = 3
)

// unpack decompresses an extent. What is missing at its end is zero.
func unpack(packing byte, packed []byte, size int, sectorSize int64) ([]byte, error) {
	out := make([]byte, size)
	var err error
	switch packing {
	case packZlib:
		err = unpackZlib(out, packed)
	case packLZO:
		err = unpackLZO(out, packed, int(sectorSize))
	default:
		err = unpackZstd(out, packed)
	}
	return out, err
}

// zlibReaders has values of the type io.ReadCloser, which are also zlib.Resetter.
var zlibReaders sync.Pool

func unpackZlib(out, packed []byte) error {
	r, err := newZlibReader(packed)
	if err != nil {
		return damaged("invalid zlib: %v", err)
	}
	defer zlibReaders.Put(r)
	for n := 0; n < len(out) && err == nil; {
		var part int
		part, err = r.Read(out[n:])
		n += part
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return damaged("invalid zlib: %v", err)
	}
	return nil
}

func newZlibReader(packed []byte) (io.ReadCloser, error) {
	r, ok := zlibReaders.Get().(io.ReadCloser)
	if !ok {
		return zlib.NewReader(bytes.NewReader(packed))
	}
	return r, r.(zlib.Resetter).Reset(bytes.NewReader(packed), nil)
}

// zstdDecoder returns a decoder of frames, which is safe for concurrent use.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxUnpacked), zstd.WithDecodeAllCapLimit(true))
})

func unpackZstd(out, packed []byte) error {
	d, err := zstdDecoder()
	if err != nil {
		return err
	}
	end, err := zstdFrameSize(packed)
	if err == nil {
		_, err = d.DecodeAll(packed[:end], out[:0:len(out)])
	}
	if err != nil {
		return damaged("invalid zstd: %v", err)
	}
	return nil
}

// zstdFrameSize returns the size of the frame at the beginning of b, behind which there are zeros.
// Source: RFC 8878, 3.1.1.
func zstdFrameSize(b []byte) (int, error) {
	const blockHeader, checksum = 3, 4
	var h zstd.Header
	if err := h.Decode(b); err != nil {
		return 0, err
	}
	for at := h.HeaderSize; at+blockHeader <= len(b); {
		head := uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16
		size := int(head >> 3)
		if head>>1&3 == 1 {
			size = 1 // a byte that is repeated
		}
		at += blockHeader + size
		if head&1 == 0 {
			continue
		}
		if h.HasCheckSum {
			at += checksum
		}
		if at > len(b) {
			break
		}
		return at, nil
	}
	return 0, io.ErrUnexpectedEOF
}
