package filter

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits of a filter's text.
const (
	MaxTextBytes = 2000 // bytes
	maxTerms     = 50
	maxValues    = 100 // in one term
)

// Field is one field of a resource. Exactly one of the functions is set, which determines the kind
// of field.
type Field[T any] struct {
	Name      string
	Text      func(T) string
	Texts     func(T) []string        // one of which must match
	Number    func(T) float64         // compared as is
	Size      func(T) float64         // in bytes
	Age       func(T) time.Time       // compared as an age; the zero time matches nothing
	Duration  func(T) (float64, bool) // in seconds; false: no value, matches nothing
	IsDefault bool                    // with Text or Texts: words without a field are searched in it
	// Values is the closed set of the values of Text or Texts, as clients see them: other values in a filter are an
	// error. nil: any value.
	Values []string
	// Suggest returns the values that a completion offers for a record; nil: those of Text or Texts.
	Suggest func(T) []string
	Summary string // what the field is, for a reader; "": as its kind
}

// Table is the fields of a resource.
type Table[T any] []Field[T]

// Filter is a parsed filter for records of one type. The zero value matches all. It may be used by
// several goroutines.
type Filter[T any] struct{ conditions []func(T, time.Time) bool }

// MatchesAll reports whether the filter matches everything.
func (f Filter[T]) MatchesAll() bool { return len(f.conditions) == 0 }

// Match reports whether a record matches; now is the end of ages.
func (f Filter[T]) Match(v T, now time.Time) bool {
	for _, fits := range f.conditions {
		if !fits(v, now) {
			return false
		}
	}
	return true
}

// Error describes what is wrong with a filter's text, and where.
type Error struct {
	Pos     int // the position of the error in bytes, from 1
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("at %d: %s", e.Pos, e.Message) }

func errorAt(at int, format string, args ...any) error {
	return &Error{Pos: at + 1, Message: fmt.Sprintf(format, args...)}
}

// Parse reads a filter; the error is an *Error.
func (t Table[T]) Parse(text string) (Filter[T], error) {
	var f Filter[T]
	terms, err := parseTerms(text)
	if err != nil {
		return f, err
	}
	for _, term := range terms {
		fits, err := t.compileTerm(term)
		if err != nil {
			return Filter[T]{}, err
		}
		if term.negated {
			f.conditions = append(f.conditions, func(v T, now time.Time) bool { return !fits(v, now) })
		} else {
			f.conditions = append(f.conditions, fits)
		}
	}
	return f, nil
}

func (t Table[T]) compileTerm(m term) (func(T, time.Time) bool, error) {
	if m.field == "" {
		return t.compileWord(m)
	}
	i := slices.IndexFunc(t, func(f Field[T]) bool { return strings.EqualFold(f.Name, m.field) })
	if i < 0 {
		return nil, t.unknownField(m.pos, m.field)
	}
	f := t[i]
	if err := m.checkValues(f.Values); err != nil {
		return nil, err
	}
	switch {
	case f.Text != nil:
		fits, err := m.textCondition()
		return func(v T, _ time.Time) bool { return fits(f.Text(v)) }, err
	case f.Texts != nil:
		fits, err := m.textCondition()
		return func(v T, _ time.Time) bool { return slices.ContainsFunc(f.Texts(v), fits) }, err
	case f.Number != nil:
		fits, err := m.numberCondition(numberUnit)
		return func(v T, _ time.Time) bool { return fits(f.Number(v)) }, err
	case f.Size != nil:
		fits, err := m.numberCondition(sizeUnit)
		return func(v T, _ time.Time) bool { return fits(f.Size(v)) }, err
	case f.Duration != nil:
		fits, err := m.numberCondition(durationUnit)
		return func(v T, _ time.Time) bool {
			seconds, has := f.Duration(v)
			return has && fits(seconds)
		}, err
	default:
		fits, err := m.numberCondition(durationUnit)
		return func(v T, now time.Time) bool {
			since := f.Age(v)
			return !since.IsZero() && fits(now.Sub(since).Seconds())
		}, err
	}
}

// compileWord compiles a word without a field.
func (t Table[T]) compileWord(m term) (func(T, time.Time) bool, error) {
	var fields []Field[T]
	for _, f := range t {
		if f.IsDefault {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return nil, errorAt(m.pos, "invalid term %s: want field:value; the fields are %s", quoteShort(m.values[0].text),
			strings.Join(t.FieldNames(), ", "))
	}
	var words []pattern
	for _, v := range m.values {
		words = append(words, containsPattern(v))
	}
	fits := func(text string) bool {
		return slices.ContainsFunc(words, func(p pattern) bool { return p.match(text) })
	}
	return func(v T, _ time.Time) bool {
		for _, f := range fields {
			if f.Text != nil && fits(f.Text(v)) || f.Texts != nil && slices.ContainsFunc(f.Texts(v), fits) {
				return true
			}
		}
		return false
	}, nil
}

// unknownField returns the error about a field that the table does not have.
func (t Table[T]) unknownField(at int, name string) error {
	names := t.FieldNames()
	return errorAt(at, "unknown field %s; the fields are %s%s", quoteShort(name), strings.Join(names, ", "),
		didYouMean(name, names))
}

// FieldNames returns the names of the fields, sorted.
func (t Table[T]) FieldNames() []string {
	names := make([]string, len(t))
	for i, f := range t {
		names[i] = f.Name
	}
	slices.Sort(names)
	return names
}

// quoteShort shortens a text of a client for a message.
func quoteShort(s string) string {
	const most = 40
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}
