package glob

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxPatternBytes is the maximum length of a pattern.
	MaxPatternBytes = 1024
	// MaxPatterns is the maximum number of patterns of a Set.
	MaxPatterns = 1000
)

// anyElements is the element that stands for any number of elements.
const anyElements = "**"

// Pattern is a compiled pattern. It is safe for concurrent use.
type Pattern struct {
	text     string
	elements []element
}

// element is what an element of a path is compared with.
type element struct {
	any    bool    // **: any number of elements
	text   string  // without special characters; where tokens is nil
	tokens []token // otherwise
}

// token is what one character, or a star any number of them, is compared with.
type token struct {
	kind   tokenKind
	char   rune        // of a literal
	ranges []runeRange // of a set
	negate bool        // the set has all other characters
}

type tokenKind byte

const (
	literal tokenKind = iota
	anyChar
	set
	star
)

type runeRange struct{ first, last rune }

// Compile compiles a pattern that is compared with a whole text, whose elements a slash separates.
func Compile(pattern string) (*Pattern, error) {
	p, err := compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("invalid pattern %q: %w", pattern, err)
	}
	return p, nil
}

// CompilePath compiles a pattern of paths. One that begins with a slash is compared with the whole path, others also
// with what follows any slash of it: "node_modules" is every entry of this name. "." and ".." as elements are refused,
// since no path has them.
func CompilePath(pattern string) (*Pattern, error) {
	rest, anchored := strings.CutPrefix(pattern, "/")
	p, err := compile(rest)
	isDots := func(e element) bool { return e.text == "." || e.text == ".." }
	if err == nil && slices.ContainsFunc(p.elements, isDots) {
		err = errors.New("it has . or .. between slashes, and matches nothing: begin with / or with a name")
	}
	if err != nil {
		return nil, fmt.Errorf("invalid pattern %q: %w", pattern, err)
	}
	if p.text = pattern; !anchored {
		p.elements = append([]element{{any: true}}, p.elements...)
	}
	return p, nil
}

func compile(pattern string) (*Pattern, error) {
	switch {
	case pattern == "":
		return nil, errors.New("it is empty")
	case len(pattern) > MaxPatternBytes:
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(pattern), MaxPatternBytes)
	case !utf8.ValidString(pattern):
		return nil, errors.New("it is not UTF-8")
	}
	p := &Pattern{text: pattern}
	for text := range strings.SplitSeq(pattern, "/") {
		e, err := compileElement(text)
		if err != nil {
			return nil, err
		}
		if n := len(p.elements); e.any && n > 0 && p.elements[n-1].any {
			continue // **/** is **
		}
		p.elements = append(p.elements, e)
	}
	return p, nil
}

func compileElement(text string) (element, error) {
	switch {
	case text == "":
		return element{}, errors.New("an element between slashes, or after the last one, is empty")
	case text == anyElements:
		return element{any: true}, nil
	case strings.Contains(text, anyElements):
		return element{}, errors.New("** must be a whole element, as in a/**/b")
	case !strings.ContainsAny(text, `*?[\`):
		return element{text: text}, nil
	}
	var e element
	for text != "" {
		t, rest, err := nextToken(text)
		if err != nil {
			return e, err
		}
		e.tokens, text = append(e.tokens, t), rest
	}
	return e, nil
}

// nextToken compiles the first token of an element.
func nextToken(text string) (t token, rest string, err error) {
	switch text[0] {
	case '*':
		return token{kind: star}, text[1:], nil
	case '?':
		return token{kind: anyChar}, text[1:], nil
	case '[':
		return compileSet(text[1:])
	}
	c, rest, err := nextChar(text)
	return token{char: c}, rest, err
}

// nextChar returns the first character, or the one that a backslash precedes.
func nextChar(text string) (c rune, rest string, err error) {
	if text[0] == '\\' {
		if text = text[1:]; text == "" {
			return 0, "", errors.New(`nothing follows the last \`)
		}
	}
	c, n := utf8.DecodeRuneInString(text)
	return c, text[n:], nil
}

// compileSet compiles the text after the opening bracket of a set. A closing bracket that is its first character
// belongs to it.
func compileSet(text string) (t token, rest string, err error) {
	t.kind = set
	if text != "" && (text[0] == '!' || text[0] == '^') {
		t.negate, text = true, text[1:]
	}
	for first := true; ; first = false {
		if text == "" {
			return t, "", errors.New("a set has no closing ]")
		}
		if text[0] == ']' && !first {
			return t, text[1:], nil
		}
		var r runeRange
		if r.first, text, err = nextChar(text); err != nil {
			return t, "", err
		}
		r.last = r.first
		if len(text) > 1 && text[0] == '-' && text[1] != ']' {
			if r.last, text, err = nextChar(text[1:]); err != nil {
				return t, "", err
			}
		}
		if r.last < r.first {
			return t, "", fmt.Errorf("the range %c-%c of a set is empty", r.first, r.last)
		}
		t.ranges = append(t.ranges, r)
	}
}

// String returns the text of the pattern.
func (p *Pattern) String() string { return p.text }

// Match reports whether a text matches. A slash at its beginning counts as none.
func (p *Pattern) Match(text string) bool {
	rest := elementsOf(strings.TrimPrefix(text, "/"))
	at := 0
	// where to go on after a mismatch: the last ** takes one element more
	retry, retryRest := -1, elements{}
	for {
		switch {
		case at < len(p.elements) && p.elements[at].any:
			at++
			retry, retryRest = at, rest
			continue
		case at < len(p.elements) && !rest.end && p.elements[at].matches(rest.first()):
			at, rest = at+1, rest.next()
			continue
		case at == len(p.elements) && rest.end:
			return true
		}
		if retry < 0 || retryRest.end {
			return false
		}
		retryRest = retryRest.next()
		at, rest = retry, retryRest
	}
}

// elements are the elements of a path that were not compared yet.
type elements struct {
	text string
	end  bool // there are none
}

func elementsOf(path string) elements { return elements{path, path == ""} }

func (e elements) first() string {
	first, _, _ := strings.Cut(e.text, "/")
	return first
}

func (e elements) next() elements {
	_, rest, more := strings.Cut(e.text, "/")
	return elements{rest, !more}
}

// matches compares one element of a path.
func (e *element) matches(text string) bool {
	if e.tokens == nil {
		return text == e.text
	}
	at, retry, retryText := 0, -1, ""
	for {
		switch {
		case at < len(e.tokens) && e.tokens[at].kind == star:
			at++
			retry, retryText = at, text
			continue
		case at < len(e.tokens) && text != "":
			c, n := utf8.DecodeRuneInString(text)
			if e.tokens[at].matches(c, n) {
				at, text = at+1, text[n:]
				continue
			}
		case at == len(e.tokens) && text == "":
			return true
		}
		if retry < 0 || retryText == "" {
			return false
		}
		_, n := utf8.DecodeRuneInString(retryText)
		retryText = retryText[n:]
		at, text = retry, retryText
	}
}

// matches compares a character of size bytes. A byte that is not UTF-8 matches only stars, ? and negated sets.
func (t *token) matches(c rune, size int) bool {
	invalid := c == utf8.RuneError && size == 1
	switch t.kind {
	case literal:
		return c == t.char && !invalid
	case set:
		for _, r := range t.ranges {
			if r.first <= c && c <= r.last && !invalid {
				return !t.negate
			}
		}
		return t.negate
	}
	return true
}
