package udif

import "errors"

var errADC = errors.New("its codes contradict its length")

// decodeADC decodes Apple Data Compression: literals, and repeats of bytes before. It returns the number of
// bytes. The codes are:
//
//	1nnnnnnn                       n+1 literals follow
//	01nnnnnn dddddddd dddddddd     n+4 bytes from d+1 before
//	00nnnndd dddddddd              n+3 bytes from d+1 before
func decodeADC(out, packed []byte) (int, error) {
	written := 0
	for len(packed) > 0 {
		code := int(packed[0])
		if code >= 0x80 {
			n := code&0x7f + 1
			if n >= len(packed) || n > len(out)-written {
				return written, errADC
			}
			written += copy(out[written:], packed[1:1+n])
			packed = packed[1+n:]
			continue
		}

		length, used := code>>2+3, 2
		if code >= 0x40 {
			length, used = code&0x3f+4, 3
		}
		if len(packed) < used {
			return written, errADC
		}
		distance := code&3<<8 | int(packed[1])
		if used == 3 {
			distance = int(packed[1])<<8 | int(packed[2])
		}
		packed = packed[used:]
		if distance++; distance > written || length > len(out)-written {
			return written, errADC
		}
		for range length {
			out[written] = out[written-distance]
			written++
		}
	}
	return written, nil
}
