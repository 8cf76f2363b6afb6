package lzfse

// Operations of LZVN. Most have two bits for the number of literals that follow, three
// for the length of the match less three, and a distance.
const (
	lzvnEnd = 0x06 // followed by seven bytes

	previousDistance = 6 // low bits of an operation in place of a distance
	largeDistance    = 7
)

// DecodeLZVN decompresses LZVN to dst and returns the number of bytes. It ends with the end mark of
// the data, or with the data itself once dst is full.
func DecodeLZVN(dst, src []byte) (int, error) {
	o := output{b: dst}
	_, err := decodeLZVN(&o, src)
	return o.n, err
}

// lzvn is the state of decoding LZVN. The distance is kept from one match to the next.
type lzvn struct {
	o        *output
	src      []byte
	at       int
	distance int
}

// decodeLZVN returns the number of bytes of src up to and including the end mark.
func decodeLZVN(o *output, src []byte) (int, error) {
	d := lzvn{o: o, src: src}
	for d.at < len(src) {
		op := src[d.at]
		if op == lzvnEnd {
			return min(d.at+8, len(src)), nil
		}
		if err := d.step(op); err != nil {
			return d.at, err
		}
	}
	if o.n < len(o.b) {
		return d.at, damaged("it ends after %d of %d bytes", o.n, len(o.b))
	}
	return d.at, nil
}

// step executes one operation.
func (d *lzvn) step(op byte) error {
	switch {
	case op >= 0xf0:
		return d.matches(op)
	case op >= 0xe0:
		return d.literals(op)
	case op == 0x0e || op == 0x16: // nothing
		d.at++
		return nil
	case op>>4 == 0x7 || op>>4 == 0xd:
		return damaged("LZVN has no operation %#x", op)
	case op>>5 == 0x5:
		return d.medium(op)
	}
	literals, length, head := int(op>>6), int(op>>3&7)+3, 2
	switch op & 7 {
	case previousDistance:
		if op < 0x40 {
			return damaged("LZVN has no operation %#x", op)
		}
		head = 1
	case largeDistance:
		head = 3
	}
	if d.at+head > len(d.src) {
		return errShort
	}
	switch head {
	case 2:
		d.distance = int(op&7)<<8 | int(d.src[d.at+1])
	case 3:
		d.distance = int(le.Uint16(d.src[d.at+1:]))
	}
	return d.both(head, literals, length)
}

var errShort = damaged("it ends within an operation")

// medium executes an operation of three bytes with five bits of length and fourteen of distance.
func (d *lzvn) medium(op byte) error {
	if d.at+3 > len(d.src) {
		return errShort
	}
	v := int(le.Uint16(d.src[d.at+1:]))
	d.distance = v >> 2
	return d.both(3, int(op>>3&3), (int(op&7)<<2|v&3)+3)
}

// both copies literals from after an operation, and then a match.
func (d *lzvn) both(head, literals, length int) error {
	if d.at+head+literals > len(d.src) {
		return errShort
	}
	d.at += head
	if err := d.o.literal(d.src[d.at : d.at+literals]); err != nil {
		return err
	}
	d.at += literals
	return d.o.match(length, d.distance)
}

// count decodes the operand of an operation that has only a length: in its low bits, or where these
// are zero in a separate byte, less sixteen.
func (d *lzvn) count(op byte) (int, error) {
	d.at++
	if n := int(op & 0xf); n != 0 {
		return n, nil
	}
	if d.at >= len(d.src) {
		return 0, errShort
	}
	d.at++
	return int(d.src[d.at-1]) + 16, nil
}

func (d *lzvn) literals(op byte) error {
	n, err := d.count(op)
	if err != nil {
		return err
	}
	if n > len(d.src)-d.at {
		return errShort
	}
	d.at += n
	return d.o.literal(d.src[d.at-n : d.at])
}

func (d *lzvn) matches(op byte) error {
	n, err := d.count(op)
	if err != nil {
		return err
	}
	return d.o.match(n, d.distance)
}
