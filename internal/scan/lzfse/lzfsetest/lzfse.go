package lzfsetest

import (
	"math/bits"
	"slices"
)

// Kind is the form of LZFSE blocks.
type Kind int

// The kinds of blocks.
const (
	Packed Kind = iota // bvx2
	Full               // bvx1
	Nested             // bvxn: LZVN
	Stored             // bvx-
)

// LZFSE compresses bytes into blocks of a kind, with the end mark.
func LZFSE(b []byte, kind Kind) []byte {
	var out []byte
	switch kind {
	case Stored:
		out = le.AppendUint32([]byte("bvx-"), uint32(len(b)))
		out = append(out, b...)
	case Nested:
		packed := LZVN(b)
		out = le.AppendUint32([]byte("bvxn"), uint32(len(b)))
		out = append(le.AppendUint32(out, uint32(len(packed))), packed...)
	default:
		for _, steps := range blocks(limited(parse(b, 2359, 262139))) {
			out = append(out, encode(steps, kind)...)
		}
	}
	return append(out, "bvx$"...)
}

// limited splits steps with more literals than one can have.
func limited(steps []step) []step {
	var out []step
	for _, s := range steps {
		for len(s.literals) > 315 {
			out = append(out, step{literals: s.literals[:315], distance: 1})
			s.literals = s.literals[315:]
		}
		s.distance = max(s.distance, 1)
		out = append(out, s)
	}
	return out
}

// blocks splits steps by the limits of a block.
func blocks(steps []step) [][]step {
	var out [][]step
	start, literals := 0, 0
	for i, s := range steps {
		if i-start == 10000 || literals+len(s.literals) > 39000 {
			out = append(out, steps[start:i])
			start, literals = i, 0
		}
		literals += len(s.literals)
	}
	return append(out, steps[start:])
}

// writer appends bits, the lowest first.
type writer struct {
	out  []byte
	have int
}

func (w *writer) put(v uint32, n int) {
	for i := range n {
		if w.have%8 == 0 {
			w.out = append(w.out, 0)
		}
		w.out[w.have/8] |= byte(v>>i&1) << (w.have % 8)
		w.have++
	}
}

// missing is the negative number of bits that the last byte lacks.
func (w *writer) missing() int { return w.have - 8*len(w.out) }

// coder is a table of symbols: how often each occurs among so many states.
type coder struct {
	states int
	counts []uint16
	starts []int
}

// newCoder scales counts so that they add up to the states.
func newCoder(seen []int, states int) coder {
	c := coder{states: states, counts: make([]uint16, len(seen)), starts: make([]int, len(seen))}
	total := 0
	for _, n := range seen {
		total += n
	}
	if total == 0 {
		c.counts[0] = uint16(states) // a table is full, also that of an empty list
		return c
	}
	sum := 0
	for i, n := range seen {
		if n > 0 {
			c.counts[i] = uint16(max(1, n*states/total))
			sum += int(c.counts[i])
		}
	}
	for sum != states {
		i := slices.Index(c.counts, slices.Max(c.counts))
		if sum < states {
			c.counts[i] += uint16(states - sum)
			sum = states
			continue
		}
		c.counts[i]--
		sum--
	}
	at := 0
	for i, n := range c.counts {
		c.starts[i] = at
		at += int(n)
	}
	return c
}

// put writes a symbol so that a decoder in the new state returns it and moves to the old one.
func (c coder) put(w *writer, at, symbol int) int {
	x, count := at+c.states, int(c.counts[symbol])
	k := bits.Len(uint(x)) - bits.Len(uint(count))
	if x>>k < count {
		k--
	}
	w.put(uint32(x&(1<<k-1)), k)
	return c.starts[symbol] + x>>k - count
}

var (
	extraL = append(make([]int, 16), 2, 3, 5, 8)
	extraM = append(make([]int, 16), 3, 5, 8, 11)
	extraD = func() (out []int) {
		for i := range 64 {
			out = append(out, i/4)
		}
		return out
	}()
)

// symbolOf returns the symbol of a value, and the value of its extra bits.
func symbolOf(v int, extra []int) (symbol, rest int) {
	base := 0
	for i, n := range extra {
		if v < base+1<<n {
			return i, v - base
		}
		base += 1 << n
	}
	panic("a value is too large for its symbols")
}

