package udiftest

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"os/exec"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/lzfse/lzfsetest"
)

// Packing is a way to store chunks.
type Packing struct {
	Name    string
	Kind    uint32
	Program string // that must be installed; "" = none
	Pack    func([]byte) ([]byte, error)
}

// Packings are all ways.
var Packings = []Packing{
	{"raw", kindRaw, "", func(b []byte) ([]byte, error) { return b, nil }},
	{"adc", 0x80000004, "", func(b []byte) ([]byte, error) { return ADC(b), nil }},
	{"zlib", 0x80000005, "", packZlib},
	{"bzip2", 0x80000006, "bzip2", program("bzip2", "-c", "-1")},
	{"lzfse", 0x80000007, "", func(b []byte) ([]byte, error) { return lzfsetest.LZFSE(b, lzfsetest.Packed), nil }},
	{"xz", 0x80000008, "xz", program("xz", "-c", "-0")},
}

// Named returns the way with a name.
func Named(name string) Packing {
	k := slices.IndexFunc(Packings, func(p Packing) bool { return p.Name == name })
	return Packings[k]
}

func packZlib(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := zlib.NewWriterLevel(&out, zlib.BestSpeed)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// program compresses with a program that reads and writes standard streams.
func program(name string, args ...string) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		c := exec.Command(name, args...) //nolint:noctx // it ends with its input
		c.Stdin = bytes.NewReader(b)
		out, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return out, nil
	}
}

const (
	adcNear, adcFar           = 1 << 10, 1 << 16 // largest distances
	adcNearLength, adcLongest = 18, 67
	adcLiterals               = 128
)

// ADC compresses with Apple Data Compression: repeats are looked up by their first three bytes.
func ADC(b []byte) []byte {
	var out []byte
	last, literals := make([]int, 1<<16), 0 // the newest place of a hash, plus one; the first byte that is not in out
	flush := func(end int) {
		for literals < end {
			n := min(end-literals, adcLiterals)
			out = append(append(out, byte(0x80|(n-1))), b[literals:literals+n]...)
			literals += n
		}
	}
	for at := 0; at < len(b); {
		length, distance := 0, 0
		if at+3 <= len(b) {
			hash := (uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16) * 2654435761 >> 16
			if from := last[hash] - 1; from >= 0 && at-from <= adcFar {
				distance = at - from
				for length < adcLongest && at+length < len(b) && b[from+length] == b[at+length] {
					length++
				}
			}
			last[hash] = at + 1
		}
		switch {
		case length > adcNearLength || length > 3 && distance > adcNear:
			flush(at)
			out = append(out, byte(0x40|(length-4)), byte((distance-1)>>8), byte(distance-1))
		case length >= 3 && distance <= adcNear:
			flush(at)
			out = append(out, byte((length-3)<<2|(distance-1)>>8), byte(distance-1))
		default:
			at++
			continue
		}
		at += length
		literals = at
	}
	flush(len(b))
	return out
}
