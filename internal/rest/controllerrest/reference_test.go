package controllerrest

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfRoutes: the page of the permissions has the routes of the controller.
func TestReferenceOfRoutes(t *testing.T) {
	var rows []referencetest.Route
	for _, r := range Routes() {
		var notes []string
		for _, g := range tierGates {
			switch {
			case g.pattern != r.Pattern:
			case g.param == "":
				notes = append(notes, "license tier `"+string(g.tier)+"`")
			default:
				notes = append(notes, "`"+g.param+"`: license tier `"+string(g.tier)+"`")
			}
		}
		rows = append(rows,
			referencetest.Route{Pattern: r.Pattern, Permission: r.Permission, Note: strings.Join(notes, "; ")})
	}
	referencetest.Section(t, "permissions.md", "Routes of the controller", referencetest.Routes(rows))
}
