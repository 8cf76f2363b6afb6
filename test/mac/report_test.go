package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReport: a run is good only when each required case has passed.
func TestReport(t *testing.T) {
	good, bad, empty := row{Name: "a"}, row{Name: "a"}, row{Name: "a"}
	good.check(true, "it is there")
	bad.note("something")
	bad.check(false, "it is there")
	for name, c := range map[string]struct {
		rows []row
		ok   bool
		last string
	}{
		"passed":  {[]row{good}, true, "1 passed, 0 failed, 0 skipped\n"},
		"failed":  {[]row{bad}, false, "0 passed, 1 failed, 0 skipped\n"},
		"empty":   {[]row{empty}, false, "0 passed, 1 failed, 0 skipped\n"},
		"skipped": {[]row{{Name: "a", Outcome: skipped}}, false, "0 passed, 0 failed, 1 skipped\n"},
		"absent":  {nil, false, "0 passed, 1 failed, 0 skipped\n"},
	} {
		var out strings.Builder
		r := newReport(&out, []string{"a"})
		for _, one := range c.rows {
			if one.Outcome == "" {
				one.conclude(time.Second)
			}
			r.add(one)
		}
		r.close()
		if r.ok() != c.ok || !strings.HasSuffix(out.String(), "\n"+c.last) {
			t.Errorf("%s: ok is %v, report %q", name, r.ok(), out.String())
		}
	}
}

// TestRequired: the names of the cases are unique, and every case is required unless it is not asked for.
func TestRequired(t *testing.T) {
	seen := map[string]bool{}
	all := required(regexp.MustCompile(""))
	for _, name := range all {
		if seen[name] {
			t.Errorf("two cases are named %q", name)
		}
		seen[name] = true
	}
	if some := required(regexp.MustCompile("^kill: ")); len(some) == 0 || len(some) >= len(all) {
		t.Errorf("%d of %d cases are kills", len(some), len(all))
	}
}
