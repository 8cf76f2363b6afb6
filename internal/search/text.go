package search

import "strings"

// fieldEnd is between the fields of a text.
const fieldEnd = "\x00"

// Text returns the fields of a record as one text, for MayMatch.
func Text(fields []Field) string {
	var out strings.Builder
	size := 0
	for i := range fields {
		size += min(len(fields[i].Text), maxFieldBytes) + len(fieldEnd)
	}
	out.Grow(size)
	for i := range fields {
		text := fields[i].Text
		for _, c := range []byte(text[:min(len(text), maxFieldBytes)]) {
			out.WriteByte(lowerByte(c))
		}
		out.WriteString(fieldEnd)
	}
	return out.String()
}

// MayMatch reports whether a record whose fields have this text may match. It is much faster than Match and true of
// each record that matches, and of few others.
func (q Query) MayMatch(text string) bool {
	if strings.Contains(text, q.phrase) {
		return true
	}
	for _, word := range q.words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return q.words != nil
}
