package portal

import (
	"bytes"
	"strings"
	"testing"
)

// TestTotalsAgree: the head and the button that terminates all that match count the instances that are not
// terminated; where none or too many are left, the button says so.
func TestTotalsAgree(t *testing.T) {
	for name, c := range map[string]struct {
		filter            string
		total, terminated int
		head, button      string
	}{
		"all":    {"", 60, 0, ">60 instances<", ""},
		"ended":  {"", 60, 5, ">55 instances and 5 terminated<", ""},
		"filter": {"x", 60, 0, ">60 instances that match<", ">Terminate all 60 that match<"},
		"both":   {"x", 61, 60, ">1 instance that match and 60 terminated<", ">Terminate all 1 that match<"},
		"none": {
			"x", 60, 60, ">0 instances that match and 60 terminated<",
			` disabled title="All instances that match are terminated.">Terminate all that match<`,
		},
		"many": {
			"x", 600, 60, ">540 instances that match and 60 terminated<",
			` disabled title="At most 500 instances are terminated at a time, and 540 instances match.`,
		},
	} {
		list := instanceList{Filter: c.filter, Total: c.total, Terminated: c.terminated, Rows: []instanceRow{{ID: "1"}}}
		list.Summary, list.EndAllDenied = list.summary(), list.endAllDenied()
		var out bytes.Buffer
		if err := pageTemplates()["instances"]().ExecuteTemplate(&out, "content",
			view{Page: list, Can: &capabilities{}}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), c.head) || !strings.Contains(out.String(), c.button) {
			t.Errorf("%s: %q or %q is not on the page:\n%s", name, c.head, c.button, out.String())
		}
		if has := strings.Contains(out.String(), "Terminate all"); has != (c.button != "") {
			t.Errorf("%s: the button is there: %t", name, has)
		}
	}
}
