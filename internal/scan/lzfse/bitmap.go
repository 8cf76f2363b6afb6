package lzfse

// LZBITMAP: chunks, each with a header, literals, the distances, the bitmaps and the numbers of the
// bitmaps in separate areas. A bitmap marks which of eight bytes are literals; the others repeat
// the bytes at a distance before.
const (
	bitmapMagic  = 0x094d425a // "ZBM\t"
	mostChunk    = 32 << 10   // decompressed bytes of a chunk
	storedHeader = 6
	chunkHeader  = 15
	bitmapTable  = 17 // bytes at the end of a chunk: twelve bitmaps of ten bits

	firstBitmap  = 3  // smaller numbers have the bitmap in its area
	repeatBitmap = 15 // the number of repetitions follows
	leastRepeat  = 4
)

// bitmap is an operation: which of eight bytes are literals, and how many bytes the next distance
// has; none means the previous distance.
type bitmap struct{ literals, distance uint8 }

// chunk is a chunk during decoding.
type chunk struct {
	o        *output
	b        []byte
	end      int // of its output
	distance int
	known    [repeatBitmap - firstBitmap]bitmap

	literals  int // next offset of each area in b
	distances int
	bitmaps   int
	numbers   int // in half bytes
}

// DecodeBitmap decompresses LZBITMAP to dst and returns the number of bytes. It ends with an empty
// chunk.
func DecodeBitmap(dst, src []byte) (int, error) {
	o := output{b: dst}
	if len(src) < 4 || le.Uint32(src) != bitmapMagic {
		return 0, damaged("it is not an LZBITMAP")
	}
	for src = src[4:]; ; {
		if len(src) < storedHeader {
			return o.n, damaged("it ends within a chunk")
		}
		length, plain := uint24(src), uint24(src[3:])
		if length < storedHeader || length > len(src) || plain > mostChunk {
			return o.n, damaged("a chunk has %d bytes, and decompresses to %d", length, plain)
		}
		if plain == 0 {
			return o.n, nil
		}
		b := src[:length]
		src = src[length:]
		if length == plain+storedHeader {
			if err := o.literal(b[storedHeader:]); err != nil {
				return o.n, err
			}
			continue
		}
		if err := decodeChunk(&o, b, plain); err != nil {
			return o.n, err
		}
	}
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

func decodeChunk(o *output, b []byte, plain int) error {
	if plain > len(o.b)-o.n {
		return damaged("it has more than %d bytes", len(o.b))
	}
	if len(b) < chunkHeader+bitmapTable {
		return damaged("a chunk has %d bytes", len(b))
	}
	c := chunk{
		o: o, b: b, end: o.n + plain, distance: 8,
		literals: chunkHeader, distances: uint24(b[6:]), bitmaps: uint24(b[9:]), numbers: 2 * uint24(b[12:]),
	}
	table := b[len(b)-bitmapTable:]
	for i := range c.known {
		word := int(table[10*i/8]) | int(table[10*i/8+1])<<8
		word >>= 10 * i % 8
		c.known[i] = bitmap{uint8(word), uint8(word >> 8 & 3)}
	}
	for o.n < c.end {
		if err := c.step(); err != nil {
			return err
		}
	}
	return nil
}

// step executes one number, including repetitions.
func (c *chunk) step() error {
	number, err := c.number()
	if err != nil {
		return err
	}
	times, err := c.times()
	if err != nil {
		return err
	}
	for range times {
		m, err := c.bitmap(number)
		if err != nil {
			return err
		}
		if err := c.apply(m); err != nil {
			return err
		}
	}
	return nil
}

// number reads half a byte.
func (c *chunk) number() (int, error) {
	i := c.numbers / 2
	if i >= len(c.b) {
		return 0, damaged("a chunk is cut off")
	}
	v := int(c.b[i]) >> (4 * (c.numbers % 2)) & 0xf
	c.numbers++
	return v, nil
}

// times reads how often a number is repeated. Nothing is repeated in the last eight bytes.
func (c *chunk) times() (int, error) {
	if c.end-c.o.n <= 8 {
		return 1, nil
	}
	n, err := c.number()
	if err != nil {
		return 0, err
	}
	if n != repeatBitmap {
		c.numbers--
		return 1, nil
	}
	times := leastRepeat
	for n == repeatBitmap {
		if n, err = c.number(); err != nil {
			return 0, err
		}
		times += n
	}
	return times, nil
}

// bitmap returns the operation of a number.
func (c *chunk) bitmap(number int) (bitmap, error) {
	switch {
	case number == repeatBitmap:
		return bitmap{}, damaged("a chunk repeats nothing")
	case number >= firstBitmap:
		return c.known[number-firstBitmap], nil
	case c.bitmaps >= len(c.b):
		return bitmap{}, damaged("a chunk is cut off")
	}
	c.bitmaps++
	return bitmap{c.b[c.bitmaps-1], uint8(number)}, nil
}

// apply writes up to eight bytes.
func (c *chunk) apply(m bitmap) error {
	if m.distance > 2 || c.distances+int(m.distance) > len(c.b) {
		return damaged("a chunk has a distance of %d bytes", m.distance)
	}
	switch m.distance {
	case 1:
		c.distance = int(c.b[c.distances])
	case 2:
		c.distance = int(le.Uint16(c.b[c.distances:]))
	}
	c.distances += int(m.distance)
	for i := 0; i < 8 && c.o.n < c.end; i++ {
		if m.literals>>i&1 == 0 {
			if err := c.o.match(1, c.distance); err != nil {
				return err
			}
			continue
		}
		if c.literals >= len(c.b) {
			return damaged("a chunk is cut off")
		}
		c.o.b[c.o.n] = c.b[c.literals]
		c.o.n++
		c.literals++
	}
	return nil
}
