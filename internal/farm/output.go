package farm

import (
	"slices"
	"strings"
)

// OutputTruncatedLine is the first line of an output whose beginning is left out.
const OutputTruncatedLine = "[output was cut: only its end is kept]\n"

// LastOutput returns the last bytes of a program's output, at most limit of them. If some are left
// out, or were before, it begins with the line OutputTruncatedLine, which counts toward the limit.
func LastOutput(out []byte, limit int, cutBefore bool) []byte {
	if len(out) <= limit && !cutBefore {
		return out
	}
	keep := min(len(out), max(0, limit-len(OutputTruncatedLine)))
	return slices.Concat([]byte(OutputTruncatedLine[:min(len(OutputTruncatedLine), limit)]), out[len(out)-keep:])
}

// Clip keeps the first n bytes of a text, whole characters only.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
