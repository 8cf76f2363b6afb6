package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// Limits of a part, the unit of an upload.
const (
	MaxPartSize   = 32 << 20 // most frame bytes in a part
	MaxPartFrames = 8192

	partMagic      = "BYPART1\n"
	partEntrySize  = 4 + sha256.Size
	partHeaderSize = len(partMagic) + 4
)

// PartFrame describes one frame of a part.
type PartFrame struct {
	StoredSize int
	Sum        [sha256.Size]byte
}

// PartHeader returns the bytes before the frames of a part.
func PartHeader(frames []PartFrame) []byte {
	b := make([]byte, 0, partHeaderSize+len(frames)*partEntrySize)
	b = append(b, partMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(frames)))
	for _, f := range frames {
		b = binary.LittleEndian.AppendUint32(b, uint32(f.StoredSize))
		b = append(b, f.Sum[:]...)
	}
	return b
}

// PartSum names a part by its frames: the sha256, in hex, of their hashes one after the other.
func PartSum(frames []PartFrame) string {
	h := sha256.New()
	for _, f := range frames {
		h.Write(f.Sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// PartReader reads a part and returns only bytes of verified frames.
type PartReader struct {
	src       io.Reader
	frames    []PartFrame
	dataBytes int64
	nextFrame int    // frame to be read next
	frameBuf  []byte // stored bytes of the frame that is read
	verified  []byte // verified and not returned yet
}

// NewPartReader reads the header of a part.
func NewPartReader(r io.Reader) (*PartReader, error) {
	var head [partHeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	count := binary.LittleEndian.Uint32(head[len(partMagic):])
	if string(head[:len(partMagic)]) != partMagic || count == 0 || count > MaxPartFrames {
		return nil, corrupt("part has no valid header")
	}
	table := make([]byte, int(count)*partEntrySize)
	if _, err := io.ReadFull(r, table); err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	p := &PartReader{src: r, frames: make([]PartFrame, count)}
	for i := range p.frames {
		entry := table[i*partEntrySize:]
		n := binary.LittleEndian.Uint32(entry)
		if n == 0 || n > MaxFrameSize {
			return nil, corrupt("part has a frame of %d bytes", n)
		}
		p.frames[i] = PartFrame{StoredSize: int(n), Sum: [sha256.Size]byte(entry[4:partEntrySize])}
		p.dataBytes += int64(n)
	}
	if p.dataBytes > MaxPartSize {
		return nil, corrupt("part of %d bytes is longer than %d", p.dataBytes, MaxPartSize)
	}
	return p, nil
}

// Frames are the part's frames.
func (p *PartReader) Frames() []PartFrame { return p.frames }

// DataBytes is the number of bytes of all frames.
func (p *PartReader) DataBytes() int64 { return p.dataBytes }

// Read returns verified bytes. A frame that does not match its hash ends it with ErrCorrupt.
func (p *PartReader) Read(b []byte) (int, error) {
	if len(p.verified) == 0 {
		if p.nextFrame == len(p.frames) {
			return 0, io.EOF
		}
		if err := p.readFrameInto(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.verified)
	p.verified = p.verified[n:]
	return n, nil
}

func (p *PartReader) readFrameInto() error {
	f := p.frames[p.nextFrame]
	if p.frameBuf == nil {
		p.frameBuf = make([]byte, MaxFrameSize)
	}
	buf := p.frameBuf[:f.StoredSize]
	if _, err := io.ReadFull(p.src, buf); err != nil {
		return fmt.Errorf("read part: %w", err)
	}
	if sha256.Sum256(buf) != f.Sum {
		return corrupt("frame %d of the part does not match its hash", p.nextFrame)
	}
	p.nextFrame++
	p.verified = buf
	return nil
}

var _ io.Reader = (*PartReader)(nil)

// WriteTo writes all verified bytes to w without an intermediate copy.
func (p *PartReader) WriteTo(w io.Writer) (int64, error) {
	var sum int64
	for len(p.verified) > 0 || p.nextFrame < len(p.frames) {
		if len(p.verified) == 0 {
			if err := p.readFrameInto(); err != nil {
				return sum, err
			}
		}
		n, err := w.Write(p.verified)
		p.verified = p.verified[n:]
		sum += int64(n)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

var _ io.WriterTo = (*PartReader)(nil)
