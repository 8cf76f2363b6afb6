package filter

import (
	"fmt"
	"slices"
	"strings"
)

// maxSuggestBytes bounds the texts that are compared for a suggestion.
const maxSuggestBytes = 40

// didYouMean returns the end of an error about a word that is not in a list: the most similar element as a question,
// "" when none is similar.
func didYouMean(word string, list []string) string {
	if best := mostSimilar(word, list); best != "" {
		return "; did you mean " + QuoteValue(best) + "?"
	}
	return ""
}

// mostSimilar returns the element of a list that is most likely meant by a word: it begins with the word, or differs in
// few letters. It is "" when none does.
func mostSimilar(word string, list []string) string {
	word = lower(strings.ReplaceAll(word, "*", ""))
	if word == "" || len(word) > maxSuggestBytes {
		return ""
	}
	best, fewest := "", max(1, len(word)/3)+1
	for _, one := range list {
		if len(one) > maxSuggestBytes {
			continue
		}
		if len(word) >= 2 && strings.HasPrefix(lower(one), word) {
			return one
		}
		if n := editDistance(word, lower(one)); n < fewest {
			best, fewest = one, n
		}
	}
	return best
}

// editDistance returns how many bytes are inserted, removed, replaced, or exchanged with their neighbor to make b of a.
func editDistance(a, b string) int {
	before, last, row := []int(nil), []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// checkValues refuses values that match no element of a closed set. The empty value is none of it, and matches records
// without a value.
func (t term) checkValues(set []string) error {
	for _, v := range t.values {
		p := v.compile()
		if set == nil || v.text == "" || slices.ContainsFunc(set, p.match) {
			continue
		}
		shown := make([]string, len(set))
		for i, one := range set {
			shown[i] = QuoteValue(one)
		}
		return errorAt(v.pos, "unknown %s %s: want one of %s%s", t.field, quoteShort(v.text),
			strings.Join(shown, ", "), didYouMean(v.text, set))
	}
	return nil
}

// QuoteValue returns a value as it is written in a filter to match exactly: in quotes if it needs them.
func QuoteValue(text string) string {
	if text != "" && !strings.ContainsAny(text, " \t\r\n,\"*\\") {
		return text
	}
	return fmt.Sprintf(`"%s"`, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text))
}
