package controllerrest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/farm"
)

// theRoutes returns the table of routes without a controller behind it.
func theRoutes() []string {
	var patterns []string
	for _, route := range Routes() {
		patterns = append(patterns, route.Pattern)
	}
	return patterns
}

// gatedParams are the parameters that some licenses do not open, wherever they occur.
var gatedParams = []string{"group_id", "priority", "usb_device"}

// yamlNode is a part of openapi.yaml.
type yamlNode = map[string]any

// follow returns the node at a path of keys, and the target of a reference.
func follow(root, at yamlNode, path ...string) yamlNode {
	for _, key := range path {
		at, _ = at[key].(yamlNode)
	}
	if ref, ok := at["$ref"].(string); ok {
		return follow(root, root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return at
}

// described returns the parameters of every operation of openapi.yaml, wherever they are sent.
func described(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yamlNode
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for path := range follow(doc, doc, "paths") {
		for method := range follow(doc, doc, "paths", path) {
			op, pattern := follow(doc, doc, "paths", path, method), strings.ToUpper(method)+" "+path
			list, _ := op["parameters"].([]any)
			for _, p := range list {
				if param, ok := p.(yamlNode); ok {
					name, _ := follow(doc, param)["name"].(string)
					out[pattern] = append(out[pattern], name)
				}
			}
			body := follow(doc, follow(doc, op, "requestBody"), "content", "application/json", "schema")
			for name := range follow(doc, body, "properties") {
				out[pattern] = append(out[pattern], name)
			}
		}
	}
	return out
}

// TestEverythingGatedIsInTheTable: every route of groups and USB devices, and every
// parameter that needs a license, has its line.
func TestEverythingGatedIsInTheTable(t *testing.T) {
	has := func(pattern, param string) bool {
		return slices.ContainsFunc(tierGates, func(g tierGate) bool { return g.pattern == pattern && g.param == param })
	}
	params, found := described(t), 0
	for _, pattern := range theRoutes() {
		_, path, _ := strings.Cut(pattern, " ")
		if slices.ContainsFunc(strings.Split(path, "/"),
			func(part string) bool { return part == "group" || part == "usb" }) && !has(pattern, "") {
			t.Errorf("%s is open to every licence", pattern)
		}
		for _, param := range gatedParams {
			if !slices.Contains(params[pattern], param) {
				continue
			}
			if found++; !has(pattern, param) {
				t.Errorf("%s of %s is open to every licence", param, pattern)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d gated parameters are found in openapi.yaml", found)
	}
}

// TestTheSpecIsInTheTable: everything marked as Enterprise in the API's tables has its entry.
func TestTheSpecIsInTheTable(t *testing.T) {
	const start, distribute = "POST /api/v1/vm", "POST /api/v1/registry/vm/distribute"
	for _, marked := range [][2]string{
		{start, "group_id"},
		{start, "priority"},
		{start, "usb_device"},
		{distribute, "group_id"},
		{distribute, "group"},
	} {
		if !slices.ContainsFunc(tierGates,
			func(g tierGate) bool { return g.pattern == marked[0] && g.param == marked[1] }) {
			t.Errorf("%s of %s is open to every licence", marked[1], marked[0])
		}
	}
}

// TestTheTableIsSound: every entry is of an existing route, unique, and can be requested.
func TestTheTableIsSound(t *testing.T) {
	patterns, seen := theRoutes(), map[string]bool{}
	for _, g := range tierGates {
		name := g.pattern + " " + g.param
		switch {
		case !slices.Contains(patterns, g.pattern):
			t.Errorf("%s: there is no such route", name)
		case seen[name]:
			t.Errorf("%s is there twice", name)
		case !g.tier.Known() || g.tier == farm.TierBasic:
			t.Errorf("%s needs the tier %q", name, g.tier)
		case (g.param == "") != (g.feature != ""):
			t.Errorf("%s: a whole route says what it is of, and only that", name)
		}
		seen[name] = true
	}
	for _, route := range Routes() {
		if route.HandleRaw != nil &&
			slices.ContainsFunc(tierGates, func(g tierGate) bool { return g.pattern == route.Pattern }) {
			t.Errorf("%s is raw: nobody asks its gates", route.Pattern)
		}
	}
}
