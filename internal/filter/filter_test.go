package filter

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

type thing struct {
	name, state string
	tags        []string
	vms, disk   float64
	made        time.Time
	ttl         float64
}

var things = Table[thing]{
	{Name: "name", Text: func(t thing) string { return t.name }, IsDefault: true},
	{Name: "state", Text: func(t thing) string { return t.state }},
	{Name: "phase", Text: func(t thing) string { return t.state }, Values: []string{"Started", "Drain Mode", "Error"}},
	{Name: "tag", Texts: func(t thing) []string { return t.tags }, IsDefault: true},
	{Name: "vms", Number: func(t thing) float64 { return t.vms }},
	{Name: "disk", Size: func(t thing) float64 { return t.disk }},
	{Name: "age", Age: func(t thing) time.Time { return t.made }},
	{Name: "ttl", Duration: func(t thing) (float64, bool) { return t.ttl, t.ttl > 0 }},
}

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	some = thing{
		name: `Mac "one", two`, state: "Drain Mode", tags: []string{"v1", "Release:Blue+1", "WXYZ{"}, vms: 2,
		disk: 4 << 30,
		made: now.Add(-15 * time.Minute), ttl: 7200,
	}
)

func TestMatch(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "   ": true, "state:started": false, "-state:started": true,
		`state:"drain mode"`: true, "STATE:drain*": true, "state:*mode": true, "state:*rain*od*": true,
		"state:drain": false,
		"state:*":     true, "state:**": true, `state:"*"`: false, `-state:"*"`: true, "state:drain*drain*": false,
		"state:d*n*n*mode":        false,
		`name:"mac \"one\", two"`: true, `name:mac*`: true, `name:MAC*TWO`: true, "tag:v1": true, "tag:v2": false,
		"-tag:v2":       true,
		"tag:release:*": true, "tag:v9,release:blue+1": true, `tag:v9,"v1"`: true, "tag:v8,v9": false, "tag=v1": true,
		"vms:2": true, "vms:1,2": true, "vms:3": false, "vms>1": true, "vms>=2": true, "vms>2": false, "vms<=2": true,
		"vms<2.5": true, "-vms>2": true,
		"disk>=4GB": true, "disk>4gb": false, "disk<5g": true, "disk:4GiB": true, "disk>4095mb": true, "disk>100": true,
		"age>10m": true, "age>20m": false, "age<1h30m": true, "age>=900": true, "age<=15m": true, "age<1d": true,
		"age<1w": true, "age>0.2h": true,
		"ttl>1h": true, "ttl<1h": false, "mac": true, "ONE": true, "three": false, "-three": true, `"one"`: true,
		"m*o": true, "one,three": true,
		"vms<2": false, "ttl<2h": false, "tag:v1*1": false, "tag:v1*": true, "state:brain*": false,
		"state:*moda": false, "state:b*e": false,
		`phase:"drain mode"`: true, "phase:drain*": true, "phase:STARTED": false, `phase:""`: false,
		"-phase:error,started": true, "wxyz": true, "ELEASE*ue+": true,
		`state:"drain mode" vms:2`: true, "state:drain*\rvms:2": true, "tag:*:bl*": true, "tag:*XY*": true,
		"tag:*y*,v9": true, "tag:*@*": false, "tag:*[*": false, "tag:*z{": true,
		"disk<" + strings.Repeat("9", 308) + "t": true, "tag:v1" + strings.Repeat(",x", maxValues-1): true,
		strings.Repeat(" ", MaxTextBytes-5) + "vms:2": true,
		"state:drain* age>10m tag:v1":                 true, "state:drain* age>10m tag:v2": false,
		"state:drain*\tvms:2\n": true,
	} {
		f, err := things.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Match(some, now); got != want {
			t.Errorf("%s: %t", text, got)
		}
		if f.MatchesAll() != (strings.TrimSpace(text) == "") {
			t.Errorf("%s: empty %t", text, f.MatchesAll())
		}
	}
}

