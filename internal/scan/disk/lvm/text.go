package lvm

import (
	"bytes"
	"math"
	"strconv"
)

// Limits of the text of metadata.
const (
	maxTextDepth   = 8
	maxTextEntries = 1 << 18 // sections, assignments and values
)

// textSection is a section of metadata: what is between two braces.
type textSection struct {
	names    []string // of the sections in it, in their order
	sections map[string]*textSection
	values   map[string][]textValue // an assigned value, or a list
}

// textValue is a string or a number.
type textValue struct {
	text     string
	number   int64
	isNumber bool
}

// textParser parses metadata: sections in braces, assignments of strings, numbers and lists of these, and comments.
type textParser struct {
	b       []byte
	at      int
	entries int
}

// parseText parses the text of metadata, which may end with zeros.
func parseText(text []byte) (*textSection, error) {
	p := &textParser{b: bytes.TrimRight(text, "\x00")}
	return p.parseSection(0)
}

// fail returns an error with the line.
func (p *textParser) fail(what string) error {
	return damaged("line %d of its LVM metadata: %s", 1+bytes.Count(p.b[:min(p.at, len(p.b))], []byte("\n")), what)
}

// isIDByte reports whether a byte may be in an identifier.
func isIDByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '!' || c == '#'
}

// isNameByte reports whether a byte may be in the name of a section, a volume or a field.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '.' || c == '+' || c == '-'
}

// peek returns the next byte that is neither white space nor of a comment; 0 is the end.
func (p *textParser) peek() byte {
	for p.at < len(p.b) {
		switch c := p.b[p.at]; c {
		case ' ', '\t', '\n', '\r':
			p.at++
		case '#':
			end := bytes.IndexByte(p.b[p.at:], '\n')
			if end < 0 {
				p.at = len(p.b)
				return 0
			}
			p.at += end + 1
		default:
			return c
		}
	}
	return 0
}

func (p *textParser) parseName() (string, error) {
	start := p.at
	for p.at < len(p.b) && isNameByte(p.b[p.at]) {
		p.at++
	}
	if start == p.at {
		return "", p.fail("want a name")
	}
	return string(p.b[start:p.at]), nil
}

func (p *textParser) count() error {
	if p.entries++; p.entries > maxTextEntries {
		return p.fail("there are more than " + strconv.Itoa(maxTextEntries) + " entries")
	}
	return nil
}

// parseSection parses what is in a section, up to its brace, or the end of the text at depth 0.
func (p *textParser) parseSection(depth int) (*textSection, error) {
	if depth > maxTextDepth {
		return nil, p.fail("sections are nested too deep")
	}
	s := &textSection{sections: map[string]*textSection{}, values: map[string][]textValue{}}
	for {
		switch c := p.peek(); {
		case c == 0 && p.at == len(p.b) && depth == 0:
			return s, nil
		case c == '}' && depth > 0:
			p.at++
			return s, nil
		}
		if err := p.parseEntry(s, depth); err != nil {
			return nil, err
		}
	}
}

// parseEntry parses an assignment or a section.
func (p *textParser) parseEntry(s *textSection, depth int) error {
	if err := p.count(); err != nil {
		return err
	}
	name, err := p.parseName()
	if err != nil {
		return err
	}
	_, assigned := s.values[name]
	if assigned || s.sections[name] != nil {
		return p.fail("there are two entries with the name " + name)
	}
	switch p.peek() {
	case '{':
		p.at++
		s.names = append(s.names, name)
		s.sections[name], err = p.parseSection(depth + 1)
	case '=':
		p.at++
		s.values[name], err = p.parseValues()
	default:
		err = p.fail("want = or { after " + name)
	}
	return err
}

// parseValues parses a value, or a list in brackets.
func (p *textParser) parseValues() ([]textValue, error) {
	if p.peek() != '[' {
		v, err := p.parseValue()
		return []textValue{v}, err
	}
	p.at++
	list := []textValue{}
	for {
		if p.peek() == ']' {
			p.at++
			return list, nil
		}
		v, err := p.parseValue()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		switch p.peek() {
		case ',':
			p.at++
		case ']':
		default:
			return nil, p.fail("want , or ] in a list")
		}
	}
}

func (p *textParser) parseValue() (textValue, error) {
	if err := p.count(); err != nil {
		return textValue{}, err
	}
	if p.peek() == '"' {
		text, err := p.parseString()
		return textValue{text: text}, err
	}
	start := p.at
	for p.at < len(p.b) && isNameByte(p.b[p.at]) {
		p.at++
	}
	word := string(p.b[start:p.at])
	n, err := strconv.ParseInt(word, 10, 64)
	if err == nil {
		return textValue{number: n, isNumber: true}, nil
	}
	if f, err := strconv.ParseFloat(word, 64); err == nil && !math.IsNaN(f) {
		return textValue{text: word}, nil // no field that is read here has a fraction
	}
	return textValue{}, p.fail("want a string in quotation marks or a number")
}

// parseString parses a string, in which a backslash precedes quotation marks and backslashes.
func (p *textParser) parseString() (string, error) {
	p.at++
	var out []byte
	for ; p.at < len(p.b); p.at++ {
		switch c := p.b[p.at]; c {
		case '"':
			p.at++
			return string(out), nil
		case '\\':
			if p.at++; p.at == len(p.b) {
				return "", p.fail("a string does not end")
			}
			out = append(out, p.b[p.at])
		default:
			out = append(out, c)
		}
	}
	return "", p.fail("a string does not end")
}

// text returns an assigned string; "" when there is none.
func (s *textSection) text(name string) string {
	if v := s.values[name]; len(v) == 1 && !v[0].isNumber {
		return v[0].text
	}
	return ""
}

// number returns an assigned number from low to high.
func (s *textSection) number(name string, low, high int64) (int64, error) {
	v := s.values[name]
	if len(v) != 1 || !v[0].isNumber {
		return 0, damaged("its LVM metadata has no number %s", name)
	}
	if n := v[0].number; n < low || n > high {
		return 0, damaged("its LVM metadata has %s = %d", name, n)
	}
	return v[0].number, nil
}

// has reports whether a list has a string.
func (s *textSection) has(name, text string) bool {
	for _, v := range s.values[name] {
		if !v.isNumber && v.text == text {
			return true
		}
	}
	return false
}

// children returns the sections of a section in it, none when it is missing.
func (s *textSection) children(name string) (names []string, all map[string]*textSection) {
	if in := s.sections[name]; in != nil {
		return in.names, in.sections
	}
	return nil, nil
}
