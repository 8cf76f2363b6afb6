package match

import "strings"

// cpeName is a CPE 2.3 as a formatted string, split and without its escapes. "*" is any
// value and "-" is none.
type cpeName struct {
	part, vendor, product, version, update, edition, language string
	swEdition, targetSW, targetHW, other                      string
}

// parseCPE splits a formatted string. Escaped characters stay unchanged, so that none can be
// mistaken for the end of a name; an escaped "*" or "-" is a character, not a wildcard.
func parseCPE(s string) (cpeName, bool) {
	rest, ok := strings.CutPrefix(s, "cpe:2.3:")
	if !ok {
		return cpeName{}, false
	}
	var parts [11]string
	for i := range parts {
		end := cpePartEnd(rest)
		if end == len(rest) && i < len(parts)-1 || end < len(rest) && i == len(parts)-1 {
			return cpeName{}, false
		}
		parts[i] = unescapeCPE(rest[:end])
		if end < len(rest) {
			rest = rest[end+1:]
		}
	}
	return cpeName{
		part: parts[0], vendor: parts[1], product: parts[2], version: parts[3], update: parts[4], edition: parts[5],
		language: parts[6], swEdition: parts[7], targetSW: parts[8], targetHW: parts[9], other: parts[10],
	}, true
}

// cpePartEnd returns the index of the first unescaped colon, or the end.
func cpePartEnd(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ':':
			return i
		}
	}
	return len(s)
}

// unescapeCPE removes the escapes of a part. A part that is only an escaped wildcard keeps its escape:
// it is a name.
func unescapeCPE(s string) string {
	if !strings.Contains(s, `\`) || s == `\*` || s == `\-` {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isUnspecified reports whether a part of a CPE is unspecified.
func isUnspecified(part string) bool { return part == "*" || part == "-" || part == "" }
