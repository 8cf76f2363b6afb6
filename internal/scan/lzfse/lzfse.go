package lzfse

// Blocks of LZFSE by their first four bytes.
const (
	blockEnd    = 0x24787662 // "bvx$"
	blockStored = 0x2d787662 // "bvx-"
	blockFull   = 0x31787662 // frequencies are stored unpacked
	blockPacked = 0x32787662 // "bvx2": frequencies are packed
	blockLZVN   = 0x6e787662 // "bvxn"
)

const (
	fullHeaderSize   = 772
	packedHeaderSize = 32

	maxMatches  = 10000 // of a block
	maxLiterals = 4 * maxMatches

	lengthSymbolCount   = 20
	distanceSymbolCount = 64
	literalSymbolCount  = 256
	symbolCount         = 2*lengthSymbolCount + distanceSymbolCount + literalSymbolCount

	lengthStateCount   = 64
	distanceStateCount = 256
	literalStateCount  = 1024
)

// header is the header of a compressed block.
type header struct {
	rawBytes      int // decompressed bytes
	literalCount  int
	matchCount    int
	literalBytes  int
	matchBytes    int
	literalBits   int // that the last byte of the literals lacks, negative
	matchBits     int
	literalState  [4]uint16
	lengthState   uint16
	matchState    uint16
	distanceState uint16
	frequencies   [symbolCount]uint16 // of lengths of literals, of matches, of distances, of literals
}

// Decode decompresses an LZFSE stream to dst and returns the number of bytes. The stream ends with
// its end mark, or with the data itself once dst is full.
func Decode(dst, src []byte) (int, error) {
	o := output{data: dst}
	for len(src) > 0 {
		if len(src) < 4 {
			return o.written, damaged("it ends within a block")
		}
		magic := littleEndian.Uint32(src)
		if magic == blockEnd {
			return o.written, nil
		}
		n, err := decodeBlock(&o, magic, src)
		if err != nil {
			return o.written, err
		}
		src = src[n:]
	}
	if o.written < len(dst) {
		return o.written, damaged("it ends after %d of %d bytes", o.written, len(dst))
	}
	return o.written, nil
}

// decodeBlock decodes one block and returns its length.
func decodeBlock(o *output, magic uint32, src []byte) (int, error) {
	if len(src) < 12 {
		return 0, damaged("it ends within a block")
	}
	start, raw := o.written, int(littleEndian.Uint32(src[4:]))
	var n int
	var err error
	switch magic {
	case blockStored:
		n = 8 + raw
		if n > len(src) {
			return 0, damaged("it ends within a block")
		}
		err = o.appendLiterals(src[8:n])
	case blockLZVN:
		n = 12 + int(littleEndian.Uint32(src[8:]))
		if n > len(src) {
			return 0, damaged("it ends within a block")
		}
		within := output{data: o.data[:min(len(o.data), o.written+raw)], written: o.written}
		_, err = decodeLZVN(&within, src[12:n])
		o.written = within.written
	case blockFull, blockPacked:
		n, err = decodeCompressed(o, magic, src)
	default:
		return 0, damaged("unknown block %#08x", magic)
	}
	if err == nil && o.written-start != raw {
		err = damaged("a block has %d bytes, not %d", o.written-start, raw)
	}
	return n, err
}

// decodeCompressed decodes a block with its own codes, literals first.
func decodeCompressed(o *output, magic uint32, src []byte) (int, error) {
	h, length, err := parseFullHeader(src)
	if magic == blockPacked {
		h, length, err = parsePackedHeader(src)
	}
	if err != nil {
		return 0, err
	}
	if err := h.checkLimits(); err != nil {
		return 0, err
	}
	end := length + h.literalBytes + h.matchBytes
	if end > len(src) {
		return 0, damaged("it ends within a block")
	}
	literals, err := h.readLiterals(src[length:], h.literalBytes)
	if err != nil {
		return 0, err
	}
	return end, h.readMatches(o, literals, src[length+h.literalBytes:])
}

