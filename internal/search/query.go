package search

import "strings"

// Rank is how well a text matches a query; a lower one is better.
type Rank int

// The ranks.
const (
	Exact     Rank = iota // an id or a name is the query
	Prefix                // an id or a name begins with it
	Word                  // a word begins with it, or another field does
	Substring             // it is anywhere in a text
	none
)

// String returns the rank as clients see it.
func (r Rank) String() string { return [...]string{"exact", "prefix", "word", "substring", "none"}[r] }

// Bounds of a query and of what is searched for it.
const (
	MaxQueryBytes = 200
	maxWords      = 8
	maxFieldBytes = 1 << 10 // of a field, the rest is not searched
)

// Query is what a search looks for: one text, or several words which all must match. The case of ASCII letters does not
// count.
type Query struct {
	phrase string   // in lower case
	words  []string // nil: the phrase is one word
}

// ParseQuery returns the query of a text, of which the first MaxQueryBytes bytes count; ok is false for a blank one.
func ParseQuery(text string) (q Query, ok bool) {
	words := strings.Fields(fold(text[:min(len(text), MaxQueryBytes)]))
	if len(words) == 0 {
		return q, false
	}
	q.phrase = strings.Join(words, " ")
	if len(words) > 1 {
		q.words = words[:min(len(words), maxWords)]
	}
	return q, true
}

// Field is a searched text of a record.
type Field struct {
	Name string // of the field
	Key  string // of an entry in the field, as in metadata; "": the field is one text
	Text string
	IsID bool // an id or a name: only these match exactly, or by their beginning
}

// Match is how a record matches.
type Match struct {
	Rank  Rank
	Field int // index of the best of its fields
}

// Match returns how a record with these fields matches; ok is false when it does not.
func (q Query) Match(fields []Field) (m Match, ok bool) {
	text := Text(fields)
	rank, at := q.find(text)
	if rank == none {
		return Match{}, false
	}
	return Match{rank, fieldAt(text, at)}, true
}

// Rank returns how well a record matches whose fields have this text; ok is false when it does not.
func (q Query) Rank(text string) (rank Rank, ok bool) {
	rank, _ = q.find(text)
	return rank, rank != none
}

// find returns how well a text matches, and where it does so first.
func (q Query) find(text string) (rank Rank, at int) {
	rank, at = bestMatch(text, q.phrase)
	if rank != none || q.words == nil {
		return rank, at
	}
	rank = Exact
	for i, word := range q.words {
		one, begin := bestMatch(text, word)
		if one == none {
			return none, 0
		}
		if i == 0 {
			at = begin
		}
		rank = max(rank, one, Word) // a part of the query is never an exact match
	}
	return rank, at
}

// bestMatch returns the first part of a text that matches a word best; the rank is none when no part does.
func bestMatch(text, word string) (best Rank, at int) {
	best = none
	for from := 0; best != Exact; from++ {
		next := strings.Index(text[from:], word)
		if next < 0 {
			break
		}
		from += next
		if rank := rankAt(text, from, from+len(word)); rank < best {
			best, at = rank, from
		}
	}
	return best, at
}

// rankAt returns the rank of the part of a text from begin to end.
func rankAt(text string, begin, end int) Rank {
	switch before := text[begin-1]; {
	case before == idMark && isMark(text[end]):
		return Exact
	case before == idMark:
		return Prefix
	case isWordByte(before):
		return Substring
	}
	return Word
}

// isWordByte reports whether a byte in lower case is part of a word: letters, digits, and bytes of other alphabets.
func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80
}

// fold converts ASCII letters to lower case and control characters, of which some separate fields, to spaces.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = foldByte(c)
	}
	return string(b)
}

func foldByte(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	case c < ' ':
		return ' '
	}
	return c
}
