package lzfse

// LZBITMAP: chunks, each with a header, literals, the distances, the bitmaps and the numbers of the
// bitmaps in separate areas. A bitmap marks which of eight bytes are literals; the others repeat
// the bytes at a distance before.
const (
	bitmapMagic      = 0x094d425a // "ZBM\t"
	maxChunkBytes    = 32 << 10   // decompressed bytes of a chunk
	storedHeaderSize = 6
	chunkHeaderSize  = 15
	bitmapTableSize  = 17 // bytes at the end of a chunk: twelve bitmaps of ten bits

	firstTableBitmap = 3  // smaller numbers have the bitmap in its area
	repeatNumber     = 15 // the number of repetitions follows
	minRepeat        = 4
)

// bitmapOp is an operation: which of eight bytes are literals, and how many bytes the next distance
// has; none means the previous distance.
type bitmapOp struct{ literalMask, distanceBytes uint8 }

// chunk is a chunk during decoding.
type chunk struct {
	out          *output
	data         []byte
	outputEnd    int // of its output
	distance     int
	tableBitmaps [repeatNumber - firstTableBitmap]bitmapOp

	literalOffset  int // next offset of each area in b
	distanceOffset int
	bitmapOffset   int
	nibbleOffset   int // in half bytes
}

// DecodeBitmap decompresses LZBITMAP to dst and returns the number of bytes. It ends with an empty
// chunk.
func DecodeBitmap(dst, src []byte) (int, error) {
	o := output{data: dst}
	if len(src) < 4 || littleEndian.Uint32(src) != bitmapMagic {
		return 0, damaged("it is not an LZBITMAP")
	}
	for src = src[4:]; ; {
		if len(src) < storedHeaderSize {
			return o.written, damaged("it ends within a chunk")
		}
		length, plain := uint24(src), uint24(src[3:])
		if length < storedHeaderSize || length > len(src) || plain > maxChunkBytes {
			return o.written, damaged("a chunk has %d bytes, and decompresses to %d", length, plain)
		}
		if plain == 0 {
			return o.written, nil
		}
		b := src[:length]
		src = src[length:]
		if length == plain+storedHeaderSize {
			if err := o.appendLiterals(b[storedHeaderSize:]); err != nil {
				return o.written, err
			}
			continue
		}
		if err := decodeChunk(&o, b, plain); err != nil {
			return o.written, err
		}
	}
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

func decodeChunk(o *output, b []byte, plain int) error {
	if plain > len(o.data)-o.written {
		return damaged("it has more than %d bytes", len(o.data))
	}
	if len(b) < chunkHeaderSize+bitmapTableSize {
		return damaged("a chunk has %d bytes", len(b))
	}
	c := chunk{
		out: o, data: b, outputEnd: o.written + plain, distance: 8,
		literalOffset: chunkHeaderSize, distanceOffset: uint24(b[6:]), bitmapOffset: uint24(b[9:]),
		nibbleOffset: 2 * uint24(b[12:]),
	}
	table := b[len(b)-bitmapTableSize:]
	for i := range c.tableBitmaps {
		word := int(table[10*i/8]) | int(table[10*i/8+1])<<8
		word >>= 10 * i % 8
		c.tableBitmaps[i] = bitmapOp{uint8(word), uint8(word >> 8 & 3)}
	}
	for o.written < c.outputEnd {
		if err := c.executeNumber(); err != nil {
			return err
		}
	}
	return nil
}

// executeNumber executes one number, including repetitions.
func (c *chunk) executeNumber() error {
	number, err := c.readNumber()
	if err != nil {
		return err
	}
	times, err := c.readRepeat()
	if err != nil {
		return err
	}
	for range times {
		m, err := c.bitmapFor(number)
		if err != nil {
			return err
		}
		if err := c.apply(m); err != nil {
			return err
		}
	}
	return nil
}

// readNumber reads half a byte.
func (c *chunk) readNumber() (int, error) {
	i := c.nibbleOffset / 2
	if i >= len(c.data) {
		return 0, damaged("a chunk is cut off")
	}
	v := int(c.data[i]) >> (4 * (c.nibbleOffset % 2)) & 0xf
	c.nibbleOffset++
	return v, nil
}

// readRepeat reads how often a number is repeated. Nothing is repeated in the last eight bytes.
func (c *chunk) readRepeat() (int, error) {
	if c.outputEnd-c.out.written <= 8 {
		return 1, nil
	}
	n, err := c.readNumber()
	if err != nil {
		return 0, err
	}
	if n != repeatNumber {
		c.nibbleOffset--
		return 1, nil
	}
	times := minRepeat
	for n == repeatNumber {
		if n, err = c.readNumber(); err != nil {
			return 0, err
		}
		times += n
	}
	return times, nil
}

// bitmapFor returns the operation of a number.
func (c *chunk) bitmapFor(number int) (bitmapOp, error) {
	switch {
	case number == repeatNumber:
		return bitmapOp{}, damaged("a chunk repeats nothing")
	case number >= firstTableBitmap:
		return c.tableBitmaps[number-firstTableBitmap], nil
	case c.bitmapOffset >= len(c.data):
		return bitmapOp{}, damaged("a chunk is cut off")
	}
	c.bitmapOffset++
	return bitmapOp{c.data[c.bitmapOffset-1], uint8(number)}, nil
}

// apply writes up to eight bytes.
func (c *chunk) apply(m bitmapOp) error {
	if m.distanceBytes > 2 || c.distanceOffset+int(m.distanceBytes) > len(c.data) {
		return damaged("a chunk has a distance of %d bytes", m.distanceBytes)
	}
	switch m.distanceBytes {
	case 1:
		c.distance = int(c.data[c.distanceOffset])
	case 2:
		c.distance = int(littleEndian.Uint16(c.data[c.distanceOffset:]))
	}
	c.distanceOffset += int(m.distanceBytes)
	for i := 0; i < 8 && c.out.written < c.outputEnd; i++ {
		if m.literalMask>>i&1 == 0 {
			if err := c.out.copyMatch(1, c.distance); err != nil {
				return err
			}
			continue
		}
		if c.literalOffset >= len(c.data) {
			return damaged("a chunk is cut off")
		}
		c.out.data[c.out.written] = c.data[c.literalOffset]
		c.out.written++
		c.literalOffset++
	}
	return nil
}
