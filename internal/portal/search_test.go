package portal

import "testing"

// TestWordsFilter: the words of a search are a filter that has no fields and no wildcards.
func TestWordsFilter(t *testing.T) {
	for text, want := range map[string]string{
		"sonoma:v1": `"sonoma:v1"`, " a  b* ": `"a" "b*"`, `say "x"`: `"say" "\"x\""`, "-off": `"-off"`,
	} {
		if got := wordsFilter(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
