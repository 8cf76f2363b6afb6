package sanitize

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

const evil = "a\u0085\u009b1m\u007f\u202e\u2066\u2028\ufeff\U000e0041\u00a0é日\U0001f600\n"

func TestText(t *testing.T) {
	if got := EscapeText(evil); got != "a??1m???????é日\U0001f600?" {
		t.Errorf("got %q", got)
	}
}

func TestLines(t *testing.T) {
	if got := EscapeLines("a\tb\n" + evil); got != "a\tb\na??1m???????é日\U0001f600\n" {
		t.Errorf("got %q", got)
	}
}

func TestJSON(t *testing.T) {
	raw, err := json.MarshalIndent(map[string]string{evil: evil}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := EscapeJSON(&out, raw); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[evil] != evil {
		t.Errorf("it means %q, %v", got, err)
	}
	text := strings.ReplaceAll(out.String(), "\t", "")
	if !IsClean(text) ||
		!strings.Contains(text, `\u0085\u009b1m\u007f\u202e\u2066\u2028\ufeff\udb40\udc41\u00a0é日`+"\U0001f600") {
		t.Errorf("got %q", text)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(evil)
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Skip(err)
		}
		out := escapedJSON(raw)
		var want, got string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &got); err != nil || got != want || !IsClean(string(out)) {
			t.Errorf("%q became %q", raw, out)
		}
	})
}
