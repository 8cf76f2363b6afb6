package settingsfile_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli/settingsfile"
)

type rule struct {
	ID string `yaml:"id"`
}

type settings struct {
	List  []string `yaml:"list" example:"list: [a, b]"`
	Text  string   `yaml:"text"`
	On    bool     `yaml:"on-or-off"`
	Score float64  `yaml:"score"`
	Rules []rule   `yaml:"rules"`
}

func TestDecode(t *testing.T) {
	for text, want := range map[string]settings{
		"":                      {},
		"# nothing\n":           {},
		"text: 2026-12-31":      {Text: "2026-12-31"},
		"text: 5\nscore: 7":     {Text: "5", Score: 7},
		"list: [a, 1]":          {List: []string{"a", "1"}},
		"list:":                 {},
		"list: []":              {List: []string{}},
		"on-or-off: true":       {On: true},
		"rules:\n  - id: x":     {Rules: []rule{{"x"}}},
		"list: &a [x]\ntext: y": {List: []string{"x"}, Text: "y"},
	} {
		var got settings
		if err := settingsfile.Decode([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"list: x":                 `line 1: list: want a list, found the text "x"; for example: list: [a, b]`,
		"text: a\nlist: {a: b}":   "line 2: list: want a list, found keys with values; for example: list: [a, b]",
		"list: [[a]]":             "line 1: list: want a list of texts, found a list; for example: list: [a, b]",
		"text: [a]":               "line 1: text: want a text, found a list",
		"on-or-off: maybe":        `line 1: on-or-off: want true or false, found the text "maybe"`,
		"score: high":             `line 1: score: want a number, found the text "high"`,
		"lists: [a]":              `line 1: unknown key "lists"; known are list, text, on-or-off, score, rules`,
		"rules: [x]":              `line 1: rules: want a list of rules with keys (id), found the text "x"`,
		"rules:\n  - idd: x":      `rules: line 2: unknown key "idd"; known are id`,
		"rules: x":                `line 1: rules: want a list, found the text "x"`,
		"just a text":             "line 1: configuration: want lines such as key: value, found the text",
		"text: a\n---\ntext: b":   "want a single YAML document",
		"text: [a":                "yaml: line 1: did not find expected ',' or ']'",
		"text: a\ntext: b":        `mapping key "text" already defined at line 1`,
		"<<: {unknown: 1}":        `unknown key "unknown"`,
		"list: *gone":             "unknown anchor",
		strings.Repeat("x", 1000): "...",
	} {
		var got settings
		if err := settingsfile.Decode([]byte(text), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v\nwant %s", text, err, want)
		} else if strings.Contains(err.Error(), "!!") || strings.Contains(err.Error(), "settings") {
			t.Errorf("%.30q: %v names a type of the program", text, err)
		}
	}
}

// FuzzDecode: whatever is in a file, it is decoded or refused with a sentence.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"list: [a]", "rules: [{id: x}]", "a: &a [*a]", "<<: *x", "? [a]\n: b", "--- \n---", "!!map x",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s settings
		err := settingsfile.Decode(raw, &s)
		if err != nil && (err.Error() == "" || strings.Contains(err.Error(), "\n")) {
			t.Errorf("error %q", err)
		}
	})
}

func TestManyKeysAreNotListed(t *testing.T) {
	var into struct {
		A        string `yaml:"a"`
		B        string `yaml:"b"`
		C        string `yaml:"c"`
		D        string `yaml:"d"`
		E        string `yaml:"e"`
		F        string `yaml:"f"`
		G        string `yaml:"g"`
		H        string `yaml:"h"`
		I        string `yaml:"i"`
		J        string `yaml:"j"`
		K        string `yaml:"k"`
		L        string `yaml:"l"`
		Interval string `yaml:"update-interval"`
	}
	for text, want := range map[string]string{
		"update-intervall: 1h": `line 1: unknown key "update-intervall"; did you mean "update-interval"?`,
		"something: 1h":        `line 1: unknown key "something"`,
	} {
		if err := settingsfile.Decode([]byte(text), &into); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