// checkLimits refuses counts that are above the format's limits. States need no check: they
// are cut to their tables.
func (h *header) checkLimits() error {
	if h.literalCount > maxLiterals || h.literalCount%4 != 0 || h.matchCount > maxMatches {
		return damaged("a block has %d literals and %d matches", h.literalCount, h.matchCount)
	}
	if h.literalBits > 0 || h.literalBits < -7 || h.matchBits > 0 || h.matchBits < -7 {
		return damaged("a block lacks %d and %d bits", -h.literalBits, -h.matchBits)
	}
	return nil
}

// parseFullHeader decodes the header with unpacked frequencies.
func parseFullHeader(b []byte) (h header, length int, err error) {
	if len(b) < fullHeaderSize {
		return h, 0, damaged("it ends within a header")
	}
	at := func(i int) int { return int(littleEndian.Uint32(b[i:])) }
	h = header{
		rawBytes: at(4), literalCount: at(12), matchCount: at(16), literalBytes: at(20), matchBytes: at(24),
		literalBits: int(int32(at(28))), matchBits: int(int32(at(40))),
		lengthState: littleEndian.Uint16(b[44:]), matchState: littleEndian.Uint16(b[46:]),
		distanceState: littleEndian.Uint16(b[48:]),
	}
	for i := range h.literalState {
		h.literalState[i] = littleEndian.Uint16(b[32+2*i:])
	}
	for i := range h.frequencies {
		h.frequencies[i] = littleEndian.Uint16(b[50+2*i:])
	}
	return h, fullHeaderSize, nil
}

// parsePackedHeader decodes the header whose numbers are packed into three words of 64 bits.
func parsePackedHeader(b []byte) (h header, length int, err error) {
	if len(b) < packedHeaderSize {
		return h, 0, damaged("it ends within a header")
	}
	bits := func(word, from, count int) int {
		return int(littleEndian.Uint64(b[8+8*word:]) >> from & (1<<count - 1))
	}
	h = header{
		rawBytes:     int(littleEndian.Uint32(b[4:])),
		literalCount: bits(0, 0, 20), literalBytes: bits(0, 20, 20), matchCount: bits(0, 40, 20),
		literalBits: bits(0, 60, 3) - 7,
		matchBytes:  bits(1, 40, 20), matchBits: bits(1, 60, 3) - 7,
		lengthState: uint16(bits(2, 32, 10)), matchState: uint16(bits(2, 42, 10)),
		distanceState: uint16(bits(2, 52, 10)),
	}
	for i := range h.literalState {
		h.literalState[i] = uint16(bits(1, 10*i, 10))
	}
	length = bits(2, 0, 32)
	if length < packedHeaderSize || length > len(b) {
		return h, 0, damaged("a header has %d bytes", length)
	}
	return h, length, h.unpackFrequencies(b[packedHeaderSize:length])
}

// Codes of packed frequencies by their five low bits: how many bits there are, and the
// value. Those of eight and fourteen bits have it in the bits above four.
var (
	frequencyBits = [32]uint8{
		2, 3, 2, 5, 2, 3, 2, 8, 2, 3, 2, 5, 2, 3, 2, 14, 2, 3, 2, 5, 2, 3, 2, 8, 2, 3, 2, 5,
		2, 3, 2, 14,
	}
	frequencyValues = [32]uint8{
		0, 2, 1, 4, 0, 3, 1, 0, 0, 2, 1, 5, 0, 3, 1, 0, 0, 2, 1, 6, 0, 3, 1, 0, 0, 2, 1, 7, 0,
		3, 1, 0,
	}
)

// unpackFrequencies decodes packed frequencies. A header may have none at all.
func (h *header) unpackFrequencies(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var word uint64
	have := 0
	for i := range h.frequencies {
		for have < 14 && len(b) > 0 {
			word |= uint64(b[0]) << have
			b, have = b[1:], have+8
		}
		code := word & 31
		n := int(frequencyBits[code])
		switch n {
		case 8:
			h.frequencies[i] = uint16(8 + word>>4&0xf)
		case 14:
			h.frequencies[i] = uint16(24 + word>>4&0x3ff)
		default:
			h.frequencies[i] = uint16(frequencyValues[code])
		}
		if n > have {
			return damaged("its frequencies are cut off")
		}
		word, have = word>>n, have-n
	}
	return nil
}
