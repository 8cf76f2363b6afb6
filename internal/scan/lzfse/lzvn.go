package lzfse

// Operations of LZVN. Most have two bits for the number of literals that follow, three
// for the length of the match less three, and a distance.
const (
	lzvnEnd = 0x06 // followed by seven bytes

	previousDistance  = 6 // low bits of an operation in place of a distance
	largeDistanceMark = 7
)

// DecodeLZVN decompresses LZVN to dst and returns the number of bytes. It ends with the end mark of
// the data, or with the data itself once dst is full.
func DecodeLZVN(dst, src []byte) (int, error) {
	o := output{data: dst}
	_, err := decodeLZVN(&o, src)
	return o.written, err
}

// lzvn is the state of decoding LZVN. The distance is kept from one match to the next.
type lzvn struct {
	out      *output
	src      []byte
	pos      int
	distance int
}

// decodeLZVN returns the number of bytes of src up to and including the end mark.
func decodeLZVN(o *output, src []byte) (int, error) {
	d := lzvn{out: o, src: src}
	for d.pos < len(src) {
		op := src[d.pos]
		if op == lzvnEnd {
			return min(d.pos+8, len(src)), nil
		}
		if err := d.execute(op); err != nil {
			return d.pos, err
		}
	}
	if o.written < len(o.data) {
		return d.pos, damaged("it ends after %d of %d bytes", o.written, len(o.data))
	}
	return d.pos, nil
}

// execute executes one operation.
func (d *lzvn) execute(op byte) error {
	switch {
	case op >= 0xf0:
		return d.copyMatch(op)
	case op >= 0xe0:
		return d.copyLiterals(op)
	case op == 0x0e || op == 0x16: // nothing
		d.pos++
		return nil
	case op>>4 == 0x7 || op>>4 == 0xd:
		return damaged("LZVN has no operation %#x", op)
	case op>>5 == 0x5:
		return d.mediumMatch(op)
	}
	literals, length, head := int(op>>6), int(op>>3&7)+3, 2
	switch op & 7 {
	case previousDistance:
		if op < 0x40 {
			return damaged("LZVN has no operation %#x", op)
		}
		head = 1
	case largeDistanceMark:
		head = 3
	}
	if d.pos+head > len(d.src) {
		return errTruncated
	}
	switch head {
	case 2:
		d.distance = int(op&7)<<8 | int(d.src[d.pos+1])
	case 3:
		d.distance = int(littleEndian.Uint16(d.src[d.pos+1:]))
	}
	return d.literalsAndMatch(head, literals, length)
}

var errTruncated = damaged("it ends within an operation")

// mediumMatch executes an operation of three bytes with five bits of length and fourteen of distance.
func (d *lzvn) mediumMatch(op byte) error {
	if d.pos+3 > len(d.src) {
		return errTruncated
	}
	v := int(littleEndian.Uint16(d.src[d.pos+1:]))
	d.distance = v >> 2
	return d.literalsAndMatch(3, int(op>>3&3), (int(op&7)<<2|v&3)+3)
}

// literalsAndMatch copies literals from after an operation, and then a match.
func (d *lzvn) literalsAndMatch(head, literals, length int) error {
	if d.pos+head+literals > len(d.src) {
		return errTruncated
	}
	d.pos += head
	if err := d.out.appendLiterals(d.src[d.pos : d.pos+literals]); err != nil {
		return err
	}
	d.pos += literals
	return d.out.copyMatch(length, d.distance)
}

// readLength decodes the operand of an operation that has only a length: in its low bits, or where these
// are zero in a separate byte, less sixteen.
func (d *lzvn) readLength(op byte) (int, error) {
	d.pos++
	if n := int(op & 0xf); n != 0 {
		return n, nil
	}
	if d.pos >= len(d.src) {
		return 0, errTruncated
	}
	d.pos++
	return int(d.src[d.pos-1]) + 16, nil
}

func (d *lzvn) copyLiterals(op byte) error {
	n, err := d.readLength(op)
	if err != nil {
		return err
	}
	if n > len(d.src)-d.pos {
		return errTruncated
	}
	d.pos += n
	return d.out.appendLiterals(d.src[d.pos-n : d.pos])
}

func (d *lzvn) copyMatch(op byte) error {
	n, err := d.readLength(op)
	if err != nil {
		return err
	}
	return d.out.copyMatch(n, d.distance)
}
