package controllerrest

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// theRoutes gives the table of routes without a controller behind it.
func theRoutes() []string {
	var patterns []string
	for _, route := range (&server{}).routes() {
		patterns = append(patterns, route.Pattern)
	}
	return patterns
}

// gatedParams are the parameters that some licences do not open, wherever they occur.
var gatedParams = []string{"group_id", "priority", "usb_device"}

// takers are the routes that take such a parameter, and those that may in time.
var takers = map[string][]string{
	"POST /api/v1/vm":                     gatedParams,
	"POST /api/v1/rpc/vm/restart":         {"usb_device"},
	"POST /api/v1/registry/vm/distribute": {"group_id"},
}

// TestEverythingGatedIsInTheTable: every route of groups and USB devices, and every
// parameter that needs a licence, has its line.
func TestEverythingGatedIsInTheTable(t *testing.T) {
	has := func(pattern, param string) bool {
		return slices.ContainsFunc(gates, func(g gate) bool { return g.pattern == pattern && g.param == param })
	}
	for _, pattern := range theRoutes() {
		_, path, _ := strings.Cut(pattern, " ")
		if slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "group" || part == "usb" }) && !has(pattern, "") {
			t.Errorf("%s is open to every licence", pattern)
		}
		for _, param := range takers[pattern] {
			if !has(pattern, param) {
				t.Errorf("%s of %s is open to every licence", param, pattern)
			}
		}
	}
}

// TestTheTableIsSound: every line is of a route that there is, once, and can be asked.
func TestTheTableIsSound(t *testing.T) {
	patterns, seen := theRoutes(), map[string]bool{}
	for _, g := range gates {
		name := g.pattern + " " + g.param
		switch {
		case !slices.Contains(patterns, g.pattern):
			t.Errorf("%s: there is no such route", name)
		case seen[name]:
			t.Errorf("%s is there twice", name)
		case !g.needs.Known() || g.needs == farm.TierBasic:
			t.Errorf("%s needs the tier %q", name, g.needs)
		case (g.param == "") != (g.what != ""):
			t.Errorf("%s: a whole route says what it is of, and only that", name)
		}
		seen[name] = true
	}
	for _, route := range (&server{}).routes() {
		if route.Raw != nil && slices.ContainsFunc(gates, func(g gate) bool { return g.pattern == route.Pattern }) {
			t.Errorf("%s is raw: nobody asks its gates", route.Pattern)
		}
	}
}
