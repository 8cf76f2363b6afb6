package filter

import (
	"slices"
	"strings"
)

// pattern is a text with wildcards, in lower case: the parts between them.
type pattern []string

// textCondition compiles the values of a term of a text field.
func (t term) textCondition() (func(string) bool, error) {
	if t.op != ":" {
		return nil, errorAt(t.pos, "%s is text: want %s:value", t.field, t.field)
	}
	list := make([]pattern, len(t.values))
	for i, v := range t.values {
		list[i] = v.compile()
	}
	return func(s string) bool {
		return slices.ContainsFunc(list, func(p pattern) bool { return p.match(s) })
	}, nil
}

func (v value) compile() pattern {
	text := lower(v.text)
	if v.quoted {
		return pattern{text}
	}
	return strings.Split(text, "*")
}

// containsPattern is the pattern of texts that have a value in them.
func containsPattern(v value) pattern {
	p := v.compile()
	return slices.Concat(pattern{""}, p, pattern{""})
}

// match reports whether a whole text matches. The parts are searched one after the other, each at
// its first occurrence: for wildcards that stand for any text that is sufficient.
func (p pattern) match(s string) bool {
	first, last := p[0], p[len(p)-1]
	if len(p) == 1 {
		return len(s) == len(first) && hasPrefix(s, first)
	}
	if len(s) < len(first)+len(last) || !hasPrefix(s, first) || !hasPrefix(s[len(s)-len(last):], last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	s = lower(s[:min(len(s), maxSearchBytes)])
	for _, part := range p[1 : len(p)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// maxSearchBytes is the prefix of a text that is searched for the parts between wildcards, in bytes: only
// messages are longer.
const maxSearchBytes = 1 << 10

// lower converts ASCII letters to lower case and leaves everything else unchanged, so that no text
// changes its length.
func lower(s string) string {
	for i := range len(s) {
		if lowerByte(s[i]) == s[i] {
			continue
		}
		b := []byte(s)
		for i, c := range b {
			b[i] = lowerByte(c)
		}
		return string(b)
	}
	return s
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// hasPrefix reports whether s begins with a prefix, which is in lower case and not longer than s.
func hasPrefix(s, prefix string) bool {
	for i := range len(prefix) {
		if lowerByte(s[i]) != prefix[i] {
			return false
		}
	}
	return true
}
