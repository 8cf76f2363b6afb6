package registryrest

import (
	"testing"

	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfRoutes: the page of the permissions has the routes of the registry.
func TestReferenceOfRoutes(t *testing.T) {
	var rows []referencetest.Route
	for _, r := range Routes(nil) {
		row := referencetest.Route{Pattern: r.Pattern, Permission: r.Permission}
		if r.AllowsRegistryToken {
			row.Note = "or a registry token, within the orders of its node"
		}
		rows = append(rows, row)
	}
	referencetest.Section(t, "permissions.md", "Routes of the registry", referencetest.Routes(rows))
}
