package pairsum

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
)

// Sum256 returns the SHA-256 of p and of q. It is fastest for slices of equal length.
func Sum256(p, q []byte) (sumP, sumQ [sha256.Size]byte) {
	common := min(len(p), len(q)) / sha256.BlockSize * sha256.BlockSize
	if !supported || common == 0 {
		return sha256.Sum256(p), sha256.Sum256(q)
	}
	stateP, stateQ := initialState, initialState
	for off := 0; off < common; off += maxBytesPerCall {
		end := min(common, off+maxBytesPerCall)
		addBlocks(&stateP, &stateQ, p[off:end], q[off:end])
	}
	return finish(stateP, common, p), finish(stateQ, common, q)
}

// maxBytesPerCall bounds one call of addBlocks, during which the goroutine cannot be preempted.
const maxBytesPerCall = 64 << 10

// initialState is the state before the first block (FIPS 180-4, 5.3.3).
var initialState = [8]uint32{
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
}

// finish returns the sum of p, given the state after its first done bytes, which are whole blocks.
func finish(state [8]uint32, done int, p []byte) (sum [sha256.Size]byte) {
	// The form in which crypto/sha256 marshals a state: magic, state, an incomplete block, and the number of bytes.
	form := make([]byte, 0, len(marshalMagic)+sha256.Size+sha256.BlockSize+8)
	form = append(form, marshalMagic...)
	for _, word := range state {
		form = binary.BigEndian.AppendUint32(form, word)
	}
	form = form[:len(form)+sha256.BlockSize]
	form = binary.BigEndian.AppendUint64(form, uint64(done))
	h := sha256.New()
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(form); err != nil {
		return sha256.Sum256(p) // another form in a later version of Go: correct, but slower
	}
	_, _ = h.Write(p[done:])
	h.Sum(sum[:0])
	return sum
}

const marshalMagic = "sha\x03"