// TestWithout has a record without values: it has no age, and matches the opposite of everything.
func TestWithout(t *testing.T) {
	for text, want := range map[string]bool{
		"age>0s": false, "age<1w": false, "-age>1m": true, "ttl<1w": false, `name:""`: true, `state:"",x`: true,
		"tag:*": false, "-tag:*": true, "name:*": true, "vms:0": true,
	} {
		f, err := things.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match(thing{}, now); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestWrong(t *testing.T) {
	for text, want := range map[string]string{
		"state:x stat:y": `at 9: unknown field "stat"; the fields are age, disk, name, phase, state, tag, ttl, vms; ` +
			`did you mean state?`,
		"-stat:y": `at 2: unknown field "stat"; the fields are age, disk, name, phase, state, tag, ttl, vms; ` +
			`did you mean state?`,
		"state:":     `at 7: missing value; an empty one is written ""`,
		"state:a,":   `at 9: missing value; an empty one is written ""`,
		"state:,a":   `at 7: missing value; an empty one is written ""`,
		"- state:a":  `at 2: missing value; an empty one is written ""`,
		`state:"a`:   `at 7: missing closing quote`,
		`state:"a\`:  `at 7: missing closing quote`,
		`state:"a"b`: `at 10: want a blank or a comma after a quoted value`,
		`state:a"b"`: `at 8: quote in the middle of a value`,
		"phase:error,strted": `at 13: unknown phase "strted": want one of Started, "Drain Mode", Error; ` +
			`did you mean Started?`,
		"-phase:drain": `at 8: unknown phase "drain": want one of Started, "Drain Mode", Error; ` +
			`did you mean "Drain Mode"?`,
		"phase:x*y":           `at 7: unknown phase "x*y": want one of Started, "Drain Mode", Error`,
		"state>a":             `at 1: state is text: want state:value`,
		"tag>1":               `at 1: tag is text: want tag:value`,
		"ttl>x":               `at 5: ttl takes a time such as 90s, 10m, 2h or 3d`,
		"age>+5m":             `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		`age>"1h 30m"`:        `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		"azAZ09_:y":           `at 1: unknown field "azAZ09_"; the fields are age, disk, name, phase, state, tag, ttl, vms`,
		"age:10m":             `at 1: age is compared: want age>10m or age<10m`,
		"age>10x":             `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		"age>10m5":            `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		"age>m":               `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		"age>-5m":             `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		"age>1m,2m":           `at 8: age> takes one value`,
		"disk>4XB":            `at 6: disk takes a size such as 512MB or 4GB`,
		"disk>1GB1MB":         `at 6: disk takes a size such as 512MB or 4GB`,
		"vms:two":             `at 5: vms takes a number such as 3`,
		"vms>1e9":             `at 5: vms takes a number such as 3`,
		"vms:1.2.3":           `at 5: vms takes a number such as 3`,
		`age>""`:              `at 5: age takes a time such as 90s, 10m, 2h or 3d`,
		`vms:""`:              `at 5: vms takes a number such as 3`,
		"age>":                `at 5: missing value; an empty one is written ""`,
		"a\xff:b \x00:" + "b": "",
	} {
		_, err := things.Parse(text)
		switch {
		case want == "" && err != nil: // a field's name ends at the first byte that is not a letter: these are words
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	if _, err := (Table[thing]{things[1]}).Parse("word"); err == nil ||
		err.Error() != `at 1: invalid term "word": want field:value; the fields are state` {
		t.Errorf("a word without fields for it: %v", err)
	}
}

func TestBounds(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", MaxTextBytes+1):            "bytes",
		strings.Repeat("x ", maxTerms+1):               "terms",
		"tag:" + strings.Repeat("x,", maxValues) + "x": "values",
		"field" + strings.Repeat("y", 100) + ":x":      `yyyyy..."`,
	} {
		if _, err := things.Parse(text); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("%.20s...: %v", text, err)
		}
	}
}

// FuzzParse wants no panic, errors that lie within the text, and no fit that depends on
// anything but the text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`state:error node:mac-* age>10m name:"a b" -state:started`, "a,b*c", `x:"\"`,
		"disk>=1.5GB", "*", "-", "=", "ttl<1h30m",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := things.Parse(text)
		if err != nil {
			e, ok := err.(*Error) //nolint:errorlint // it is documented to be one
			if !ok || e.Pos < 1 || e.Pos > len(text)+1 || e.Message == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		if parsed.Match(some, now) != parsed.Match(some, now) { //nolint:staticcheck // on purpose
			t.Fatal("a match differs from itself")
		}
		if not, err := things.Parse("-" + text); err == nil && len(parsed.conditions) == 1 &&
			!strings.HasPrefix(strings.TrimSpace(text), "-") {
			if strings.TrimLeft(text, " \t\r\n") == text && not.Match(some, now) == parsed.Match(some, now) {
				t.Fatalf("%q and its opposite agree", text)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	list := make([]thing, 10000)
	for i := range list {
		list[i] = thing{
			name: fmt.Sprintf("job-%d", i), state: []string{"Started", "Error", "Scheduling"}[i%3],
			tags: []string{"v1"},
			made: now.Add(-time.Duration(i) * time.Second),
		}
	}
	f, err := things.Parse(`state:error,started name:*-1* age>10m -tag:v2`)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, v := range list {
			if f.Match(v, now) {
				n++
			}
		}
		if n == 0 {
			b.Fatal("none")
		}
	}
}
