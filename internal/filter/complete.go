package filter

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

// maxDistinctValues bounds the different values that are counted for a completion.
const maxDistinctValues = 10000

// Completion is how the last word of a filter's text can go on.
type Completion struct {
	Start  int               // position of the word in bytes
	Fields []FieldSummary    // whose names begin with the word, in the order of the table
	Values []ValueCompletion // those that begin with the text first, then the most frequent
}

// FieldSummary is a field for a reader.
type FieldSummary struct{ Name, Text string }

// ValueCompletion is a value that the last word can have.
type ValueCompletion struct {
	Term  string // that replaces the word
	Value string
	Count int // records that match the text before the word and have the value

	isPrefix bool // the value begins with what was typed
}

// lastWord is the last word of a filter's text, as far as it is typed.
type lastWord struct {
	sign  string // "-" or ""
	field string // "": none yet
	op    string
	given string // the values before the last comma, with it
	typed string // of the last value, in lower case
}

// Complete returns at most limit values for the last word of a text, from the records that match what is before it. The
// error is an *Error about the text before.
func (t Table[T]) Complete(text string, records iter.Seq[T], limit int, now time.Time) (Completion, error) {
	c := Completion{Start: lastWordStart(text)}
	before, err := t.Parse(text[:c.Start])
	if err != nil {
		return c, err
	}
	word := parseLastWord(text[c.Start:])
	var fields []Field[T]
	for _, f := range t {
		switch {
		case word.field == "" && strings.HasPrefix(f.Name, word.typed):
			c.Fields = append(c.Fields, FieldSummary{f.Name, f.summary()})
			fallthrough
		case word.field == "":
			if word.typed != "" && (f.Suggest != nil || f.Values != nil) {
				fields = append(fields, f)
			}
		case strings.EqualFold(f.Name, word.field) && word.op == ":":
			fields = append(fields, f)
		}
	}
	if len(fields) > 0 {
		c.Values = countValues(fields, word, before, records, now)
		c.Values = c.Values[:min(limit, len(c.Values))]
	}
	return c, nil
}

// countValues counts the values of fields that have the typed text, in the order of a completion.
func countValues[T any](
	fields []Field[T], word lastWord, before Filter[T], records iter.Seq[T], now time.Time,
) []ValueCompletion {
	counts := make([]map[string]int, len(fields)) // by the fields: value -> records
	for i, f := range fields {
		counts[i] = map[string]int{}
		for _, v := range f.Values { // of a named field also those that no record has
			if word.field != "" && strings.Contains(lower(v), word.typed) {
				counts[i][v] = 0
			}
		}
	}
	distinct := 0
	for record := range records {
		if !before.Match(record, now) {
			continue
		}
		for i, f := range fields {
			for j, list := 0, f.suggestions(record); j < len(list); j++ {
				n, known := counts[i][list[j]]
				if list[j] == "" || slices.Contains(list[:j], list[j]) ||
					!known && (distinct == maxDistinctValues || !strings.Contains(lower(list[j]), word.typed)) {
					continue
				}
				if !known {
					distinct++
				}
				counts[i][list[j]] = n + 1
			}
		}
	}
	var out []ValueCompletion
	for i, f := range fields {
		for v, n := range counts[i] {
			out = append(out, ValueCompletion{
				Term: word.sign + f.Name + ":" + word.given + QuoteValue(v), Value: v, Count: n,
				isPrefix: strings.HasPrefix(lower(v), word.typed),
			})
		}
	}
	slices.SortFunc(out, ValueCompletion.compare)
	return out
}

func (v ValueCompletion) compare(o ValueCompletion) int {
	switch {
	case v.isPrefix != o.isPrefix && v.isPrefix:
		return -1
	case v.isPrefix != o.isPrefix:
		return 1
	}
	return cmp.Or(cmp.Compare(o.Count, v.Count), strings.Compare(v.Term, o.Term))
}

// suggestions returns the values of a record that a completion offers.
func (f Field[T]) suggestions(record T) []string {
	switch {
	case f.Suggest != nil:
		return f.Suggest(record)
	case f.Text != nil:
		return []string{f.Text(record)}
	case f.Texts != nil:
		return f.Texts(record)
	}
	return nil
}

// summary returns what a field is, for a reader.
func (f Field[T]) summary() string {
	switch {
	case f.Summary != "":
		return f.Summary
	case f.Values != nil:
		return "one of " + strings.Join(f.Values, ", ")
	case f.Number != nil:
		return "a number, as in " + f.Name + ">2"
	case f.Size != nil:
		return "a size, as in " + f.Name + ">=4GB"
	case f.Duration != nil:
		return "a duration, as in " + f.Name + "<1h"
	case f.Age != nil:
		return "an age, as in " + f.Name + ">10m"
	}
	return "a text; * is any text"
}

// lastWordStart returns where the last word of a text begins: after the last space that is not in quotes.
func lastWordStart(text string) int {
	start, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quoted:
			i++
		case text[i] == '"':
			quoted = !quoted
		case isSpace(text[i]) && !quoted:
			start = i + 1
		}
	}
	return start
}

// parseLastWord reads a word that may be unfinished.
func parseLastWord(text string) (w lastWord) {
	if rest, negated := strings.CutPrefix(text, "-"); negated {
		w.sign, text = "-", rest
	}
	end := 0
	for end < len(text) && isFieldByte(text[end]) {
		end++
	}
	if end > 0 && end < len(text) && strings.IndexByte(":<>=", text[end]) >= 0 {
		r := termParser{input: text, pos: end}
		w.field, w.op = text[:end], r.parseOperator()
		text = text[r.pos:]
	}
	last, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quoted:
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ',' && !quoted:
			last = i + 1
		}
	}
	w.given = text[:last]
	w.typed = lower(unquoteTyped(text[last:]))
	return w
}

// unquoteTyped returns the text of a value that may lack its closing quote, without wildcards.
func unquoteTyped(text string) string {
	inner, quoted := strings.CutPrefix(text, `"`)
	if !quoted {
		return strings.ReplaceAll(text, "*", "")
	}
	var out strings.Builder
	for i := 0; i < len(inner) && inner[i] != '"'; i++ {
		if inner[i] == '\\' && i+1 < len(inner) {
			i++
		}
		out.WriteByte(inner[i])
	}
	return out.String()
}