// encode writes one block.
func encode(steps []step, kind Kind) []byte {
	var literals []byte
	raw := 0
	seen := [4][]int{make([]int, 20), make([]int, 20), make([]int, 64), make([]int, 256)}
	for _, s := range steps {
		literals = append(literals, s.literals...)
		raw += len(s.literals) + s.match
		for i, v := range [3]int{len(s.literals), s.match, s.distance} {
			symbol, _ := symbolOf(v, [3][]int{extraL, extraM, extraD}[i])
			seen[i][symbol]++
		}
	}
	for len(literals)%4 != 0 {
		literals = append(literals, 0)
	}
	for _, c := range literals {
		seen[3][c]++
	}
	coders := [4]coder{newCoder(seen[0], 64), newCoder(seen[1], 64), newCoder(seen[2], 256), newCoder(seen[3], 1024)}
	b := encoded{raw: raw, literals: len(literals), matches: len(steps), coders: coders}
	for i, c := range slices.Backward(literals) {
		b.literalState[i%4] = coders[3].put(&b.text, b.literalState[i%4], int(c))
	}
	b.lmd.put(0, 32) // Apple's encoder has 8 bytes before the first bits, which 7-Zip verifies
	b.lmd.put(0, 32)
	for _, s := range slices.Backward(steps) {
		values := [3]int{len(s.literals), s.match, s.distance}
		for i := 2; i >= 0; i-- {
			extra := [3][]int{extraL, extraM, extraD}[i]
			symbol, rest := symbolOf(values[i], extra)
			b.lmd.put(uint32(rest), extra[symbol])
			b.state[i] = coders[i].put(&b.lmd, b.state[i], symbol)
		}
	}
	head := b.full()
	if kind == Packed {
		head = b.packed()
	}
	return append(append(head, b.text.out...), b.lmd.out...)
}

// encoded is a block without its header.
type encoded struct {
	raw, literals, matches int
	text, lmd              writer
	literalState           [4]int
	state                  [3]int
	coders                 [4]coder
}

// full writes the header of bvx1.
func (b *encoded) full() []byte {
	out := []byte("bvx1")
	for _, v := range []int{b.raw, len(b.text.out) +
		len(b.lmd.out), b.literals, b.matches, len(b.text.out), len(b.lmd.out), b.text.missing()} {
		out = le.AppendUint32(out, uint32(v))
	}
	for _, v := range b.literalState {
		out = le.AppendUint16(out, uint16(v))
	}
	out = le.AppendUint32(out, uint32(b.lmd.missing()))
	for _, v := range b.state {
		out = le.AppendUint16(out, uint16(v))
	}
	for _, c := range b.coders {
		for _, v := range c.counts {
			out = le.AppendUint16(out, v)
		}
	}
	return append(out, 0, 0)
}

// packed writes the header of bvx2.
func (b *encoded) packed() []byte {
	var f writer
	for _, c := range b.coders {
		for _, v := range c.counts {
			putCount(&f, uint32(v))
		}
	}
	out := le.AppendUint32([]byte("bvx2"), uint32(b.raw))
	out = le.AppendUint64(out, uint64(b.literals)|uint64(len(b.text.out))<<20|uint64(b.matches)<<40|
		uint64(b.text.missing()+7)<<60)
	word := uint64(len(b.lmd.out))<<40 | uint64(b.lmd.missing()+7)<<60
	for i, v := range b.literalState {
		word |= uint64(v) << (10 * i)
	}
	out = le.AppendUint64(out, word)
	out = le.AppendUint64(out, uint64(32+len(f.out))|uint64(b.state[0])<<32|uint64(b.state[1])<<42|
		uint64(b.state[2])<<52)
	return append(out, f.out...)
}

// putCount writes a frequency: 0 and 1 in two bits, 2 and 3 in three, to 7 in five, to 23
// in eight, above in fourteen.
func putCount(w *writer, v uint32) {
	switch {
	case v < 2:
		w.put(v*2, 2)
	case v < 4:
		w.put(1|(v-2)<<2, 3)
	case v < 8:
		w.put(3|(v-4)<<3, 5)
	case v < 24:
		w.put(7|(v-8)<<4, 8)
	default:
		w.put(15|(v-24)<<4, 14)
	}
}
