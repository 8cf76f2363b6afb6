package btrfs

// Form of an extent that is compressed with LZO: the number of its bytes, and of each sector the number of bytes and a
// stream of LZO1X. Such a number is not at the end of a sector, if it does not fit in it.
const lzoNumber = 4

func unpackLZO(out, packed []byte, sectorSize int) error {
	if len(packed) < lzoNumber {
		return damaged("%d bytes of LZO", len(packed))
	}
	all := le.Uint32(packed)
	if all < lzoNumber || int64(all) > int64(len(packed)) {
		return damaged("%d bytes of LZO in %d", all, len(packed))
	}
	packed = packed[:all]
	sector := make([]byte, sectorSize)
	for at, n := lzoNumber, 0; n < len(out); {
		if left := sectorSize - at%sectorSize; left < lzoNumber {
			at += left
		}
		if at >= len(packed) {
			break
		}
		if len(packed)-at < lzoNumber {
			return damaged("%d bytes behind a sector of LZO", len(packed)-at)
		}
		size := le.Uint32(packed[at:])
		at += lzoNumber
		if size == 0 || int64(size) > int64(len(packed)-at) {
			return damaged("a sector of LZO has %d bytes in %d", size, len(packed)-at)
		}
		count, err := unpackLZO1X(sector, packed[at:at+int(size)])
		if err != nil {
			return err
		}
		n += copy(out[n:], sector[:count])
		at += int(size)
	}
	return nil
}

// lzoStream decompresses a stream of LZO1X. Source: Documentation/staging/lzo.rst of the kernel.
type lzoStream struct {
	in  []byte // what is left
	out []byte
	n   int // bytes of out that are written
	bad bool
}

// After an instruction: 0 to 3 literals, or a run of 4 and more.
const lzoLongRun = 4

// unpackLZO1X fills the beginning of out, and returns how many bytes there are.
func unpackLZO1X(out, in []byte) (int, error) {
	s := &lzoStream{in: in, out: out}
	state := 0
	if len(in) > 0 && in[0] > 17 {
		count := int(s.byte()) - 17
		s.literals(count)
		state = min(count, lzoLongRun)
	}
	for !s.bad {
		t := int(s.byte())
		if t < 16 && state == 0 {
			s.literals(s.length(t, 15) + 3)
			state = lzoLongRun
			continue
		}
		length, distance, literals := s.match(t, state)
		if length == 0 {
			break // the end
		}
		s.copy(length, distance)
		s.literals(literals)
		state = literals
	}
	if s.bad || len(s.in) > 0 {
		return 0, damaged("invalid LZO at byte %d of %d", len(in)-len(s.in), len(in))
	}
	return s.n, nil
}

// match reads the rest of an instruction that copies: a length, how far back it is, and the number of literals behind
// it. The length 0 is the end of the stream.
func (s *lzoStream) match(t, state int) (length, distance, literals int) {
	switch {
	case t >= 64:
		length = t>>5 + 1 // 3 and 4 for 64 to 127, 5 to 8 above
		return length, int(s.byte())<<3 + t>>2&7 + 1, t & 3
	case t >= 32:
		length = s.length(t&31, 31) + 2
		low := s.pair()
		return length, low>>2 + 1, low & 3
	case t >= 16:
		length = s.length(t&7, 7) + 2
		low := s.pair()
		distance = (t&8)<<11 + low>>2
		if distance == 0 {
			return 0, 0, 0
		}
		return length, distance + 16384, low & 3
	case state == lzoLongRun:
		return 3, int(s.byte())<<2 + t>>2 + 2049, t & 3
	}
	return 2, int(s.byte())<<2 + t>>2 + 1, t & 3
}

func (s *lzoStream) byte() byte {
	if len(s.in) == 0 {
		s.bad = true
		return 0
	}
	b := s.in[0]
	s.in = s.in[1:]
	return b
}

func (s *lzoStream) pair() int {
	low := int(s.byte())
	return low | int(s.byte())<<8
}

// length returns a length that is in an instruction, or continues behind it if it is 0 there.
func (s *lzoStream) length(short, most int) int {
	if short > 0 {
		return short
	}
	n := most
	for !s.bad {
		b := s.byte()
		if b > 0 {
			return n + int(b)
		}
		n += 255
	}
	return n
}

func (s *lzoStream) literals(count int) {
	if count > len(s.in) || count > len(s.out)-s.n {
		s.bad = true
		return
	}
	copy(s.out[s.n:], s.in[:count])
	s.n += count
	s.in = s.in[count:]
}

// copy repeats what was written. The source and what is written may overlap.
func (s *lzoStream) copy(count, distance int) {
	if distance > s.n || count > len(s.out)-s.n {
		s.bad = true
		return
	}
	for range count {
		s.out[s.n] = s.out[s.n-distance]
		s.n++
	}
}
