package lzfse

import "math/bits"

// Values of symbols: a base, and a number of bits that are added to it.
var (
	literalLengths = extend([lengthSymbols]uint8{16: 2, 17: 3, 18: 5, 19: 8})
	matchLengths   = extend([lengthSymbols]uint8{16: 3, 17: 5, 18: 8, 19: 11})
	distances      = extend(distanceBits())
)

// value is the meaning of a symbol.
type value struct {
	base  int32
	extra uint8
}

// extend returns the values of symbols, each of which begins where the one before ends.
func extend[T [lengthSymbols]uint8 | [distanceSymbols]uint8](extra T) []value {
	var out []value
	base := int32(0)
	for i := range len(extra) {
		out = append(out, value{base, extra[i]})
		base += 1 << extra[i]
	}
	return out
}

// distanceBits has four symbols for each number of bits.
func distanceBits() (out [distanceSymbols]uint8) {
	for i := range out {
		out[i] = uint8(i / 4)
	}
	return out
}

// state is an entry of a decoding table: its value, and how the next state follows from it and from
// some bits. The bits of the value are below those of the state.
type state struct {
	base  int32  // the symbol, or the base of its value
	next  uint16 // added to the bits of the state
	extra uint8  // bits of the value
	total uint8  // bits of both
}

// fill builds the decoding table from the frequencies of symbols. The table's length is a power of
// two, and the sum of the frequencies.
func fill(table []state, frequencies []uint16, values []value) error {
	states, at := len(table), 0
	for i, f := range frequencies {
		count := int(f)
		if count == 0 {
			continue
		}
		if count > states-at {
			return damaged("its frequencies add up to too much")
		}
		v := value{base: int32(i)}
		if values != nil {
			v = values[i]
		}
		// The first states of a symbol take one bit more than the others.
		k := bits.Len(uint(states)) - bits.Len(uint(count))
		more := 2*states>>k - count
		for j := range count {
			s := state{base: v.base, extra: v.extra}
			if j < more {
				s.total, s.next = uint8(k), uint16((count+j)<<k-states)
			} else {
				s.total, s.next = uint8(k-1), uint16((j-more)<<(k-1))
			}
			s.total += v.extra
			table[at] = s
			at++
		}
	}
	return nil
}

// backward reads bits from the end of a slice to its start.
type backward struct {
	b   []byte // may extend beyond the bits
	pos int    // bits before it are left; negative when too many were read
}

// take returns the next n bits, at most 32.
func (r *backward) take(n uint8) uint32 {
	r.pos -= int(n)
	if r.pos < 0 {
		return 0
	}
	i := r.pos >> 3
	var word uint64
	if i+8 <= len(r.b) {
		word = le.Uint64(r.b[i:])
	} else {
		for j := len(r.b) - 1; j >= i; j-- {
			word = word<<8 | uint64(r.b[j])
		}
	}
	return uint32(word >> (r.pos & 7) & (1<<n - 1))
}

// step returns the value of a state and continues to the next one.
func (r *backward) step(table []state, at *uint16) int {
	s := table[int(*at)&(len(table)-1)]
	word := r.take(s.total)
	*at = s.next + uint16(word>>s.extra)
	return int(s.base) + int(word&(1<<s.extra-1))
}

// readLiterals decodes the literals of a block, which come from four states in turn.
func (h *header) readLiterals(b []byte, length int) ([]byte, error) {
	var table [literalStates]state
	if err := fill(table[:], h.frequencies[symbols-literalSymbols:], nil); err != nil {
		return nil, err
	}
	out := make([]byte, h.literals)
	r := backward{b: b, pos: 8*length + h.literalBits}
	at := h.literalState
	for i := 0; i+4 <= len(out); i += 4 {
		out[i] = byte(r.step(table[:], &at[0]))
		out[i+1] = byte(r.step(table[:], &at[1]))
		out[i+2] = byte(r.step(table[:], &at[2]))
		out[i+3] = byte(r.step(table[:], &at[3]))
		if r.pos < 0 {
			return nil, damaged("its literals are cut off")
		}
	}
	return out, nil
}

// readMatches decodes the lengths and distances of a block, and writes its bytes.
func (h *header) readMatches(o *output, literals, b []byte) error {
	var lengths, matches [lengthStates]state
	var away [distanceStates]state
	f := h.frequencies[:]
	if err := fill(lengths[:], f[:lengthSymbols], literalLengths); err != nil {
		return err
	}
	if err := fill(matches[:], f[lengthSymbols:2*lengthSymbols], matchLengths); err != nil {
		return err
	}
	if err := fill(away[:], f[2*lengthSymbols:symbols-literalSymbols], distances); err != nil {
		return err
	}
	r := backward{b: b, pos: 8*h.matchBytes + h.matchBits}
	distance := 0
	for range h.matches {
		length := r.step(lengths[:], &h.lengthState)
		match := r.step(matches[:], &h.matchState)
		// Zero means the distance of the match before.
		if d := r.step(away[:], &h.distanceState); d != 0 {
			distance = d
		}
		if r.pos < 0 {
			return damaged("its matches are cut off")
		}
		if length > len(literals) {
			return damaged("it uses more literals than it has")
		}
		if err := o.literal(literals[:length]); err != nil {
			return err
		}
		literals = literals[length:]
		if match == 0 {
			continue
		}
		if err := o.match(match, distance); err != nil {
			return err
		}
	}
	return nil
}
