package config

import (
	"strings"
	"testing"
)

func TestParseFile(t *testing.T) {
	const text = "# comment\r\n" +
		"\n" +
		"SVC_A=plain\r\n" +
		"  SVC_B = spaced out  \n" +
		"SVC_C=\"quoted # \\\"text\\\" \\\\ \\n\" # comment\n" +
		"SVC_D='single \\ \"#' \n" +
		"SVC_E=with # comment\n" +
		"SVC_F=with#hash\n" +
		"SVC_G=\n" +
		"SVC_H= # nothing\n" +
		"SVC_I=a=b\n" +
		"SVC_J=\"\""
	want := []fileEntry{
		{3, "SVC_A", "plain"},
		{4, "SVC_B", "spaced out"},
		{5, "SVC_C", `quoted # "text" \ \n`},
		{6, "SVC_D", `single \ "#`},
		{7, "SVC_E", "with"},
		{8, "SVC_F", "with#hash"},
		{9, "SVC_G", ""},
		{10, "SVC_H", ""},
		{11, "SVC_I", "a=b"},
		{12, "SVC_J", ""},
	}
	got, err := parseFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestParseFileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nno equals sign":   "line 2: want KEY=value",
		"=x":                    "line 1: want KEY=value",
		"export A=1":            "line 1: want KEY=value",
		"A-B=1":                 "line 1: want KEY=value",
		"A=1\nB=2\nA=3":         "line 3: A is already set in line 1",
		"A=\"open":              "line 1: A: missing closing quote",
		"A='open\nB=1'":         "line 1: A: missing closing quote",
		"A=\"one\" two":         "line 1: A: text after the closing quote",
		"A=\xff":                "not UTF-8 text",
		"A=1\x00":               "not UTF-8 text",
		"A=\"ends with slash\\": "line 1: A: missing closing quote",
	} {
		if _, err := parseFile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q in: %v", text, want, err)
		}
	}
}

func TestFileNamesUnknownSettings(t *testing.T) {
	_, err := Load(sample, Sources{File: writeFile(t, "SVC_NAME=berta\nSVC_NAMES=anna\n")})
	if err == nil || !strings.Contains(err.Error(), "line 2: unknown setting SVC_NAMES; did you mean SVC_NAME?") {
		t.Errorf("error is %v", err)
	}
}

func TestFileMayHoldOtherVariables(t *testing.T) {
	v := mustLoad(t, sample, Sources{File: writeFile(t, "TZ=UTC\nSVC_NAME=berta\n")})
	if v.String("SVC_NAME") != "berta" {
		t.Errorf("name is %q", v.String("SVC_NAME"))
	}
}

func TestFileIsBounded(t *testing.T) {
	_, err := Load(sample, Sources{File: writeFile(t, strings.Repeat("#", maxFileBytes+1))})
	if err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("error is %v", err)
	}
}

func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{"", "A=1\n", "A=\"x\\\"y\" # c\n#\nB='z'", "A=\"", "=\n", "A=1\r\nA=2", "A=b #c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := parseFile(raw)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, e := range entries {
			if !keyPattern.MatchString(e.key) || strings.ContainsAny(e.value, "\n\x00") {
				t.Fatalf("entry %+v", e)
			}
			again.WriteString(e.key + "=" + Quote(e.value) + "\n")
		}
		back, err := parseFile([]byte(again.String()))
		if err != nil || len(back) != len(entries) {
			t.Fatalf("written again: %d entries of %d, %v", len(back), len(entries), err)
		}
		for i, e := range entries {
			if back[i].key != e.key || back[i].value != e.value {
				t.Fatalf("written again: %+v, was %+v", back[i], e)
			}
		}
	})
}
