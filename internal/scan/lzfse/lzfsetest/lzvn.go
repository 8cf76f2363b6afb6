package lzfsetest

// LZVN compresses bytes, with the end mark.
func LZVN(b []byte) []byte {
	var out []byte
	last := 0
	for i, s := range parse(b, 600, 65535) {
		out = lzvnStep(out, s, &last)
		if i%7 == 3 {
			out = append(out, 0x0e) // an operation that does nothing
		}
	}
	return append(out, 6, 0, 0, 0, 0, 0, 0, 0)
}

func lzvnStep(out []byte, s step, last *int) []byte {
	rest := s.literals
	for len(rest) > 3 || len(rest) > 0 && s.match == 0 {
		n := min(len(rest), 271)
		switch {
		case n >= 16:
			out = append(out, 0xe0, byte(n-16))
		default:
			out = append(out, 0xe0|byte(n))
		}
		out = append(out, rest[:n]...)
		rest = rest[n:]
	}
	if s.match == 0 {
		return out
	}
	head := byte(len(rest)) << 6
	n, d := s.match, s.distance
	// With more literals fewer lengths fit: higher values are other operations.
	used := min(n, [4]int{10, 8, 6, 4}[len(rest)])
	switch short := byte(used-3) << 3; {
	case d == *last && len(rest) > 0:
		out = append(out, head|short|6)
	case d < 0x600:
		out = append(out, head|short|byte(d>>8), byte(d))
	case d < 1<<14:
		used = min(n, 34)
		word := uint16(d<<2 | (used-3)&3)
		out = append(out, 0xa0|byte(len(rest))<<3|byte((used-3)>>2), byte(word), byte(word>>8))
	default:
		out = append(out, head|short|7, byte(d), byte(d>>8))
	}
	out = append(out, rest...)
	*last = d
	for n -= used; n > 0; {
		m := min(n, 271)
		if m >= 16 {
			out = append(out, 0xf0, byte(m-16))
		} else {
			out = append(out, 0xf0|byte(m))
		}
		n -= m
	}
	return out
}
