package blob

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// minSavingPercent is the minimum share of a frame, in percent, that compression must save to be used.
const minSavingPercent = 5

// decodeOverrun is how far behind a frame's end the decoder may write while it decodes: with that much space it
// copies in large steps to the end.
const decodeOverrun = 16

// The zstd coders are shared: EncodeAll and DecodeAll may be called from many goroutines. Checksums are off,
// since the index has a better one. One window per frame bounds the memory that a malicious frame can demand.
var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(MaxFrameSize))
	})
	zdecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxWindow(2*MaxFrameSize), zstd.WithDecoderMaxMemory(2*MaxFrameSize))
	})
)

// encodeFrame encodes a frame's bytes: compressed into buf when that saves enough, else unchanged. The result is valid
// as long as both slices are. Sections end at sectionEnds and with the frame. summed: with the sum of the decoded
// bytes.
func encodeFrame(raw, buf []byte, sectionEnds []int, summed bool) ([]byte, Frame, error) {
	enc, err := encoder()
	if err != nil {
		return nil, Frame{}, fmt.Errorf("zstd: %w", err)
	}
	f := Frame{RawSize: len(raw), Codec: CodecZstd}
	stored, begin := buf[:0], 0
	for _, end := range append(sectionEnds, len(raw)) {
		stored = enc.EncodeAll(raw[begin:end], stored)
		begin = end
	}
	switch {
	case len(stored)*100 > len(raw)*(100-minSavingPercent):
		stored, f.Codec = raw, CodecRaw
	case summed:
		f.Codec, f.RawSum = CodecZstdSummed, sha256.Sum256(raw)
	}
	f.StoredSize, f.Sum = len(stored), sha256.Sum256(stored)
	return stored, f, nil
}

// CheckDecoded compares the decoded bytes of a frame, which need not come from a layer file, with the sum in the index.
// They are refused where it has none.
func CheckDecoded(f Frame, raw []byte) error {
	sum, ok := f.DecodedSum()
	if !ok || len(raw) != f.RawSize || sha256.Sum256(raw) != sum {
		return corrupt("decoded frame at %d does not match its hash", f.Offset)
	}
	return nil
}

// zstdMagic begins every frame of zstd.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// NewDecodeBuffer returns a buffer for SumDecoded.
func NewDecodeBuffer() []byte { return make([]byte, 0, MaxFrameSize+decodeOverrun) }

// SumDecoded returns the sum of what a stored frame decodes to, as CodecZstdSummed has it; zero: it is not a frame of
// zstd that a layer can have. buf is of NewDecodeBuffer.
func SumDecoded(stored, buf []byte) (sum [sha256.Size]byte) {
	if !bytes.HasPrefix(stored, zstdMagic) {
		return sum
	}
	dec, err := zdecoder()
	if err != nil {
		return sum
	}
	raw, err := dec.DecodeAll(stored, buf[:0])
	if err != nil || len(raw) > MaxFrameSize {
		return sum
	}
	return sha256.Sum256(raw)
}

// DecodeFrame verifies the stored bytes of a frame and decodes them into buf, which is replaced if its capacity is
// below f.Raw. The result may be stored itself.
func DecodeFrame(f Frame, stored, buf []byte) ([]byte, error) {
	if err := verifyFrame(f, stored); err != nil {
		return nil, err
	}
	if f.Codec == CodecRaw {
		return stored, nil
	}
	return decodeVerified(f, stored, buf)
}

// verifyFrame verifies the stored bytes of a frame.
func verifyFrame(f Frame, stored []byte) error {
	if len(stored) != f.StoredSize || sha256.Sum256(stored) != f.Sum {
		return corrupt("frame at %d does not match its hash", f.Offset)
	}
	return nil
}

// decodeVerified decodes the verified bytes of a compressed frame into buf, as DecodeFrame does.
func decodeVerified(f Frame, stored, buf []byte) ([]byte, error) {
	if cap(buf) < f.RawSize {
		buf = make([]byte, 0, f.RawSize+decodeOverrun)
	}
	dec, err := zdecoder()
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	raw, err := dec.DecodeAll(stored, buf[:0:min(cap(buf), f.RawSize+decodeOverrun)])
	if err != nil {
		return nil, corrupt("frame at %d does not decode: %v", f.Offset, err)
	}
	if len(raw) != f.RawSize {
		return nil, corrupt("frame at %d decodes to %d bytes instead of %d", f.Offset, len(raw), f.RawSize)
	}
	return raw, nil
}
