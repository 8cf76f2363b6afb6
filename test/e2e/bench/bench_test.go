package main

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

func newBench(t *testing.T, args ...string) *bench {
	t.Helper()
	b, _, err := program.Parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return b.(*bench)
}

// TestEveryRowHasAPart: each row is measured by one part, and describes how.
func TestEveryRowHasAPart(t *testing.T) {
	measured := map[string]int{}
	for _, p := range newBench(t).parts(nil) {
		for _, name := range p.Rows {
			measured[name]++
		}
	}
	for _, r := range rows {
		if measured[r.Name] != 1 || r.How == "" || r.Need < 1 {
			t.Errorf("row %s is measured by %d parts; how: %q", r.Name, measured[r.Name], r.How)
		}
	}
	if len(measured) != len(rows) {
		t.Errorf("the parts have rows that are not in the table: %v", measured)
	}
}

func TestParse(t *testing.T) {
	if b := newBench(t, "-seconds", "30"); b.seconds != 30 {
		t.Errorf("%d seconds", b.seconds)
	}
	if _, _, err := program.Parse([]string{"-seconds", "0"}, t.Output()); err == nil {
		t.Error("0 seconds are taken")
	}
}

// TestTabGrows: a tab that grows misses its row, one that does not makes it, and one that was not
// watched long enough or not refreshed is not measured.
func TestTabGrows(t *testing.T) {
	flat, growing := make([]held, 60), make([]held, 60)
	for i := range flat {
		flat[i] = held{5e6, 1000, 10}
		growing[i] = held{5e6 + 2e5*float64(i), 1000, 10}
	}
	for _, c := range []struct {
		seconds string
		all     []held
		rate    float64
		ok      bool
		err     string
	}{
		{"600", flat, 1, true, ""},
		{"600", growing, 1, false, ""},
		{"60", flat, 1, true, "60 s instead of 600"},
		{"600", flat, 0.1, true, "0.10 times a second"},
	} {
		b := newBench(t, "-seconds", c.seconds)
		err := b.checkTab(c.all, c.rate)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v, want %q", err, c.err)
		}
		if b.Evaluate(); b.Figure(rowHeap).OK != c.ok || !b.Figure(rowNodes).OK {
			t.Errorf("%+v", b.Figure(rowHeap))
		}
	}
}

// TestEnough: rows are of a cloud that was as large, and changed as often, as they state.
func TestEnough(t *testing.T) {
	full := api.ControllerStats{Instances: map[string]int{"Started": instances}, Nodes: map[string]int{"Active": nodes}}
	later := full
	later.StartsLastHour, later.TerminationsLastHour = 500, 500
	if err := enough(full, later, 10*time.Second); err != nil {
		t.Error(err)
	}
	if err := enough(full, later, 20*time.Second); err == nil {
		t.Error("50 changes a second are enough")
	}
	later.Instances = map[string]int{"Started": instances / 2}
	if err := enough(full, later, 10*time.Second); err == nil {
		t.Error("half of the instances are enough")
	}
}

func TestFilesOfPages(t *testing.T) {
	page := `<link href="/assets/1/css/a.css"><script src="/assets/1/js/p.js"></script><use href="/assets/1/icons.svg#x"/><main data-live="/live?topics=a&amp;b">`
	if m := fileOfPage.FindAllStringSubmatch(page, -1); len(m) != 3 || m[2][1] != "/assets/1/icons.svg" {
		t.Errorf("%v", m)
	}
	if m := liveOfPage.FindStringSubmatch(page); m == nil || m[1] != "/live?topics=a&amp;b" {
		t.Errorf("%v", m)
	}
	if m := fileOfModule.FindAllStringSubmatch("// x\nimport { a } from \"./a.js\";\nimport \"./b.js\";\n",
		-1); len(m) != 2 || m[1][1] != "b.js" {
		t.Errorf("%v", m)
	}
}
