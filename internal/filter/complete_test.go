package filter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

var completed = Table[thing]{
	{Name: "name", Text: func(t thing) string { return t.name }, IsDefault: true},
	{
		Name: "state", Text: func(t thing) string { return t.state },
		Values: []string{"Started", "Drain Mode", "Error"},
	},
	{
		Name: "tag", Texts: func(t thing) []string { return append(t.tags, "id-of-"+t.name) },
		Suggest: func(t thing) []string { return t.tags }, Summary: "a tag",
	},
	{Name: "vms", Number: func(t thing) float64 { return t.vms }},
}

var completedThings = []thing{
	{name: "mac-1", state: "Started", tags: []string{"v1", "v1", "beta"}},
	{name: "mac-2", state: "Started", tags: []string{"v2"}},
	{name: "linux 1", state: "Drain Mode", tags: []string{"v1"}},
}

func TestComplete(t *testing.T) {
	for text, want := range map[string]struct {
		start          int
		fields, values string // names; terms with counts
	}{
		"":                         {0, "name state tag vms", ""},
		"mac ":                     {4, "name state tag vms", ""},
		"-":                        {0, "name state tag vms", ""},
		"sta":                      {0, "state", "state:Started=2"},
		"v":                        {0, "vms", "tag:v1=2 tag:v2=1"},
		"mac v":                    {4, "vms", "tag:v1=1 tag:v2=1"},
		"ode":                      {0, "", `state:"Drain Mode"=1`},
		"state:":                   {0, "", `state:Started=2 state:"Drain Mode"=1 state:Error=0`},
		"STATE:ER":                 {0, "", "state:Error=0"},
		"-state:dr":                {0, "", `-state:"Drain Mode"=1`},
		`tag:v1 state:"drain m`:    {7, "", `state:"Drain Mode"=1`},
		"state:started,er":         {0, "", "state:started,Error=0"},
		`state:"drain mode",star`:  {0, "", `state:"drain mode",Started=2`},
		"tag:":                     {0, "", "tag:v1=2 tag:beta=1 tag:v2=1"},
		"tag=v":                    {0, "", "tag:v1=2 tag:v2=1"},
		"tag:v* ":                  {7, "name state tag vms", ""},
		"state:started name:*":     {14, "", "name:mac-1=1 name:mac-2=1"},
		"state:\"drain mode\" tag": {19, "tag", ""},
		"name:lin":                 {0, "", `name:"linux 1"=1`},
		"vms>":                     {0, "", ""}, "vms:": {0, "", ""}, "size:r": {0, "", ""}, "state>": {0, "", ""},
	} {
		c, err := completed.Complete(text, slices.Values(completedThings), 20, now)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var fields, values []string
		for _, f := range c.Fields {
			fields = append(fields, f.Name)
			if f.Text == "" {
				t.Errorf("%s: field %s has no summary", text, f.Name)
			}
		}
		for _, v := range c.Values {
			values = append(values, fmt.Sprintf("%s=%d", v.Term, v.Count))
		}
		if c.Start != want.start || strings.Join(fields, " ") != want.fields ||
			strings.Join(values, " ") != want.values {
			t.Errorf("%s: %d %v %v, want %+v", text, c.Start, fields, values, want)
		}
	}
	if c, err := completed.Complete("tag:", slices.Values(completedThings), 1, now); err != nil || len(c.Values) != 1 {
		t.Errorf("with a limit: %v %v", c.Values, err)
	}
	if _, err := completed.Complete("state:strted na", slices.Values(completedThings), 9, now); err == nil ||
		!strings.HasPrefix(err.Error(), "at 7: unknown state") {
		t.Errorf("a wrong term before the word: %v", err)
	}
}

// FuzzComplete: every offered term is accepted in place of the word, and matches as many records as it says.
func FuzzComplete(f *testing.F) {
	for _, text := range []string{"sta", `state:"dr`, "-tag:v1,", `name:"a \" b`, "a,b", `x:"\`, "tag:v name:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := completed.Complete(text, slices.Values(completedThings), 5, now)
		if err != nil {
			return
		}
		if c.Start < 0 || c.Start > len(text) || len(c.Values) > 5 {
			t.Fatalf("%q: start %d, %d values", text, c.Start, len(c.Values))
		}
		if strings.Contains(text[c.Start:], ",") || strings.Contains(text[c.Start:], "-") {
			return // values before the last one may be wrong, and a negated term matches others
		}
		for _, v := range c.Values {
			parsed, err := completed.Parse(text[:c.Start] + v.Term)
			if err != nil {
				t.Fatalf("%q offers %q: %v", text, v.Term, err)
			}
			n := 0
			for _, one := range completedThings {
				if parsed.Match(one, now) {
					n++
				}
			}
			if n < v.Count {
				t.Fatalf("%q offers %q for %d records, it matches %d", text, v.Term, v.Count, n)
			}
		}
	})
}
