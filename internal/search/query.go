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
	words := strings.Fields(lower(text[:min(len(text), MaxQueryBytes)]))
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
	m = bestField(q.phrase, fields)
	if m.Rank != none || q.words == nil {
		return m, m.Rank != none
	}
	m.Rank = Exact
	for i, word := range q.words {
		one := bestField(word, fields)
		if one.Rank == none {
			return Match{}, false
		}
		if i == 0 {
			m.Field = one.Field
		}
		m.Rank = max(m.Rank, one.Rank, Word) // a part of the query is never an exact match
	}
	return m, true
}

// bestField returns the rank of the field that matches a word best; none when no field does.
func bestField(word string, fields []Field) Match {
	best := Match{Rank: none}
	for i := range fields {
		rank := rankOf(fields[i].Text, word)
		if !fields[i].IsID && rank < Word {
			rank = Word
		}
		if rank < best.Rank {
			if best = (Match{Rank: rank, Field: i}); rank == Exact {
				return best
			}
		}
	}
	return best
}

// rankOf returns how a text matches a word that is in lower case.
func rankOf(text, word string) Rank {
	text = text[:min(len(text), maxFieldBytes)]
	best := none
	for at := 0; at+len(word) <= len(text); at++ {
		if lowerByte(text[at]) != word[0] || !hasPrefix(text[at:], word) {
			continue
		}
		switch {
		case at == 0 && len(text) == len(word):
			return Exact
		case at == 0:
			return Prefix
		case !isWordByte(text[at-1]):
			return Word
		}
		best = Substring
	}
	return best
}

// isWordByte reports whether a byte is part of a word: letters, digits, and bytes of other alphabets.
func isWordByte(c byte) bool {
	c = lowerByte(c)
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80
}

// hasPrefix reports whether a text begins with a prefix that is in lower case and not longer.
func hasPrefix(text, prefix string) bool {
	for i := range len(prefix) {
		if lowerByte(text[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// lower converts ASCII letters to lower case and leaves everything else unchanged.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lowerByte(c)
	}
	return string(b)
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
