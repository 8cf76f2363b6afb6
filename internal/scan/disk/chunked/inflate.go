package chunked

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// zlibReaders pools decoders, whose tables and window are expensive to allocate.
var zlibReaders sync.Pool

// Inflate decodes a stream of RFC 1950 with its checksum, and returns the number of bytes, which may be less
// than out has. A stream with more is an error.
func Inflate(out, packed []byte) (int, error) {
	r, err := zlibReader(packed)
	if err != nil {
		return 0, err
	}
	defer zlibReaders.Put(r)
	return ReadToEnd(r, out)
}

func zlibReader(packed []byte) (io.Reader, error) {
	if r, ok := zlibReaders.Get().(io.Reader); ok {
		return r, r.(zlib.Resetter).Reset(bytes.NewReader(packed), nil)
	}
	return zlib.NewReader(bytes.NewReader(packed))
}

// ErrTooLong reports that more was decoded than its caller expects.
var ErrTooLong = errors.New("it decodes to too many bytes")

// ReadToEnd reads r to its end, where decoders verify their checksums, and returns the number of bytes: at most
// those of out.
func ReadToEnd(r io.Reader, out []byte) (int, error) {
	n := 0
	for {
		p := out[n:]
		if len(p) == 0 {
			p = make([]byte, 1)
		}
		k, err := r.Read(p)
		if n == len(out) && k > 0 {
			return n, ErrTooLong
		}
		if n += k; err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
	}
}
