package tomllimit

import (
	"errors"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

func TestCheck(t *testing.T) {
	many := func(s string) string { return strings.Repeat(s, MaxDepth+1) }
	for _, good := range []string{
		"", "a = [[1], {b = [2]}]\n", many("a = [1]\n"), "a = '" + many("[") + "'\n",
		"a = \"\"\"" + many("[\n") + "\"\"\"\n",
		"# " + many("[") + "\n", many("a.b = 1\n"), "a = [" + many("1.5, ") + "]\n",
	} {
		if err := Check([]byte(good)); err != nil {
			t.Errorf("%.30q: %v", good, err)
		}
	}
	for _, deep := range []string{
		"a = " + many("["), "a = " + many("{a = "), many("a.") + "a = 1", "[" + many("\"a\".") + "a]",
		"a = " + many("['''x''''', "), "a = " + many("[\"]\\\"]\", "), "a = " + many("[ # ]\n"),
		"a = " + many("[\"\"\"]\\\"\"\"\"\", "),
	} {
		if err := Check([]byte(deep)); !errors.Is(err, ErrTooDeep) {
			t.Errorf("%.30q: got %v", deep, err)
		}
	}
}

// FuzzCheck looks for documents that pass and are deeper than the reader should see.
func FuzzCheck(f *testing.F) {
	f.Add("a = [['''x''''', [\"]\"]], {b.c = 1}] # [\n[d.\"e\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		var v map[string]any
		if Check([]byte(text)) != nil {
			return
		}
		if err := toml.Unmarshal([]byte(text), &v); err == nil && depth(v) > 4*MaxDepth {
			t.Error("it is deeper")
		}
	})
}

// depth is how deep a value is nested.
func depth(v any) int {
	most := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			most = max(most, depth(e))
		}
	case []any:
		for _, e := range v {
			most = max(most, depth(e))
		}
	default:
		return 0
	}
	return most + 1
}

func TestManyValues(t *testing.T) {
	if err := Check([]byte("a = [" + strings.Repeat("{},", MaxValues/2) + "]")); !errors.Is(err, catalog.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
