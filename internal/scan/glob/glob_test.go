package glob_test

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/glob"
)

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		yes, no string // paths, separated by white space
	}{
		{"/a", "/a a", "/b /a/b /x/a"},
		{"a", "/a /x/a /x/y/a", "/a/b /ab /xa"},
		{"a/b", "/a/b /x/a/b", "/a/x/b /b"},
		{"/a/*", "/a/b /a/.b", "/a /a/b/c"},
		{"*.log", "/x.log /a/b/.log", "/x.logs /a.log/b"},
		{"/a/**", "/a /a/b /a/b/c", "/b /ab"},
		{"/a/**/z", "/a/z /a/b/z /a/b/c/z /a/z/z", "/a/z/y /z /a"},
		{"/**/b/**/c", "/b/c /x/b/y/c /b/b/c/c", "/c/b /b"},
		{"**", "/ /a /a/b", ""},
		{"/a?c", "/abc /aäc", "/ac /abbc /a/c"},
		{"/a*b*c", "/abc /axxbyyc /abcbc", "/ab /a/bc /abcd"},
		{"/[a-c]x[!0-9]", "/axy /cxx", "/dxy /ax1 /ax"},
		{"/[]a]", "/] /a", "/b"},
		{"/[a-]", "/a /-", "/b"},
		{"/[^a]", "/b", "/a"},
		{`/\*`, "/*", "/a"},
		{`/[\]]`, "/]", `/\`},
		{"/ä*", "/ä /äb", "/a"},
		{"/A", "/A", "/a"},
		{"/\ufffd", "/\ufffd", "/\xff"},
		{"/?", "/\xff /ä", "/\xff\xff"},
	} {
		p, err := glob.CompilePath(tc.pattern)
		if err != nil {
			t.Errorf("%s: %v", tc.pattern, err)
			continue
		}
		for text := range strings.FieldsSeq(tc.yes) {
			if !p.Match(text) {
				t.Errorf("%s does not match %q", tc.pattern, text)
			}
		}
		for text := range strings.FieldsSeq(tc.no) {
			if p.Match(text) {
				t.Errorf("%s matches %q", tc.pattern, text)
			}
		}
	}
}

func TestCompileIsWhole(t *testing.T) {
	p, err := glob.Compile("npm/**")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Match("npm/@babel/core") || p.Match("x/npm/a") || p.String() != "npm/**" {
		t.Error("npm/** must match from the beginning")
	}
}

func TestInvalidPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "empty", "/": "empty", "a//b": "is empty", "a/": "is empty",
		"a**b": "whole element", "***": "whole element",
		"./a": "begin with /", "/a/../b": "begin with /", ".": "begin with /",
		"[a": "no closing ]", "[": "no closing ]", `a\`: "nothing follows", "[b-a]": "is empty", "\xff": "not UTF-8",
		strings.Repeat("a", glob.MaxPatternBytes+1): "more than 1024", `[a-\`: "nothing follows", `[\`: "nothing follows",
	} {
		if _, err := glob.CompilePath(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}

func TestSet(t *testing.T) {
	var none *glob.Set
	if none.Match("/a") {
		t.Error("an empty set matches")
	}
	s, err := glob.NewSet([]string{"/a", "*.b"})
	if err != nil || !s.Match("/a") || !s.Match("/x/y.b") || s.Match("/c") {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := glob.NewSet(make([]string, glob.MaxPatterns+1)); err == nil {
		t.Error("too many patterns were accepted")
	}
	if _, err := glob.NewSet([]string{"["}); err == nil {
		t.Error("an invalid pattern was accepted")
	}
}

// TestTime: patterns that take exponential time where every star is tried at every place.
func TestTime(t *testing.T) {
	long := strings.Repeat("a", 4000)
	for pattern, text := range map[string]string{
		strings.Repeat("*a", 400) + "b":      long,
		strings.Repeat("**/a/", 200) + "b":   strings.Repeat("a/", 4000),
		strings.Repeat("**/*a*/", 100) + "b": strings.Repeat("aaaa/", 1000),
	} {
		p, err := glob.CompilePath(pattern)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if p.Match(text) {
			t.Errorf("%.20s matches", pattern)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%.20s took %s", pattern, took)
		}
	}
}

// FuzzMatch compares patterns of one element with path.Match, which has the same rules for those without ! and **.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{
		{"a*b?", "axxbc"}, {"[a-c]*", "bcd"}, {`\*`, "*"}, {"**/x", "a/x"}, {"[", "a"}, {"[^a]", "b"}, {"a/**", "a"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		p, err := glob.Compile(pattern)
		if err != nil {
			return
		}
		got := p.Match(text)
		if all, err := glob.Compile("**"); err != nil || !all.Match(text) {
			t.Fatalf("** does not match %q", text)
		}
		if strings.ContainsAny(pattern, "/!]-") || strings.Contains(pattern, "**") || strings.Contains(text, "/") ||
			text == "" || strings.Contains(text, "\ufffd") || strings.ToValidUTF8(text, "") != text {
			return
		}
		if want, err := path.Match(pattern, text); err == nil && got != want {
			t.Errorf("%q and %q: got %t, path.Match has %t", pattern, text, got, want)
		}
	})
}
