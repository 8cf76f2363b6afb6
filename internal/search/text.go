package search

// A mark is before each field of a text, and after the last one. Fields have no control characters.
const (
	fieldMark = '\x00'
	idMark    = '\x01' // before an ID or a name
)

func isMark(c byte) bool { return c <= idMark }

// Text returns the fields of a record as one text, for Query.Rank. Searching that takes a fraction of the time that
// many small fields take.
func Text(fields []Field) string {
	size := 1
	for i := range fields {
		size += 1 + min(len(fields[i].Text), maxFieldBytes)
	}
	out := make([]byte, 0, size)
	for i := range fields {
		mark := byte(fieldMark)
		if fields[i].IsID {
			mark = idMark
		}
		out = append(out, mark)
		text := fields[i].Text
		for j := range min(len(text), maxFieldBytes) {
			out = append(out, foldByte(text[j]))
		}
	}
	return string(append(out, fieldMark))
}

// fieldAt returns the index of the field that a byte of a text belongs to.
func fieldAt(text string, at int) int {
	index := -1
	for _, c := range []byte(text[:at]) {
		if isMark(c) {
			index++
		}
	}
	return index
}
