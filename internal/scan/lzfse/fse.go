package lzfse

import "math/bits"

// Values of symbols: a base, and a number of bits that are added to it.
var (
	literalLengthValues = buildValues([lengthSymbolCount]uint8{16: 2, 17: 3, 18: 5, 19: 8})
	matchLengthValues   = buildValues([lengthSymbolCount]uint8{16: 3, 17: 5, 18: 8, 19: 11})
	distanceValues      = buildValues(distanceBits())
)

// symbolValue is the meaning of a symbol.
type symbolValue struct {
	base      int32
	extraBits uint8
}

// buildValues returns the values of symbols, each of which begins where the one before ends.
func buildValues[T [lengthSymbolCount]uint8 | [distanceSymbolCount]uint8](extra T) []symbolValue {
	var out []symbolValue
	base := int32(0)
	for i := range len(extra) {
		out = append(out, symbolValue{base, extra[i]})
		base += 1 << extra[i]
	}
	return out
}

// distanceBits has four symbols for each number of bits.
func distanceBits() (out [distanceSymbolCount]uint8) {
	for i := range out {
		out[i] = uint8(i / 4)
	}
	return out
}

// fseState is an entry of a decoding table: its value, and how the next state follows from it and from
// some bits. The bits of the value are below those of the state.
type fseState struct {
	base      int32  // the symbol, or the base of its value
	nextState uint16 // added to the bits of the state
	valueBits uint8  // bits of the value
	totalBits uint8  // bits of both
}

// buildDecodingTable builds the decoding table from the frequencies of symbols. The table's length is a power of
// two, and the sum of the frequencies.
func buildDecodingTable(table []fseState, frequencies []uint16, values []symbolValue) error {
	states, at := len(table), 0
	for i, f := range frequencies {
		count := int(f)
		if count == 0 {
			continue
		}
		if count > states-at {
			return damaged("its frequencies add up to too much")
		}
		v := symbolValue{base: int32(i)}
		if values != nil {
			v = values[i]
		}
		// The first states of a symbol take one bit more than the others.
		k := bits.Len(uint(states)) - bits.Len(uint(count))
		more := 2*states>>k - count
		for j := range count {
			s := fseState{base: v.base, valueBits: v.extraBits}
			if j < more {
				s.totalBits, s.nextState = uint8(k), uint16((count+j)<<k-states)
			} else {
				s.totalBits, s.nextState = uint8(k-1), uint16((j-more)<<(k-1))
			}
			s.totalBits += v.extraBits
			table[at] = s
			at++
		}
	}
	return nil
}

// backwardBitReader reads bits from the end of a slice to its start.
type backwardBitReader struct {
	data     []byte // may extend beyond the bits
	bitsLeft int    // bits before it are left; negative when too many were read
}

// readBits returns the next n bits, at most 32.
func (r *backwardBitReader) readBits(n uint8) uint32 {
	r.bitsLeft -= int(n)
	if r.bitsLeft < 0 {
		return 0
	}
	i := r.bitsLeft >> 3
	var word uint64
	if i+8 <= len(r.data) {
		word = littleEndian.Uint64(r.data[i:])
	} else {
		for j := len(r.data) - 1; j >= i; j-- {
			word = word<<8 | uint64(r.data[j])
		}
	}
	return uint32(word >> (r.bitsLeft & 7) & (1<<n - 1))
}

// decodeSymbol returns the value of a state and continues to the next one.
func (r *backwardBitReader) decodeSymbol(table []fseState, at *uint16) int {
	s := table[int(*at)&(len(table)-1)]
	word := r.readBits(s.totalBits)
	*at = s.nextState + uint16(word>>s.valueBits)
	return int(s.base) + int(word&(1<<s.valueBits-1))
}

// readLiterals decodes the literals of a block, which come from four states in turn.
func (h *header) readLiterals(b []byte, length int) ([]byte, error) {
	var table [literalStateCount]fseState
	if err := buildDecodingTable(table[:], h.frequencies[symbolCount-literalSymbolCount:], nil); err != nil {
		return nil, err
	}
	out := make([]byte, h.literalCount)
	r := backwardBitReader{data: b, bitsLeft: 8*length + h.literalBits}
	at := h.literalState
	for i := 0; i+4 <= len(out); i += 4 {
		out[i] = byte(r.decodeSymbol(table[:], &at[0]))
		out[i+1] = byte(r.decodeSymbol(table[:], &at[1]))
		out[i+2] = byte(r.decodeSymbol(table[:], &at[2]))
		out[i+3] = byte(r.decodeSymbol(table[:], &at[3]))
		if r.bitsLeft < 0 {
			return nil, damaged("its literals are cut off")
		}
	}
	return out, nil
}

// readMatches decodes the lengths and distances of a block, and writes its bytes.
func (h *header) readMatches(o *output, literals, b []byte) error {
	var lengths, matches [lengthStateCount]fseState
	var away [distanceStateCount]fseState
	f := h.frequencies[:]
	if err := buildDecodingTable(lengths[:], f[:lengthSymbolCount], literalLengthValues); err != nil {
		return err
	}
	if err := buildDecodingTable(matches[:], f[lengthSymbolCount:2*lengthSymbolCount], matchLengthValues); err != nil {
		return err
	}
	if err := buildDecodingTable(away[:], f[2*lengthSymbolCount:symbolCount-literalSymbolCount],
		distanceValues); err != nil {
		return err
	}
	r := backwardBitReader{data: b, bitsLeft: 8*h.matchBytes + h.matchBits}
	distance := 0
	for range h.matchCount {
		length := r.decodeSymbol(lengths[:], &h.lengthState)
		match := r.decodeSymbol(matches[:], &h.matchState)
		// Zero means the distance of the match before.
		if d := r.decodeSymbol(away[:], &h.distanceState); d != 0 {
			distance = d
		}
		if r.bitsLeft < 0 {
			return damaged("its matches are cut off")
		}
		if length > len(literals) {
			return damaged("it uses more literals than it has")
		}
		if err := o.appendLiterals(literals[:length]); err != nil {
			return err
		}
		literals = literals[length:]
		if match == 0 {
			continue
		}
		if err := o.copyMatch(match, distance); err != nil {
			return err
		}
	}
	return nil
}
