package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// read decodes a request with a query and a body.
func read(query, body string) (*Params, error) {
	r := httptest.NewRequest(http.MethodPost, "/x?"+query, strings.NewReader(body))
	return ReadParams(httptest.NewRecorder(), r)
}

func mustRead(t *testing.T, query, body string) *Params {
	t.Helper()
	p, err := read(query, body)
	if err != nil {
		t.Fatalf("%s %s: %v", query, body, err)
	}
	return p
}

// TestBodyWhateverItsType: JSON is JSON under every Content-Type and method.
func TestBodyWhateverItsType(t *testing.T) {
	for _, contentType := range []string{
		"", "application/json", "application/json; charset=utf-8", "application/x-www-form-urlencoded", "text/plain",
		"nonsense",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			r := httptest.NewRequest(method, "/x", strings.NewReader(`{"id":"a"}`+"\n"))
			if contentType != "" {
				r.Header.Set("Content-Type", contentType)
			}
			p, err := ReadParams(httptest.NewRecorder(), r)
			if err != nil || p.Required("id") != "a" || p.Err() != nil {
				t.Errorf("%s as %q: %v, %v", method, contentType, err, p.Err())
			}
		}
	}
}

// TestByteOrderMark: what some programs put before JSON is left out, once.
func TestByteOrderMark(t *testing.T) {
	p := mustRead(t, "", "\xef\xbb\xbf"+`{"id":"a"}`)
	if p.Required("id") != "a" || string(p.RawBody()) != `{"id":"a"}` {
		t.Errorf("%q", p.RawBody())
	}
	mustRead(t, "", "\xef\xbb\xbf")
}

