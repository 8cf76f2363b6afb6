package blob

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// saving is the minimum share of a frame, in percent, that compression must save to be used.
const saving = 5

// overrun is how far behind a frame's end the decoder may write while it decodes: with that much space it
// copies in large steps to the end.
const overrun = 16

// The zstd coders are shared: EncodeAll and DecodeAll may be called from many goroutines. Checksums are off,
// since the index has a better one. One window per frame bounds the memory that a malicious frame can demand.
var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(FrameSize))
	})
	zdecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxWindow(2*FrameSize), zstd.WithDecoderMaxMemory(2*FrameSize))
	})
)

// pack encodes a frame's bytes: compressed into buf when that saves enough, else unchanged. The result is valid
// as long as both slices are.
func pack(raw, buf []byte) ([]byte, Frame, error) {
	enc, err := encoder()
	if err != nil {
		return nil, Frame{}, fmt.Errorf("zstd: %w", err)
	}
	stored, codec := enc.EncodeAll(raw, buf[:0]), CodecZstd
	if len(stored)*100 > len(raw)*(100-saving) {
		stored, codec = raw, CodecRaw
	}
	return stored, Frame{Stored: len(stored), Raw: len(raw), Codec: codec, Sum: sha256.Sum256(stored)}, nil
}

// Unpack verifies the stored bytes of a frame and decodes them into buf, which is replaced if its capacity is
// below f.Raw. The result may be stored itself.
func Unpack(f Frame, stored, buf []byte) ([]byte, error) {
	if len(stored) != f.Stored || sha256.Sum256(stored) != f.Sum {
		return nil, corrupt("frame at %d does not match its hash", f.Offset)
	}
	if f.Codec == CodecRaw {
		return stored, nil
	}
	if cap(buf) < f.Raw {
		buf = make([]byte, 0, f.Raw+overrun)
	}
	dec, err := zdecoder()
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	raw, err := dec.DecodeAll(stored, buf[:0:min(cap(buf), f.Raw+overrun)])
	if err != nil {
		return nil, corrupt("frame at %d does not decode: %v", f.Offset, err)
	}
	if len(raw) != f.Raw {
		return nil, corrupt("frame at %d decodes to %d bytes instead of %d", f.Offset, len(raw), f.Raw)
	}
	return raw, nil
}
