//go:build !purego

package pairsum

import "golang.org/x/sys/cpu"

// supported reports whether the processor has all instructions of addBlocks.
var supported = cpu.X86.HasAVX && cpu.X86.HasSSSE3 && cpu.X86.HasSSE41 && hasSHA()

// hasSHA reports whether the processor has the SHA instructions.
func hasSHA() bool

// addBlocks adds the blocks of p and q, which have the same length, to the states x and y.
//
//go:noescape
func addBlocks(x, y *[8]uint32, p, q []byte)