func TestBodyWithoutFields(t *testing.T) {
	for _, body := range []string{"", "\n", " \r\n\t", "null", "{}", " {} \n"} {
		p := mustRead(t, "", body)
		if p.Has("id") || len(p.Keys()) != 0 {
			t.Errorf("%q has fields", body)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	r.Body = nil
	if _, err := ReadParams(httptest.NewRecorder(), r); err != nil {
		t.Errorf("no body at all: %v", err)
	}
}

func TestBodyThatIsNoObject(t *testing.T) {
	for _, body := range []string{
		"[]", `[{"id":"a"}]`, `"text"`, "5", "true", "{", `{"id":}`, `{"id":"a"} {"id":"b"}`, `{"id":"a"},`, "id=a&x=b",
		"\xef\xbb\xbf\xef\xbb\xbf{}", `{'id':'a'}`, "\x00", strings.Repeat("[", 20000),
		`{"a":` + strings.Repeat(`{"a":`, 20000),
	} {
		_, err := read("", body)
		var e *farm.Error
		if !errors.As(err, &e) || e.Code != farm.CodeInvalid {
			t.Errorf("%.40q: %v", body, err)
			continue
		}
		for _, inner := range []string{"json:", "Go value", "map[", "RawMessage"} {
			if strings.Contains(e.Message, inner) {
				t.Errorf("%.40q: the message shows our insides: %s", body, e.Message)
			}
		}
	}
}

func TestBodyLimit(t *testing.T) {
	fits := `{"id":"` + strings.Repeat("x", MaxBody-9) + `"}`
	if p := mustRead(t, "", fits); len(p.String("id")) != MaxBody-9 {
		t.Error("a body of the largest size is cut")
	}
	if _, err := read("", fits+" "); farm.CodeOf(err) != farm.CodeTooLarge {
		t.Errorf("one byte more: %v", err)
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/x", io.MultiReader(strings.NewReader(`{"id":`), brokenReader{}))
	_, err := ReadParams(httptest.NewRecorder(), r)
	if farm.CodeOf(err) != farm.CodeInvalid || strings.Contains(err.Error(), "cable") {
		t.Errorf("error is %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the cable is cut") }

func TestQueryAndBody(t *testing.T) {
	for _, c := range []struct{ query, body, want string }{
		{"id=q", "", "q"},
		{"id=q", `{"id":"b"}`, "b"},
		{"id=q", `{"other":"b"}`, "q"},
		{"id=q", `{"id":null}`, ""}, // the body has the field, and marks it as not given
		{"id=q", `{"id":""}`, ""},
		{"id=", "", ""},
		{"id=first&id=second", "", "first"},
		{"id=a%2Bb", "", "a+b"},
		{"id=a+b", "", "a b"},
		{"id=a%252Bb", "", "a%2Bb"}, // decoded once
		{"id=v1%3A2%2F3%234", "", "v1:2/3#4"},
		{`id=%22`, "", `"`},
		{"id=null", "", "null"}, // a tag may be called null
		{"", `{"id":"a+b:c/d#e f"}`, "a+b:c/d#e f"},
	} {
		p := mustRead(t, c.query, c.body)
		if got := p.String("id"); got != c.want || p.Err() != nil || p.Has("id") != (c.want != "") {
			t.Errorf("%s with %s gives %q, %v", c.query, c.body, got, p.Err())
		}
	}
}

// TestNotGiven: absent, null and "" are the same to every getter.
func TestNotGiven(t *testing.T) {
	for _, body := range []string{`{}`, `{"x":null}`, `{"x":""}`, `{"x": null }`} {
		p := mustRead(t, "", body)
		got := []any{
			p.Has("x"), p.String("x"), p.Int("x", 7, 1, 9), p.Bool("x", true), p.Bool("x", false), p.OneOf("x", "a"),
			p.Text("x", 1),
			len(p.Strings("x")), len(p.Objects("x")), p.Object("x") == nil, len(p.Given("x")),
		}
		into := 5
		p.JSON("x", &into)
		if want := []any{false, "", 7, true, false, "", "", 0, 0, true, 0}; !slices.Equal(got, want) || into != 5 ||
			p.Err() != nil {
			t.Errorf("%s gives %v, %d, %v", body, got, into, p.Err())
		}
		if p.Required("x"); p.Err() == nil || p.Err().Error() != "x: is required" {
			t.Errorf("%s: %v", body, p.Err())
		}
	}
}

func TestInt(t *testing.T) {
	for raw, want := range map[string]int{
		"1": 1, "100": 100, `"1"`: 1, `" 42 "`: 42, "5.0": 5, "1e1": 10, `"1e1"`: 10, `"7.0"`: 7, "1E+1": 10, `"+8"`: 8,
	} {
		p := mustRead(t, "", `{"n":`+raw+`}`)
		if got := p.Int("n", -1, 1, 100); got != want || p.Err() != nil {
			t.Errorf("%s is %d, %v", raw, got, p.Err())
		}
	}
	for _, raw := range []string{
		"0", "101", "-1", "1.5", "1e9", "1e400", "-1e400", "9223372036854775808", "9007199254740993.0", "true", "[]",
		"[1]", "{}",
		`"x"`, `" "`, `"1 2"`, `"1.5"`, `"0x1p4"`, `"0x10"`, `"1_0"`, `"Infinity"`, `"NaN"`, `"١"`, `"1,0"`, `"\u0000"`,
	} {
		p := mustRead(t, "", `{"n":`+raw+`}`)
		if got := p.Int("n", -1, 1, 100); got != -1 || p.Err() == nil ||
			p.Err().Error() != "n: must be an integer between 1 and 100" {
			t.Errorf("%s is taken as %d: %v", raw, got, p.Err())
		}
	}
	if p := mustRead(t, "n=12", ""); p.Int("n", 0, 1, 100) != 12 || p.Err() != nil {
		t.Error("an integer of the query is not read")
	}
}

// TestIntAtTheEdges: nothing wraps around at the ends of int64.
func TestIntAtTheEdges(t *testing.T) {
	const hi = int(^uint(0) >> 1)
	for raw, ok := range map[string]bool{
		fmt.Sprint(hi): true, fmt.Sprint(-hi - 1): true, "9223372036854775808": false, "-9223372036854775809": false,
		"1e19": false, "18446744073709551617": false, "9007199254740992.0": true, "9007199254740994.0": false,
	} {
		p := mustRead(t, "", `{"n":`+raw+`}`)
		p.Int("n", 0, -hi-1, hi)
		if (p.Err() == nil) != ok {
			t.Errorf("%s: %v", raw, p.Err())
		}
	}
}

func TestBool(t *testing.T) {
	for raw, want := range map[string]bool{
		"true": true, `"true"`: true, "false": false, `"false"`: false, " true ": true, `"True"`: true,
		`"FALSE"`: false,
	} {
		p := mustRead(t, "", `{"b":`+raw+`}`)
		if got := p.Bool("b", !want); got != want || p.Err() != nil {
			t.Errorf("%s is %v, %v", raw, got, p.Err())
		}
	}
	for _, raw := range []string{"1", "0", `"yes"`, "[]", "{}", `"TRUES"`} {
		p := mustRead(t, "", `{"b":`+raw+`}`)
		if got := p.Bool("b", true); !got || p.Err() == nil || p.Err().Error() != "b: must be true or false" {
			t.Errorf("%s is %v, %v", raw, got, p.Err())
		}
	}
}

func TestStringsOfTheWrongType(t *testing.T) {
	for _, raw := range []string{"5", "true", "[]", "{}", `["a"]`} {
		p := mustRead(t, "", `{"s":`+raw+`}`)
		if got := p.String("s"); got != "" || p.Err() == nil || p.Err().Error() != "s: must be a string" {
			t.Errorf("%s is %q, %v", raw, got, p.Err())
		}
	}
}

func TestText(t *testing.T) {
	for body, want := range map[string]string{
		`{"s":"abcde"}`: "", `{"s":"abcdef"}`: "s: must have at most 5 bytes",
		`{"s":"äöü"}`:    "s: must have at most 5 bytes",
		`{"s":"a\nb"}`:   "s: must not contain control characters",
		`{"s":"\u0000"}`: "s: must not contain control characters",
		`{"s":"\u007f"}`: "s: must not contain control characters", `{"s":5}`: "s: must be a string",
	} {
		p := mustRead(t, "", body)
		got := p.Text("s", 5)
		if want == "" && (got != "abcde" || p.Err() != nil) {
			t.Errorf("%s: %q, %v", body, got, p.Err())
		}
		if want != "" && (got != "" || p.Err() == nil || p.Err().Error() != want) {
			t.Errorf("%s: %q, %v", body, got, p.Err())
		}
	}
}

func TestOneOf(t *testing.T) {
	if p := mustRead(t, "s=b", ""); p.OneOf("s", "a", "b") != "b" || p.Err() != nil {
		t.Errorf("error is %v", p.Err())
	}
	p := mustRead(t, "s=B", "")
	if p.OneOf("s", "a", "b"); p.Err() == nil || p.Err().Error() != "s: must be one of a, b" {
		t.Errorf("error is %v", p.Err())
	}
}

func TestArraysAndObjects(t *testing.T) {
	p := mustRead(t, "q=1&q=2&one=1",
		`{"list":["a","b"],"items":[{"n":1},null,{"n":"x"}],"obj":{"k":"v","a":1},"empty":[]}`)
	if got := p.Strings("list"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("list is %q", got)
	}
	if !slices.Equal(p.Strings("q"), []string{"1", "2"}) || !slices.Equal(p.Strings("one"), []string{"1"}) {
		t.Errorf("query lists are %q and %q", p.Strings("q"), p.Strings("one"))
	}
	if got := p.Strings("empty"); got == nil || len(got) != 0 {
		t.Errorf("an empty array is %v", got)
	}
	items := p.Objects("items")
	if len(items) != 3 || items[0].Int("n", 0, 0, 9) != 1 || items[1].Has("n") {
		t.Fatalf("items are %v", items)
	}
	if items[2].Int("n", 0, 0, 9); items[2].Err() == nil || p.Err() != nil {
		t.Error("an error of an item belongs to the item")
	}
	if o := p.Object("obj"); o.Required("k") != "v" || !slices.Equal(o.Keys(), []string{"a", "k"}) {
		t.Errorf("object is %v", o)
	}
	if got := p.Given("list", "none", "obj", "q"); !slices.Equal(got, []string{"list", "obj", "q"}) {
		t.Errorf("given are %q", got)
	}
}

func TestArraysAndObjectsOfTheWrongType(t *testing.T) {
	gets := map[string]func(*Params){
		"must be an array of strings": func(p *Params) { p.Strings("x") },
		"must be an array of objects": func(p *Params) { p.Objects("x") },
		"must be an object":           func(p *Params) { p.Object("x") },
		"has the wrong form":          func(p *Params) { p.JSON("x", new([]bool)) },
	}
	for want, get := range gets {
		for _, raw := range []string{"5", `"s"`, "true", "[5]", `{"a":5}`} {
			if raw == `{"a":5}` && want == "must be an object" {
				continue
			}
			p := mustRead(t, "", `{"x":`+raw+`}`)
			if get(p); p.Err() == nil || p.Err().Error() != "x: "+want {
				t.Errorf("%s: %v, want %s", raw, p.Err(), want)
			}
		}
	}
}

func TestScalar(t *testing.T) {
	p := mustRead(t, "", `{"s":"text","n":9007199254740993,"b":true,"neg":-1}`)
	for name, want := range map[string]any{"s": "text", "n": int64(9007199254740993), "b": true, "neg": int64(-1)} {
		if got := p.ScalarValue(name); got != want {
			t.Errorf("%s is %v (%T)", name, got, got)
		}
	}
	for _, raw := range []string{"1.5", "[]", "{}", "null", "9223372036854775808"} {
		p := mustRead(t, "", `{"x":`+raw+`}`)
		if got := p.ScalarValue("x"); got != nil || p.Err() == nil {
			t.Errorf("%s is %v, %v", raw, got, p.Err())
		}
	}
}

func TestTheFirstErrorCounts(t *testing.T) {
	p := mustRead(t, "", `{"a":"x","b":"y"}`)
	p.Int("a", 0, 1, 2)
	p.Bool("b", false)
	p.Required("c")
	var e *farm.Error
	if !errors.As(p.Err(), &e) || e.Field != "a" || e.Code != farm.CodeInvalid {
		t.Errorf("error is %+v", e)
	}
}

// FuzzReadParams: no body and no query makes a getter panic, block or return a value out of range.
func FuzzReadParams(f *testing.F) {
	for _, seed := range [][2]string{
		{"", ""},
		{"x=1", `{"x":2}`},
		{"x=%2B", "null"},
		{"", `{"x":"5"}`},
		{"", `{"x":1e400}`},
		{"", `{"x":[{"x":null},{}]}`},
		{"%zz=1;x", `{"x":{"x":[]}}`},
		{"", `{"x":" "}`},
		{"", `{"x":"+"}`},
		{"x=a&x=b", `{"y":"\ud800"}`},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, query string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/x", bytes.NewReader(body))
		r.URL.RawQuery = query
		p, err := ReadParams(httptest.NewRecorder(), r)
		if err != nil {
			if code := farm.CodeOf(err); code != farm.CodeInvalid {
				t.Fatalf("code %s: %v", code, err)
			}
			return
		}
		for _, name := range append(p.Keys(), "x") {
			if n := p.Int(name, 5, 1, 10); n < 1 || n > 10 {
				t.Fatalf("%s is %d", name, n)
			}
			if len(p.Text(name, 10)) > 10 {
				t.Fatalf("%s is too long", name)
			}
			p.Bool(name, true)
			p.Strings(name)
			p.ScalarValue(name)
			p.Object(name)
			for _, item := range p.Objects(name) {
				item.String("x")
			}
		}
	})
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`{}`: 0, `{"d":""}`: 0, `{"d":null}`: 0, `{"d":90}`: 90 * time.Second, `{"d":"90"}`: 90 * time.Second,
		`{"d":"1h30m"}`: 90 * time.Minute, `{"d":" 2h "}`: 2 * time.Hour, `{"d":"0s"}`: 0,
		`{"d":"2h1s"}`: -1, `{"d":-1}`: -1, `{"d":"-1s"}`: -1, `{"d":1e300}`: -1, `{"d":"soon"}`: -1, `{"d":[]}`: -1,
		`{"d":99999999999999}`: -1,
	} {
		p, err := read("", text)
		if err != nil {
			t.Fatal(err)
		}
		got := p.Duration("d", 2*time.Hour)
		if want < 0 && p.Err() == nil || want >= 0 && (p.Err() != nil || got != want) {
			t.Errorf("%s: %s, %v", text, got, p.Err())
		}
	}
}

// TestPlainStringsAreThemselves compares the fast path for strings with the decoder.
func TestPlainStringsAreThemselves(t *testing.T) {
	for raw, short := range map[string]bool{
		`"a b/c:d+e#f"`: true, `"\u007f"`: false, "\"\x7f\"": true, `"a\"b"`: false, `"a\\"`: false, `"\u0041"`: false,
		`"ä"`: false, "\"\xff\"": false, "\"\xed\xa0\x80\"": false, `" "`: true,
	} {
		p := &Params{body: map[string]json.RawMessage{"x": json.RawMessage(raw)}}
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if got := p.String("x"); got != want || p.Err() != nil || isPlainString(p.body["x"]) != short {
			t.Errorf("%s is %q, want %q (%v)", raw, got, want, p.Err())
		}
	}
	for _, raw := range []string{`1`, `"`, `{}`, `""`, `["a"]`, `"a""b"`} {
		if isPlainString(json.RawMessage(raw)) && raw != `""` {
			t.Errorf("%s is taken for a string", raw)
		}
	}
}

// TestAnswersOfTheirOwn are those with a message, and those without an envelope.
func TestAnswersOfTheirOwn(t *testing.T) {
	if a := one(MessageOnly("Saved"), nil); a.Body.String() != `{"status":"OK","message":"Saved"}`+"\n" {
		t.Error(a.Body)
	}
	a := one(NoEnvelope{"text/plain", []byte("x")}, nil)
	if a.Body.String() != "x" || a.Header().Get("Content-Type") != "text/plain" ||
		a.Header().Get("Cache-Control") != "no-store" {
		t.Error(a.Body, a.Header())
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		query, body string
		want        []string
	}{
		{"", `{"l":["a,b"," c"]}`, []string{"a,b", " c"}},
		{"", `{"l":"a, b,,c"}`, []string{"a", "b", "c"}},
		{"l=a,b&l=c", "", []string{"a", "b", "c"}},
		{"l=z", `{"l":"a"}`, []string{"a"}},
		{"", `{"l":[]}`, []string{}},
		{"", "", []string{}},
	} {
		p := mustRead(t, c.query, c.body)
		if got := p.CommaList("l"); !slices.Equal(got, c.want) || p.Err() != nil {
			t.Errorf("%s %s: %q, %v", c.query, c.body, got, p.Err())
		}
	}
	for _, body := range []string{`{"l":3}`, `{"l":{"a":1}}`, `{"l":[1]}`} {
		p := mustRead(t, "", body)
		if _ = p.CommaList("l"); p.Err() == nil {
			t.Errorf("%s is taken", body)
		}
	}
}

// TestFlag: a flag may have no value, and reports whether it was given.
func TestFlag(t *testing.T) {
	for name, c := range map[string]struct {
		query, body           string
		value, given, refused bool
	}{
		"absent":           {},
		"bare":             {query: "f", value: true, given: true},
		"empty":            {query: "f=", value: true, given: true},
		"a word":           {query: "f=Yes", value: true, given: true},
		"its opposite":     {query: "f=off", given: true},
		"a number":         {query: "f=0", given: true},
		"the first counts": {query: "f=1&f=0", value: true, given: true},
		"something else":   {query: "f=maybe", given: true, refused: true},
		"in the body":      {body: `{"f": true}`, value: true, given: true},
		"as text":          {body: `{"f": "no"}`, given: true},
		"null":             {query: "f=1", body: `{"f": null}`},
		"the body wins":    {query: "f=1", body: `{"f": false}`, given: true},
		"an object":        {body: `{"f": {}}`, given: true, refused: true},
	} {
		p := mustRead(t, c.query, c.body)
		value, given := p.Flag("f")
		if value != c.value || given != c.given || (p.Err() != nil) != c.refused {
			t.Errorf("%s: %t, given %t, %v", name, value, given, p.Err())
		}
	}
}

// TestIntOrZero: 0 means not given, and any other number must be within its bounds.
func TestIntOrZero(t *testing.T) {
	for body, want := range map[string]int{
		`{}`: 7, `{"n":0}`: 7, `{"n":"0"}`: 7, `{"n":null}`: 7, `{"n":5}`: 5,
		`{"n":"9"}`: 9, `{"n":4}`: -1, `{"n":10}`: -1, `{"n":"x"}`: -1, `{"n":-0.5}`: -1,
	} {
		p := mustRead(t, "", body)
		if got := p.IntOrZero("n", 7, 5, 9); (p.Err() != nil) != (want < 0) || want >= 0 && got != want {
			t.Errorf("%s: %d, %v", body, got, p.Err())
		}
	}
}

// TestQueryThatCannotBeRead is refused: ignoring a parameter would answer another request.
func TestQueryThatCannotBeRead(t *testing.T) {
	p := mustRead(t, "a=%zz&b=1", "")
	if p.String("b"); p.Err() == nil {
		t.Error("it is read")
	}
}

// TestPlain: only a text that needs no decoding is used as it is.
func TestPlain(t *testing.T) {
	for raw, want := range map[string]bool{
		`""`: true, `"a b~"`: true, `"`: false, `a"`: false, `5`: false, `"a\n"`: false, "\"a\x1f\"": false,
		"\"a \"": true, "\"\x7f\"": true, "\"\x80\"": false, `"ü"`: false, `"a"b"`: false,
	} {
		if isPlainString([]byte(raw)) != want {
			t.Errorf("%q is plain: %t", raw, !want)
		}
	}
}
