package filter

import (
	"slices"
	"strconv"
	"strings"
)

// unit is the notation of the values of a kind of field.
type unit struct {
	description string // "a number such as 3"
	compound    bool   // several may follow each other: 1h30m
	factors     map[string]float64
	equality    bool // : compares for equality
}

var (
	numberUnit = unit{description: "a number such as 3", factors: map[string]float64{"": 1}, equality: true}
	sizeUnit   = unit{description: "a size such as 512MB or 4GB", equality: true, factors: map[string]float64{
		"": 1, "b": 1,
		"k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
		"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
	}}
	durationUnit = unit{description: "a time such as 90s, 10m, 2h or 3d", compound: true, factors: map[string]float64{
		"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600,
	}}
)

// operators compare a field's value with the term's.
var operators = map[string]func(field, value float64) bool{
	">":  func(field, value float64) bool { return field > value },
	"<":  func(field, value float64) bool { return field < value },
	">=": func(field, value float64) bool { return field >= value },
	"<=": func(field, value float64) bool { return field <= value },
}

// numberCondition returns the condition of a term on the value of its field.
func (t term) numberCondition(u unit) (func(float64) bool, error) {
	values := make([]float64, len(t.values))
	for i, v := range t.values {
		n, ok := u.parse(v.text)
		if !ok {
			return nil, errorAt(v.pos, "%s takes %s", t.field, u.description)
		}
		values[i] = n
	}
	switch compare := operators[t.op]; {
	case compare == nil && !u.equality:
		return nil, errorAt(t.pos, "%s is compared: want %s>10m or %s<10m", t.field, t.field, t.field)
	case compare == nil:
		return func(n float64) bool { return slices.Contains(values, n) }, nil
	case len(values) > 1:
		return nil, errorAt(t.values[1].pos, "%s%s takes one value", t.field, t.op)
	default:
		return func(n float64) bool { return compare(n, values[0]) }, nil
	}
}

// parse reads a value with its unit.
func (u unit) parse(text string) (total float64, ok bool) {
	if text == "" { // quoted
		return 0, false
	}
	for first := true; text != ""; first = false {
		if !first && !u.compound {
			return 0, false
		}
		digits := text[:prefixLength(text, isDigit)]
		text = text[len(digits):]
		name := text[:prefixLength(text, func(c byte) bool { return !isDigit(c) })]
		text = text[len(name):]
		n, err := strconv.ParseFloat(digits, 64)
		factor, known := u.factors[strings.ToLower(name)]
		if err != nil || !known || name == "" && !first {
			return 0, false
		}
		total += n * factor
	}
	return total, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

// prefixLength returns the length of the prefix of text whose bytes all satisfy is.
func prefixLength(text string, is func(byte) bool) int {
	n := 0
	for n < len(text) && is(text[n]) {
		n++
	}
	return n
}
