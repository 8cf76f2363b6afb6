package filter

import "strings"

// term is one term as it was written.
type term struct {
	pos     int // where it begins, without its sign
	negated bool
	field   string // "": a word without a field
	op      string // ":", ">", "<", ">=" or "<="
	values  []value
}

// value is one of the alternatives of a term.
type value struct {
	pos    int
	text   string
	quoted bool // * is not a wildcard
}

// termParser walks over a filter's text.
type termParser struct {
	input string
	pos   int
}

// parseTerms reads the terms of a filter.
func parseTerms(text string) ([]term, error) {
	if len(text) > MaxTextBytes {
		return nil, errorAt(MaxTextBytes, "filter limit (%d bytes) reached", MaxTextBytes)
	}
	var terms []term
	for r := (termParser{input: text}); ; {
		r.skipSpaces()
		if r.pos == len(text) {
			return terms, nil
		}
		if len(terms) == maxTerms {
			return nil, errorAt(r.pos, "filter limit (%d terms) reached", maxTerms)
		}
		t, err := r.parseTerm()
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (r *termParser) skipSpaces() {
	for r.pos < len(r.input) && isSpace(r.input[r.pos]) {
		r.pos++
	}
}

// peek returns the next byte, 0 at the end: a zero byte in a filter ends it as well, see value.
func (r *termParser) peek() byte {
	if r.pos < len(r.input) {
		return r.input[r.pos]
	}
	return 0
}

func (r *termParser) parseTerm() (t term, err error) {
	if r.peek() == '-' {
		t.negated = true
		r.pos++
	}
	t.pos = r.pos
	end := r.pos
	for end < len(r.input) && isFieldByte(r.input[end]) {
		end++
	}
	if end > r.pos && end < len(r.input) && strings.IndexByte(":<>=", r.input[end]) >= 0 {
		t.field = r.input[r.pos:end]
		r.pos = end
		t.op = r.parseOperator()
	}
	t.values, err = r.parseValues()
	return t, err
}

func isFieldByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func (r *termParser) parseOperator() string {
	op := r.input[r.pos : r.pos+1]
	r.pos++
	if op == "=" {
		return ":"
	}
	if op != ":" && r.peek() == '=' {
		r.pos++
		op += "="
	}
	return op
}

// parseValues reads the alternatives of a term.
func (r *termParser) parseValues() ([]value, error) {
	for list := []value(nil); ; r.pos++ { // over the comma
		v, err := r.parseValue()
		if err != nil {
			return nil, err
		}
		if list = append(list, v); len(list) > maxValues {
			return nil, errorAt(v.pos, "term limit (%d values) reached", maxValues)
		}
		if r.peek() != ',' {
			return list, nil
		}
	}
}

func (r *termParser) parseValue() (value, error) {
	v := value{pos: r.pos}
	if r.peek() == '"' {
		return r.parseQuoted()
	}
	for r.pos < len(r.input) && !isSpace(r.input[r.pos]) && r.input[r.pos] != ',' && r.input[r.pos] != '"' {
		r.pos++
	}
	switch v.text = r.input[v.pos:r.pos]; {
	case r.peek() == '"':
		return v, errorAt(r.pos, "quote in the middle of a value")
	case v.text == "":
		return v, errorAt(v.pos, "missing value; an empty one is written \"\"")
	}
	return v, nil
}

// parseQuoted parses a value in quotes, in which \ makes the next character literal.
func (r *termParser) parseQuoted() (value, error) {
	v := value{pos: r.pos, quoted: true}
	var text strings.Builder
	for r.pos++; r.pos < len(r.input); r.pos++ {
		switch c := r.input[r.pos]; {
		case c == '"':
			r.pos++
			if r.pos < len(r.input) && !isSpace(r.input[r.pos]) && r.input[r.pos] != ',' {
				return v, errorAt(r.pos, "want a blank or a comma after a quoted value")
			}
			v.text = text.String()
			return v, nil
		case c == '\\' && r.pos+1 < len(r.input):
			r.pos++
			text.WriteByte(r.input[r.pos])
		default:
			text.WriteByte(c)
		}
	}
	return v, errorAt(v.pos, "missing closing quote")
}
