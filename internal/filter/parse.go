package filter

import "strings"

// term is one term as it was written.
type term struct {
	at     int // where it begins, without its sign
	not    bool
	field  string // "": a word without a field
	op     string // ":", ">", "<", ">=" or "<="
	values []value
}

// value is one of the alternatives of a term.
type value struct {
	at     int
	text   string
	quoted bool // * is not a wildcard
}

// reader walks over a filter's text.
type reader struct {
	text string
	at   int
}

// split reads the terms of a filter.
func split(text string) ([]term, error) {
	if len(text) > MaxText {
		return nil, wrong(MaxText, "filter limit (%d bytes) reached", MaxText)
	}
	var terms []term
	for r := (reader{text: text}); ; {
		r.blanks()
		if r.at == len(text) {
			return terms, nil
		}
		if len(terms) == maxTerms {
			return nil, wrong(r.at, "filter limit (%d terms) reached", maxTerms)
		}
		t, err := r.term()
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (r *reader) blanks() {
	for r.at < len(r.text) && blank(r.text[r.at]) {
		r.at++
	}
}

// peek returns the next byte, 0 at the end: a zero byte in a filter ends it as well, see value.
func (r *reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *reader) term() (t term, err error) {
	if r.peek() == '-' {
		t.not = true
		r.at++
	}
	t.at = r.at
	end := r.at
	for end < len(r.text) && fieldByte(r.text[end]) {
		end++
	}
	if end > r.at && end < len(r.text) && strings.IndexByte(":<>=", r.text[end]) >= 0 {
		t.field = r.text[r.at:end]
		r.at = end
		t.op = r.operator()
	}
	t.values, err = r.values()
	return t, err
}

func fieldByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func (r *reader) operator() string {
	op := r.text[r.at : r.at+1]
	r.at++
	if op == "=" {
		return ":"
	}
	if op != ":" && r.peek() == '=' {
		r.at++
		op += "="
	}
	return op
}

// values reads the alternatives of a term.
func (r *reader) values() ([]value, error) {
	for list := []value(nil); ; r.at++ { // over the comma
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		if list = append(list, v); len(list) > maxValues {
			return nil, wrong(v.at, "term limit (%d values) reached", maxValues)
		}
		if r.peek() != ',' {
			return list, nil
		}
	}
}

func (r *reader) value() (value, error) {
	v := value{at: r.at}
	if r.peek() == '"' {
		return r.quoted()
	}
	for r.at < len(r.text) && !blank(r.text[r.at]) && r.text[r.at] != ',' && r.text[r.at] != '"' {
		r.at++
	}
	switch v.text = r.text[v.at:r.at]; {
	case r.peek() == '"':
		return v, wrong(r.at, "quote in the middle of a value")
	case v.text == "":
		return v, wrong(v.at, "missing value; an empty one is written \"\"")
	}
	return v, nil
}

// quoted parses a value in quotes, in which \ makes the next character literal.
func (r *reader) quoted() (value, error) {
	v := value{at: r.at, quoted: true}
	var text strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			if r.at < len(r.text) && !blank(r.text[r.at]) && r.text[r.at] != ',' {
				return v, wrong(r.at, "want a blank or a comma after a quoted value")
			}
			v.text = text.String()
			return v, nil
		case c == '\\' && r.at+1 < len(r.text):
			r.at++
			text.WriteByte(r.text[r.at])
		default:
			text.WriteByte(c)
		}
	}
	return v, wrong(v.at, "missing closing quote")
}
