package lzfsetest

const chunkSize = 32 << 10

// LZBitmap compresses bytes, with the empty chunk at the end.
func LZBitmap(b []byte) []byte {
	out := []byte("ZBM\x09")
	for start := 0; start < len(b); start += chunkSize {
		end := min(start+chunkSize, len(b))
		c := chunk(b, start, end)
		if len(c) >= end-start+6 {
			c = append(number(number(nil, end-start+6), end-start), b[start:end]...)
		}
		out = append(out, c...)
	}
	return append(out, 6, 0, 0, 0, 0, 0)
}

// number appends 24 bits.
func number(b []byte, v int) []byte { return append(b, byte(v), byte(v>>8), byte(v>>16)) }

// known are the bitmaps in the table of each chunk, with the bytes of a distance.
var known = [12][2]byte{
	{0xff, 0},
	{0, 0},
	{0, 1},
	{0, 2},
	{0x01, 0},
	{0x80, 1},
	{0x0f, 0},
	{0xf0, 0},
	{0x03, 1},
	{0x3f, 0},
	{0x01, 2},
	{0x07, 1},
}

// chunk compresses a range of bytes, whose matches may begin before it.
func chunk(b []byte, start, end int) []byte {
	var literals, distances, bitmaps, numbers []byte
	distance := 8
	for i := start; i < end; i += 8 {
		want := best(b, i, min(i+8, end), distance)
		var m, size byte
		if want != distance {
			distance, size = want, 1
			if want > 255 {
				size = 2
			}
		}
		for j := i; j < min(i+8, end); j++ {
			if j < distance || b[j-distance] != b[j] {
				m |= 1 << (j - i)
				literals = append(literals, b[j])
			}
		}
		for k := range size {
			distances = append(distances, byte(distance>>(8*k)))
		}
		id := size
		for k, v := range known {
			if v == [2]byte{m, size} {
				id = byte(k + 3)
			}
		}
		if id < 3 {
			bitmaps = append(bitmaps, m)
		}
		numbers = append(numbers, id)
	}
	return layOut(end-start, literals, distances, bitmaps, repeated(numbers, end-start))
}

// best returns the distance by which most of some bytes repeat.
func best(b []byte, from, to, now int) int {
	count := func(d int) (n int) {
		for j := from; j < to; j++ {
			if d > 0 && j >= d && b[j-d] == b[j] {
				n++
			}
		}
		return n
	}
	out, most := now, count(now)
	for d := 1; d <= min(from, 300); d++ {
		if d == 24 {
			d = 250 // those around where a distance takes two bytes
		}
		if n := count(d); n > most+2 {
			out, most = d, n
		}
	}
	return out
}

// repeated writes the numbers in half bytes, and counts those that come four times or
// more in a row. The last eight bytes are never part of a row.
func repeated(numbers []byte, size int) []byte {
	var half []byte
	for i := 0; i < len(numbers); {
		n := 1
		for i+n < len(numbers) && numbers[i+n] == numbers[i] {
			n++
		}
		half = append(half, numbers[i])
		if n < 4 || size-8*i <= 8 {
			i++
			continue
		}
		half = append(half, 15)
		for left := n - 4; ; left -= 15 {
			if left < 15 {
				half = append(half, byte(left))
				break
			}
			half = append(half, 15)
		}
		i += n
	}
	out := make([]byte, (len(half)+1)/2)
	for i, v := range half {
		out[i/2] |= v << (4 * (i % 2))
	}
	return out
}

func layOut(plain int, literals, distances, bitmaps, numbers []byte) []byte {
	at := 15 + len(literals)
	length := at + len(distances) + len(bitmaps) + len(numbers) + 17
	out := number(number(nil, length), plain)
	out = number(out, at)
	out = number(out, at+len(distances))
	out = number(out, at+len(distances)+len(bitmaps))
	for _, part := range [][]byte{literals, distances, bitmaps, numbers} {
		out = append(out, part...)
	}
	var w writer
	for _, v := range known {
		w.put(uint32(v[0]), 8)
		w.put(uint32(v[1]), 2)
	}
	return append(append(out, w.out...), 0, 0)
}
