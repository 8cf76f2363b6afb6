package portal

import (
	"fmt"
	"net/http/httptest"
	"testing"
)

func askedOf(address, usual string) tableQuery {
	r := httptest.NewRequest("GET", address, nil)
	return (&visit{request: r, query: r.URL.Query()}).tableQuery(usual)
}

// TestChips: a click adds a state to the filter or takes it away, and leaves the rest of it.
func TestChips(t *testing.T) {
	for filter, want := range map[string]string{
		"": "[Started 2 /i?q=state%3Astarted false] [Drain Mode " +
			"1 /i?q=state%3A%22drain+mode%22 false]",
		"name:x age>10m": "[Started 2 /i?q=state%3Astarted+name%3Ax+age%3E10m false] [Drain Mode 1 " +
			"/i?q=state%3A%22drain+mode%22+name%3Ax+age%3E10m false]",
		"name:x state:started": "[Started 2 /i?q=name%3Ax true] [Drain Mode " +
			"1 /i?q=state%3Astarted%2C%22drain+mode%22+name%3Ax false]",
		"state:error": "[Started 2 /i?q=state%3Aerror%2Cstarted false] [Error 0 /i true] [Drain " +
			"Mode 1 /i?q=state%3Aerror%2C%22drain+mode%22 false]",
		`state:started,"drain mode" y`: "[Started 2 /i?q=state%3A%22drain+mode%22+y true] [Drain Mode " +
			"1 /i?q=state%3Astarted+y true]",
		"-state:started": "[Started 2 /i?q=state%3Astarted+-state%3Astarted false] [Drain Mode " +
			"1 /i?q=state%3A%22drain+mode%22+-state%3Astarted false]",
	} {
		a := tableQuery{path: "/i", filter: filter, page: 3}
		got := ""
		for i, c := range a.chips(map[string]int{"Started": 2, "Drain Mode": 1},
			[]string{"Started", "Error", "Drain Mode"}) {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("[%s %d %s %v]", c.Name, c.Count, c.Path, c.Selected)
		}
		if got != want {
			t.Errorf("%q:\n%s; want\n%s", filter, got, want)
		}
	}
}

// TestAddressOfATable: the address contains the whole query, and defaults are left out.
func TestAddressOfATable(t *testing.T) {
	a := askedOf("/i?q=+state:x+&sort=-name&page=2", "age")
	if o := a.pageOptions(); o.Filter != "state:x" || o.Sort != "-name" || o.Skip != rowsPerPage ||
		o.Limit != rowsPerPage {
		t.Errorf("%+v", o)
	}
	p := a.pager(30, 80)
	if p.From != 51 || p.To != 80 || p.Before != "/i?q=state%3Ax&sort=-name" || p.After != "" || !p.IsNeeded {
		t.Errorf("%+v", p)
	}
	c := a.columns([]column{{Name: "Name", Field: "name"}, {Name: "Age", Field: "age"}, {Name: "IP"}})
	if c[0].Sorted != "descending" || c[0].Path != "/i?q=state%3Ax&sort=name" || c[1].Sorted != "" ||
		c[1].Path != "/i?q=state%3Ax&sort=age" || c[2].Path != "" {
		t.Errorf("%+v", c)
	}
	all := make([]int, 120)
	for at, want := range map[string]int{
		"/i": 50, "/i?page=2": 50, "/i?page=3": 20, "/i?page=4": 20, "/i?page=1000000": 20,
	} {
		a := askedOf(at, "age")
		rows := pageRows(&a, all)
		if p := a.pager(len(rows), len(all)); len(rows) != want || p.To-p.From+1 != want ||
			(p.After == "") != (want == 20) {
			t.Errorf("%s: %d rows, %+v", at, len(rows), p)
		}
	}
	if a := askedOf("/i?page=7", "age"); len(pageRows(&a, all[:0])) != 0 {
		t.Errorf("%+v", a)
	}
	for _, wild := range []string{"/i?page=0", "/i?page=-4", "/i?page=x", "/i?page=99999999999999"} {
		if a := askedOf(wild, "age"); a.page != 1 || a.sort != "age" || a.pageOptions().Skip != 0 {
			t.Errorf("%s: %+v", wild, a)
		}
	}
}
