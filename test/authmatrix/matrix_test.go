package main

import (
	"net/http"
	"slices"
	"testing"
)

// TestEveryRouteIsInTheTables: the rows are the routes that the services have; those of the
// tables and those of the services are the same.
func TestEveryRouteIsInTheTables(t *testing.T) {
	rows, err := allRows()
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	var free []string
	for _, r := range rows {
		if p := r.permission(); p != "" {
			met[r.service+" "+p] = true
		}
		if r.needs == open && r.service == registry {
			free = append(free, r.method+":"+r.path)
		}
	}
	slices.Sort(free)
	if want := slices.Sorted(slices.Values(openByContract)); !slices.Equal(free, want) {
		t.Errorf("the tables have %v open, and the contract %v", free, want)
	}
	for service, list := range printed {
		for _, p := range list {
			if !met[service+" "+p] {
				t.Errorf("no route of the %s needs %s", service, p)
			}
		}
	}
	if len(rows) < 130 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestTablesMatchTheServices: a line too many, and a permission that there is not.
func TestTablesMatchTheServices(t *testing.T) {
	before := lines[registry]
	defer func() { lines[registry] = before }()
	for _, more := range []string{
		"\nindex: G/registry/new", "\nroot: G/registry/status", "\nsuperuser: G/registry/other",
	} {
		lines[registry] = before + more
		if _, err := allRows(); err == nil {
			t.Errorf("%q is taken", more)
		}
	}
}

// TestExpectations: what the tables make of callers.
func TestExpectations(t *testing.T) {
	on, off := &deployment{sides: alike(whole)}, &deployment{sides: alike(serviceAuth{auth: true})}
	list, status := row{service: controller, needs: "list_vms"}, row{service: registry, needs: "index"}
	for _, c := range []struct {
		s    *deployment
		r    row
		c    caller
		want verdict
	}{
		{on, list, caller{}, unknownCaller},
		{on, list, caller{guessing: true}, limited},
		{on, list, caller{known: true}, forbidden},
		{on, list, caller{known: true, has: []string{"list_vms"}}, reached},
		{on, list, caller{known: true, root: true}, reached},
		{off, list, caller{known: true}, reached},
		{off, status, caller{known: true, fixed: true, has: []string{"pull_vm"}}, forbidden},
		{off, row{service: controller, needs: rootOnly}, caller{known: true, has: printed[controller]}, forbidden},
		{on, row{service: controller, needs: nodeOnly}, caller{known: true, root: true}, unknownCaller},
		{on, row{service: controller, needs: nodeOrKnown}, caller{linked: true}, reached},
		{on, row{service: controller, needs: joining}, caller{known: true}, forbidden},
		{on, row{service: controller, needs: open}, caller{}, reached},
		{on, row{service: controller, needs: anybody}, caller{}, unknownCaller},
		{&deployment{sides: alike(serviceAuth{})}, list, caller{}, reached},
	} {
		if got := c.s.expect(c.r, c.c); got != c.want {
			t.Errorf("%+v by %+v: %s; want %s", c.r, c.c, got, c.want)
		}
	}
}

// TestAuthorizer: answers that are nearly right are not.
func TestAuthorizer(t *testing.T) {
	json := http.Header{"Content-Type": {"application/json"}}
	list := row{service: controller, needs: "list_vms"}
	for _, c := range []struct {
		a    answer
		want verdict
		well bool
	}{
		{answer{401, json, []byte(unauthenticated), ""}, unknownCaller, true},
		{answer{401, json, []byte(unauthenticated[:len(unauthenticated)-1]), ""}, unknownCaller, false},
		{answer{401, http.Header{}, []byte(unauthenticated), ""}, unknownCaller, false},
		{answer{403, json, []byte(unauthenticated), ""}, unknownCaller, false},
		{answer{429, json, []byte(`{"status":"FAIL","message":"Too many"}`), ""}, unknownCaller, false},
		{answer{429, json, []byte(`{"status":"FAIL","message":"Too many"}`), ""}, limited, true},
		{
			answer{403, json, []byte(`{"status":"FAIL","message":"You need the permission list_vms"}`), ""},
			forbidden,
			true,
		},
		{
			answer{403, json, []byte(`{"status":"FAIL","message":"You need the permission list_vms2"}`), ""},
			forbidden,
			false,
		},
		{
			answer{200, json, []byte(`{"status":"FAIL","message":"You need the permission list_vms"}`), ""},
			forbidden,
			false,
		},
		{answer{200, json, []byte(`{"status":"OK","message":""}`), ""}, reached, true},
		{answer{400, json, []byte(`{"status":"FAIL","message":"body"}`), ""}, reached, true},
		{answer{403, json, []byte(`{"status":"FAIL","message":"no"}`), ""}, reached, false},
		{answer{404, json, []byte(`{"status":"FAIL","message":"No such route: GET /x"}`), ""}, reached, false},
		{answer{404, json, []byte(`{"status":"FAIL","message":"No such route: GET /x"}`), ""}, closed, true},
		{answer{500, json, []byte(`{"status":"FAIL","message":"Internal error"}`), ""}, reached, false},
	} {
		if fault := compare(c.a, list, c.want); (fault == "") != c.well {
			t.Errorf("%d %s for %s: %q", c.a.code, c.a.body, c.want, fault)
		}
	}
}
